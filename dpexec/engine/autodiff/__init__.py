"""Gradients: the operators of a program's backward pass."""

from dpexec.engine.autodiff import conditional_block, parallel_do, recurrent, while_loop  # noqa: F401 - their gradients
from dpexec.engine.autodiff.backward import append_backward, calc_gradient, gradients
from dpexec.engine.ir.undo import build_whole as _build_whole

__all__ = ["append_backward", "calc_gradient", "gradients"]

_build_whole(globals(), __all__, __name__)
