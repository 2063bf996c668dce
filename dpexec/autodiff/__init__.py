"""Gradients: from the operators of a program to those of its backward pass."""

from dpexec.autodiff import (  # noqa: F401 - their gradients
    conditional_block,
    parallel_do,
    recurrent,
    while_loop,
)
from dpexec.autodiff.backward import append_backward, calc_gradient, gradients
from dpexec.ir.undo import build_whole as _build_whole

__all__ = ["append_backward", "calc_gradient", "gradients"]

_build_whole(globals(), __all__, __name__)
