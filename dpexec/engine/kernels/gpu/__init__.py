"""Kernels for GPUs, generated from the expressions of those for processors.

The text of an expression (:class:`~dpexec.engine.kernels.generate.Pointwise`) or of an optimizer's
update becomes the body of a CUDA kernel, which CuPy compiles when it first runs. Convolutions are
cuDNN's where it is installed, products with a bias cuBLASLt's; pooling, batch norm, layer norm and
softmax are kernels of a few lines. An operator that has no such kernel, or whose values it does not
take, runs as it is declared in :mod:`dpexec.engine.ops`, on CuPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpexec.engine import kernels
from dpexec.engine.kernels.gpu.batch_norm import batch_norm_of
from dpexec.engine.kernels.gpu.convolutions import convolution_of
from dpexec.engine.kernels.gpu.dropout import dropout
from dpexec.engine.kernels.gpu.epilogues import epilogue_of
from dpexec.engine.kernels.gpu.layer_norm import layer_norm_of
from dpexec.engine.kernels.gpu.pooling import pooling_of
from dpexec.engine.kernels.gpu.products import scaled_product_of
from dpexec.engine.kernels.gpu.softmax import softmax_of
from dpexec.engine.kernels.gpu.softmax_with_cross_entropy import softmax_with_cross_entropy_of
from dpexec.engine.kernels.gpu.sync_batch_norm import sync_batch_norm_of

__all__ = ["kernel_of"]

_FIND = (
    convolution_of,
    epilogue_of,
    scaled_product_of,
    pooling_of,
    batch_norm_of,
    sync_batch_norm_of,
    layer_norm_of,
    softmax_of,
    softmax_with_cross_entropy_of,
)
"""What knows kernels of some types; their sums are in another order than NumPy's."""


def kernel_of(type: str, general: Callable[..., Any]) -> Callable[..., Any]:
    """What computes one operator of a program on GPUs; it is called as ``general`` is.

    It must always get the same attributes.

    Args:
        type: of the operator.
        general: its kernel for all arrays.
    """
    special: Callable[..., Any] | None = dropout if type == "dropout" else None
    for find in _FIND:
        special = special or find(type)
    if special is None and kernels.available():  # the expressions are in modules that need numba
        from dpexec.engine.kernels.gpu.operators import elementwise
        from dpexec.engine.kernels.gpu.optimizers import update_of

        special = update_of(type) or elementwise(type)
    if special is None:
        return general

    def kernel(xp: Any, *values: Any, **attrs: Any) -> Any:
        made = special(xp, *values, **attrs)
        return general(xp, *values, **attrs) if made is None else made

    return kernel
