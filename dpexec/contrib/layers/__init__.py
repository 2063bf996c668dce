"""``fluid.contrib.layers``: layers beside those of ``fluid.layers``."""

from dpexec.contrib.layers.rnn_impl import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm
from dpexec.contrib.layers.sequences import sequence_topk_avg_pooling

__all__ = [
    "BasicGRUUnit",
    "BasicLSTMUnit",
    "basic_gru",
    "basic_lstm",
    "sequence_topk_avg_pooling",
]
