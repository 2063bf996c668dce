"""Operator roles: which part of a training step an operator belongs to.

Source: ``OpRole`` of Paddle 1.8. ``LOSS`` is a flag on top of ``FORWARD`` or ``BACKWARD``.
"""

from __future__ import annotations

FORWARD = 0
BACKWARD = 1
OPTIMIZE = 2
RPC = 4
DIST = 8
LR_SCHED = 16
LOSS = 256

ROLE = "op_role"
ROLE_VAR = "op_role_var"
NAME_SCOPE = "op_namescope"
DEVICE = "op_device"

GRAD_SUFFIX = "@GRAD"
EMPTY = "@EMPTY@"
RECOMPUTED = ".subprog_"
"""In the names of activations that the backward pass computes again."""


def grad_name(name: str) -> str:
    """The name of the gradient of a variable."""
    return name + GRAD_SUFFIX


def variable_name(grad: str) -> str:
    """The variable that a gradient of a backward pass belongs to."""
    return grad.partition(GRAD_SUFFIX)[0].rpartition("grad/")[2]


def part_of_grad(name: str) -> str:
    """A device's rows of the gradient of a ParallelDo's output, inside the gradient block."""
    return name + GRAD_SUFFIX + "@PART"


def role_name(role: int) -> str:
    """One word for a role: what views group and colour by."""
    if role & LR_SCHED:
        return "lr_sched"
    if role & OPTIMIZE:
        return "optimize"
    if role & BACKWARD:
        return "backward"
    return "forward"


def original_name(name: str) -> str:
    """The variable of the forward pass that a recomputed one is equal to, or the name itself."""
    return name.partition(RECOMPUTED)[0]
