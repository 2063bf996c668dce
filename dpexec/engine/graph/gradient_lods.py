"""Which gradients the user sees with sequences; it is less than what has some inside.

The gradient of ``x`` has the sequences of ``x``, as far as operators are concerned. In the original
it depends on the operator that makes the gradient whether it tells of them. Programs see that when
they fetch gradients: arrays cannot show sequences, so these must be asked for as LoDTensors.
"""

from __future__ import annotations

from collections.abc import Collection

from dpexec.engine.core.lod import lod_name
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator

__all__ = ["without_sequences"]

_AS_INPUT = {
    "addmm_grad", "argsort_grad", "array_to_lod_tensor", "bce_loss_grad", "bpr_loss_grad",
    "concat_grad", "cross_entropy_grad", "cross_entropy_grad2", "cvm_grad", "dot_grad",
    "erf_grad", "fill_zeros_like", "filter_by_instag_grad", "flatten2_grad", "flatten_grad",
    "frobenius_norm_grad", "fused_elemwise_activation_grad", "gather_grad", "gather_nd_grad",
    "gelu_grad", "hierarchical_sigmoid_grad", "linear_chain_crf_grad", "lod_reset_grad",
    "match_matrix_tensor_grad", "mean_grad", "mul_grad", "pad_constant_like_grad",
    "partial_concat_grad", "partial_sum_grad", "reduce_max_grad", "reduce_mean_grad",
    "reduce_min_grad", "reduce_prod_grad", "reduce_sum_grad", "reorder_lod_tensor_by_rank_grad",
    "reshape2_grad", "sequence_concat_grad", "sequence_conv_grad", "sequence_expand_as_grad",
    "sequence_expand_grad", "sequence_pad_grad", "sequence_pool_grad", "sequence_reshape_grad",
    "sequence_reverse", "sequence_slice_grad", "sequence_softmax_grad", "squeeze2_grad",
    "squeeze_grad", "teacher_student_sigmoid_loss_grad", "transpose2_grad", "unsqueeze2_grad",
    "unsqueeze_grad", "warpctc_grad",
}  # fmt: skip
"""What gives gradients the sequences of what they are gradients of."""

_AS_ARRIVING = {
    "abs_grad", "acos_grad", "asin_grad", "assign", "atan_grad", "brelu_grad", "cast", "ceil_grad",
    "concat", "cos_grad", "cumsum", "dropout_grad", "elementwise_add_grad", "elementwise_div_grad",
    "elementwise_max_grad", "elementwise_min_grad", "elementwise_mul_grad", "elementwise_pow_grad",
    "elementwise_sub_grad", "elu_grad", "exp_grad", "flip", "floor_grad", "hard_shrink_grad",
    "hard_sigmoid_grad", "hard_swish_grad", "leaky_relu_grad", "log1p_grad", "log_grad",
    "logsigmoid_grad", "pow_grad", "print", "reciprocal_grad", "relu6_grad", "relu_grad",
    "rnn_memory_helper_grad", "round_grad", "rsqrt_grad", "scale", "shuffle_batch_grad",
    "sigmoid_grad", "sin_grad", "soft_relu_grad", "softplus_grad", "softshrink_grad",
    "softsign_grad", "sqrt_grad", "square_grad", "stack", "stanh_grad", "sum", "swish_grad",
    "tanh_grad", "tanh_shrink_grad", "thresholded_relu_grad",
}  # fmt: skip
"""What gives gradients the sequences of the first one that arrives."""


def without_sequences(block: Block, known: Collection[str]) -> set[str]:
    """The gradients of a block that show no sequences, though what they belong to has some.

    Args:
        block: the global block.
        known: the variables that have sequences.
    """
    bare: set[str] = set()
    for op in block.ops:
        for name in op.output_arg_names:
            if roles.GRAD_SUFFIX in name and name in known:
                (bare.discard if _shows(op, name, known, bare) else bare.add)(name)
    return bare


def _shows(op: Operator, name: str, known: Collection[str], bare: set[str]) -> bool:
    if op.type in _AS_INPUT or op.bodies or lod_name(name) in op.output_arg_names:
        return True
    if op.type not in _AS_ARRIVING:
        return False
    if name in op.outputs.get("Y@GRAD", []):  # elementwise operators look at Y itself
        return True
    arriving = next((n for n in op.input_arg_names if roles.GRAD_SUFFIX in n), "")
    return arriving in known and arriving not in bare
