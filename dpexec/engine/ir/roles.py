"""Operator roles: which part of a training step an operator belongs to.

``LOSS`` is a flag on top of ``FORWARD`` or ``BACKWARD``.
"""

from __future__ import annotations

from collections.abc import Iterable

from dpexec.engine.core import paddle_names
from dpexec.engine.ir import op_proto_and_checker_maker as maker
from dpexec.engine.ir.op_proto_and_checker_maker import OpRole

FORWARD = OpRole.Forward.value
BACKWARD = OpRole.Backward.value
OPTIMIZE = OpRole.Optimize.value
RPC = OpRole.RPC.value
DIST = OpRole.Dist.value
LR_SCHED = OpRole.LRSched.value
LOSS = OpRole.Loss.value

ROLE = maker.kOpRoleAttrName()
ROLE_VAR = maker.kOpRoleVarAttrName()
NAME_SCOPE = maker.kOpNameScopeAttrName()
DEVICE = maker.kOpDeviceAttrName()

GRAD_SUFFIX = paddle_names.grad_var_suffix()
EMPTY = paddle_names.empty_var_name()
"""Placeholder for an unwanted gradient in a list whose order matters."""

RECOMPUTED = ".subprog_"
"""Part of the names of activations that the backward pass recomputes."""


def present(names: Iterable[str]) -> list[str]:
    """The names of variables, without placeholders."""
    return [name for name in names if name and name != EMPTY]


def grad_name(var_name: str) -> str:
    """The name of the gradient of a variable.

    Args:
        var_name: name of the variable.

    Returns:
        The name with ``@GRAD`` behind it.

    Example:
        >>> import dpexec as fluid
        >>> fluid.framework.grad_var_name("fc_0.w_0")
        'fc_0.w_0@GRAD'
    """
    return var_name + GRAD_SUFFIX


def variable_name(grad: str) -> str:
    """The variable that a gradient of a backward pass belongs to."""
    return grad.partition(GRAD_SUFFIX)[0].rpartition("grad/")[2]


def part_of_grad(name: str) -> str:
    """The name, in a ParallelDo's gradient block, of one device's rows of an output's gradient."""
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
    """The forward variable that a recomputed one equals; other names are returned unchanged."""
    return name.partition(RECOMPUTED)[0]
