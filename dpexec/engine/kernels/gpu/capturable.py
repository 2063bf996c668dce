"""Operators whose launches a CUDA graph can repeat.

A graph repeats kernels and copies with the arguments that they had. So it can have nothing that
looks at values on the host, and nothing that takes values of the host, such as constants that
NumPy makes, whose copy would be read from page-locked memory that is somebody else's by then. The
operators here do neither, as ``tests/engine/kernels/gpu/test_capturable.py`` finds out with their
samples; what they check about values is looked at behind the graph. Of random ones only ``dropout``
has a kernel that takes its numbers from the GPU.
"""

from __future__ import annotations

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.operator import Operator
from dpexec.engine.kernels.gpu.dropout import draws_on_gpu
from dpexec.engine.kernels.gpu.numbers import is_looked_at

__all__ = ["CAPTURABLE", "is_capturable"]

_TYPES = """
abs accuracy adadelta adagrad adam adamax assign batch_norm bmm cast ceil clip clip_by_norm concat
conv2d conv2d_transpose cross_entropy cross_entropy2 cumsum depthwise_conv2d dot dropout
dropout_grad elementwise_add elementwise_div elementwise_max elementwise_min elementwise_mul
elementwise_pow elementwise_sub equal exp expand_as fill_any_like fill_constant
fill_constant_batch_size_like fill_zeros_like flatten flatten2 floor ftrl fused_adam
fused_batch_norm_act fused_elemwise_activation fused_gemm_epilogue fused_momentum fused_sgd
fusion_group gelu get_tensor_from_selected_rows greater_equal greater_than group_norm hard_sigmoid
hard_swish huber_loss increment instance_norm label_smooth lamb lars_momentum layer_norm leaky_relu
less_equal less_than log log_loss logsigmoid lookup_table lookup_table_v2 matmul mean
merge_selected_rows momentum mul not_equal pool2d pow reciprocal reduce_max reduce_mean reduce_min
reduce_sum relu relu6 reshape reshape2 rmsprop round rsqrt scale sgd sigmoid
sigmoid_cross_entropy_with_logits sign slice smooth_l1_loss softmax softmax_with_cross_entropy
softplus softsign split sqrt square squeeze squeeze2 stack sum swish sync_batch_norm
sync_batch_norm_grad_sums sync_batch_norm_sums tanh transpose transpose2 unsqueeze unsqueeze2 where
"""
CAPTURABLE = frozenset(_TYPES.split())
"""Types; their gradients are meant, too."""

_JOINS = {"concat": 8, "stack": 8}
"""How many inputs they may have: for more CuPy makes a list of addresses on the host."""


def is_capturable(op: Operator) -> bool:
    """Whether a graph can repeat an operator.

    Args:
        op: the operator.
    """
    if op.type not in CAPTURABLE and op.type.removesuffix("_grad") not in CAPTURABLE:
        return False
    if op.type == "dropout" and not draws_on_gpu(op):
        return False
    if len(op.input_arg_names) > _JOINS.get(op.type, len(op.input_arg_names)):
        return False
    given = {slot for slot, names in op.inputs.items() if names}
    if any(is_looked_at(op.type, slot) for slot in given):
        return False
    names = {*op.input_arg_names, *op.output_arg_names}
    variables = (op.block._find_var_recursive(name) for name in names)
    return not any(var is not None and var.type == VarType.LOD_TENSOR_ARRAY for var in variables)
