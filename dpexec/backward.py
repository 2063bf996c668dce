"""``fluid.backward``."""

from dpexec.engine.autodiff import append_backward, calc_gradient, gradients
from dpexec.engine.ir.roles import grad_name as _append_grad_suffix_  # noqa: F401

__all__ = ["append_backward", "calc_gradient", "gradients"]
