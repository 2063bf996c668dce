"""``fluid.backward``."""

from dpexec.autodiff import append_backward, calc_gradient, gradients

__all__ = ["append_backward", "calc_gradient", "gradients"]
