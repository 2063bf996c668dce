"""``fluid.contrib.layers``: layers beside those of ``fluid.layers``."""

from typing import NoReturn

from dpexec.contrib.layers.metric_op import ctr_metric_bundle
from dpexec.contrib.layers.nn import (
    fused_elemwise_activation,
    fused_embedding_seq_pool,
    match_matrix_tensor,
    partial_concat,
    partial_sum,
    shuffle_batch,
)
from dpexec.contrib.layers.rnn_impl import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm
from dpexec.contrib.layers.sequences import sequence_topk_avg_pooling, var_conv_2d
from dpexec.contrib.layers.suppression import multiclass_nms2
from dpexec.contrib.layers.trees import tdm_child, tdm_sampler, tree_conv

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
    "sequence_topk_avg_pooling",
    "shuffle_batch",
    "tdm_child",
    "tdm_sampler",
    "tree_conv",
    "var_conv_2d",
]

_REFUSED = {
    "rank_attention": "an operator for GPUs alone; build it from layers.matmul and layers.gather",
    "search_pyramid_hash": "hashed n-grams; use layers.hash and layers.embedding",
}


def __getattr__(name: str) -> NoReturn:
    if name in _REFUSED:
        raise AttributeError(f"contrib.layers.{name} is not supported: {_REFUSED[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
