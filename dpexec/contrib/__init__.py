"""``fluid.contrib``: additional layers, optimizers and tools."""

from dpexec.contrib import decoder, layers, mixed_precision, model_stat, reader, slim
from dpexec.contrib.decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder
from dpexec.contrib.extend_optimizer import extend_with_decoupled_weight_decay
from dpexec.contrib.layers import (
    BasicGRUUnit,
    BasicLSTMUnit,
    basic_gru,
    basic_lstm,
    ctr_metric_bundle,
    fused_elemwise_activation,
    fused_embedding_seq_pool,
    match_matrix_tensor,
    multiclass_nms2,
    partial_concat,
    partial_sum,
    rank_attention,
    search_pyramid_hash,
    sequence_topk_avg_pooling,
    shuffle_batch,
    tdm_child,
    tdm_sampler,
    tree_conv,
    var_conv_2d,
)
from dpexec.contrib.memory_usage_calc import memory_usage
from dpexec.contrib.mixed_precision import AutoMixedPrecisionLists, decorate
from dpexec.contrib.model_stat import summary
from dpexec.contrib.op_frequence import op_freq_statistic
from dpexec.contrib.reader import distributed_batch_reader

__all__ = [
    "AutoMixedPrecisionLists",
    "BasicGRUUnit",
    "BasicLSTMUnit",
    "BeamSearchDecoder",
    "InitState",
    "StateCell",
    "TrainingDecoder",
    "basic_gru",
    "basic_lstm",
    "ctr_metric_bundle",
    "decoder",
    "decorate",
    "distributed_batch_reader",
    "extend_with_decoupled_weight_decay",
    "fused_elemwise_activation",
    "fused_embedding_seq_pool",
    "layers",
    "match_matrix_tensor",
    "memory_usage",
    "mixed_precision",
    "model_stat",
    "multiclass_nms2",
    "op_freq_statistic",
    "partial_concat",
    "partial_sum",
    "rank_attention",
    "reader",
    "search_pyramid_hash",
    "sequence_topk_avg_pooling",
    "shuffle_batch",
    "slim",
    "summary",
    "tdm_child",
    "tdm_sampler",
    "tree_conv",
    "var_conv_2d",
]
