"""``fluid.contrib.layers``: layers in addition to ``fluid.layers``."""

from typing import Any

from dpexec.compat.absent import missing_name as _missing_name
from dpexec.contrib.layers import nn
from dpexec.contrib.layers.metric_op import ctr_metric_bundle
from dpexec.contrib.layers.nn import (
    fused_elemwise_activation,
    fused_embedding_seq_pool,
    partial_concat,
    partial_sum,
    rank_attention,
    search_pyramid_hash,
    shuffle_batch,
)
from dpexec.contrib.layers.rnn_impl import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm
from dpexec.contrib.layers.sequences import (
    match_matrix_tensor,
    sequence_topk_avg_pooling,
    var_conv_2d,
)
from dpexec.contrib.layers.suppression import multiclass_nms2
from dpexec.contrib.layers.trees import tdm_child, tdm_sampler, tree_conv
from dpexec.engine.ir.undo import build_whole as _build_whole

__all__ = [
    "BasicGRUUnit",
    "BasicLSTMUnit",
    "basic_gru",
    "basic_lstm",
    "ctr_metric_bundle",
    "fused_elemwise_activation",
    "fused_embedding_seq_pool",
    "match_matrix_tensor",
    "multiclass_nms2",
    "partial_concat",
    "partial_sum",
    "rank_attention",
    "search_pyramid_hash",
    "sequence_topk_avg_pooling",
    "shuffle_batch",
    "tdm_child",
    "tdm_sampler",
    "tree_conv",
    "var_conv_2d",
]

_build_whole(globals(), __all__, __name__)


def _elsewhere(name: str) -> Any:
    """A layer accessed through its module in fluid."""
    if name in __all__:
        return globals()[name]
    raise _missing_name(nn.__name__, name, __all__)


vars(nn)["__getattr__"] = _elsewhere
