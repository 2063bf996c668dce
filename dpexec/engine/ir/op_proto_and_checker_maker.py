"""``core.op_proto_and_checker_maker``: roles of operators, and their attributes' names.

A role says which part of a training step an operator belongs to. Source: Paddle 1.8.
"""

from __future__ import annotations

import enum

__all__ = [
    "OpRole",
    "kOpDeviceAttrName",
    "kOpNameScopeAttrName",
    "kOpRoleAttrName",
    "kOpRoleVarAttrName",
]


class OpRole(enum.IntEnum):
    """Bits of the attribute ``op_role``; ``Loss`` comes with ``Forward`` or ``Backward``."""

    Forward = 0
    Backward = 1
    Optimize = 2
    RPC = 4
    Dist = 8
    LRSched = 16
    Loss = 256


def kOpRoleAttrName() -> str:
    """The attribute that holds the role."""
    return "op_role"


def kOpRoleVarAttrName() -> str:
    """The attribute that holds parameters and gradients, as ``[param, grad, ...]``."""
    return "op_role_var"


def kOpNameScopeAttrName() -> str:
    """The attribute that holds the name scope."""
    return "op_namescope"


def kOpDeviceAttrName() -> str:
    """The attribute that holds the device of a pipeline."""
    return "op_device"
