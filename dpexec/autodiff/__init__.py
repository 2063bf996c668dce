"""Gradients: from the operators of a program to those of its backward pass."""

from dpexec.autodiff import (  # noqa: F401 - their gradients
    conditional_block,
    parallel_do,
    recurrent,
    while_loop,
)
from dpexec.autodiff.backward import append_backward, calc_gradient, gradients

__all__ = ["append_backward", "calc_gradient", "gradients"]
