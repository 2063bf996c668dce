"""``fluid.contrib.layers``: layers beside those of ``fluid.layers``."""

from dpexec.contrib.layers.nn import (
    fused_elemwise_activation,
    fused_embedding_seq_pool,
    match_matrix_tensor,
    partial_concat,
    partial_sum,
)
from dpexec.contrib.layers.rnn_impl import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm
from dpexec.contrib.layers.sequences import sequence_topk_avg_pooling
from dpexec.contrib.layers.suppression import multiclass_nms2

__all__ = [
    "BasicGRUUnit",
    "BasicLSTMUnit",
    "basic_gru",
    "basic_lstm",
    "fused_elemwise_activation",
    "fused_embedding_seq_pool",
    "match_matrix_tensor",
    "multiclass_nms2",
    "partial_concat",
    "partial_sum",
    "sequence_topk_avg_pooling",
]
