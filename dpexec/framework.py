"""``fluid.framework``: programs, variables, parameters and operators."""

from __future__ import annotations

import re
from typing import Any, cast

from dpexec import core as core  # scripts import it from here, too
from dpexec.engine.arguments.converted import as_dtype
from dpexec.engine.core.dtypes import VarType, as_var_type
from dpexec.engine.core.flags import get_flags, set_flags
from dpexec.engine.core.places import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    cuda_pinned_places,
    cuda_places,
    is_compiled_with_cuda,
)
from dpexec.engine.graph.ir_graph import IrGraph as IrGraph
from dpexec.engine.graph.nodes import IrNode as IrNode
from dpexec.engine.graph.nodes import IrOpNode as IrOpNode
from dpexec.engine.graph.nodes import IrVarNode as IrVarNode
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.callsite import device_guard, name_scope
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import (
    Program,
    default_main_program,
    default_startup_program,
    program_guard,
    replace_defaults,
)
from dpexec.engine.ir.roles import grad_name as grad_var_name
from dpexec.engine.ir.variable import Parameter, Variable
from dpexec.engine.strategy.placement import cpu_places

__all__ = [
    "Block",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "Operator",
    "Parameter",
    "Program",
    "Variable",
    "convert_np_dtype_to_dtype_",
    "cpu_places",
    "cuda_pinned_places",
    "cuda_places",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "get_flags",
    "grad_var_name",
    "in_dygraph_mode",
    "is_compiled_with_cuda",
    "name_scope",
    "program_guard",
    "require_version",
    "set_flags",
    "switch_main_program",
    "switch_startup_program",
]

FLUID_VERSION = (1, 8, 5, 0)


EMPTY_VAR_NAME, TEMP_VAR_NAME = "@EMPTY@", "@TEMP@"
GRAD_VAR_SUFFIX, ZERO_VAR_SUFFIX = "@GRAD", "@ZERO"
CONTROL_DEP_VAR_PREFIX = "__control_var"


def switch_main_program(program: Program) -> Program:
    """Replace the default main program and return the old one.

    :func:`program_guard` does so for a ``with`` block.

    Args:
        program: the program that layers append to from now on.

    Returns:
        The program that it replaces.

    Raises:
        TypeError: it is no program.

    Example:
        >>> import dpexec as fluid
        >>> mine = fluid.Program()
        >>> before = fluid.framework.switch_main_program(mine)
        >>> fluid.default_main_program() is mine
        True
        >>> _ = fluid.framework.switch_main_program(before)
    """
    _require_program(program, "switch_main_program")
    (old, _) = replace_defaults(program, None)
    return cast("Program", old)


def switch_startup_program(program: Program) -> Program:
    """Replace the default startup program and return the old one.

    :func:`program_guard` does so for a ``with`` block.

    Args:
        program: the program that initialisers append to from now on.

    Returns:
        The program that it replaces.

    Raises:
        TypeError: it is no program.

    Example:
        >>> import dpexec as fluid
        >>> mine = fluid.Program()
        >>> before = fluid.framework.switch_startup_program(mine)
        >>> fluid.default_startup_program() is mine
        True
        >>> _ = fluid.framework.switch_startup_program(before)
    """
    _require_program(program, "switch_startup_program")
    (_, old) = replace_defaults(None, program)
    return cast("Program", old)


def _require_program(program: Any, function: str) -> None:
    if not isinstance(program, Program):
        raise TypeError(f"{function} takes a Program, but received {type(program).__name__}")


def dtype_is_floating(dtype: Any) -> bool:
    """Whether a data type is one of float16, float32 and float64.

    Args:
        dtype: as for :func:`~dpexec.framework.convert_np_dtype_to_dtype_`, or a ``VarType``.

    Returns:
        The answer.

    Raises:
        TypeError: ``dtype`` is no type of tensors.

    Example:
        >>> from dpexec import framework
        >>> framework.dtype_is_floating("float16"), framework.dtype_is_floating("int64")
        (True, False)
    """
    return as_var_type(dtype) in (VarType.FP16, VarType.FP32, VarType.FP64)


def _dygraph_tracer() -> None:
    """Always None: programs are not traced."""


def _current_expected_place() -> None:
    """Always None: the executor determines where programs run."""


def convert_np_dtype_to_dtype_(np_dtype: Any) -> VarType:
    """The tensor data type of a NumPy dtype.

    Args:
        np_dtype: a type of NumPy or its name, such as ``"float32"``.

    Returns:
        The type, such as ``VarType.FP32``.

    Raises:
        TypeError: there is no such type.

    Example:
        >>> import dpexec as fluid
        >>> found = fluid.framework.convert_np_dtype_to_dtype_("float32")
        >>> found == fluid.core.VarDesc.VarType.FP32
        True
    """
    return as_dtype(np_dtype)


def _get_var(name: str, program: Program | None = None) -> Variable:
    """The variable of this name in a program, by default in the default main program.

    Raises:
        ValueError: there is no such variable.
    """
    return (program or default_main_program()).global_block().var(name)


def in_dygraph_mode() -> bool:
    """Always False: dpexec has no eager mode.

    Returns:
        False.

    Example:
        >>> import dpexec as fluid
        >>> fluid.in_dygraph_mode()  # programs are built, then run
        False
    """
    return False


def require_version(min_version: str, max_version: str | None = None) -> None:
    """Check that 1.8.5, the fluid version that dpexec implements, lies in a range.

    Args:
        min_version: the oldest version that will do, such as ``"1.7.0"``.
        max_version: the newest version that will do; None for any.

    Raises:
        TypeError: a version is not a string.
        ValueError: a version is not of the form "1.6.0".
        Exception: 1.8.5 is outside the range.

    Example:
        >>> import dpexec as fluid
        >>> fluid.require_version("1.6.0")  # raises nothing: dpexec stands for Paddle 1.8
    """
    low = _version(min_version, "min_version")
    high = None if max_version is None else _version(max_version, "max_version")
    if low > FLUID_VERSION or (high is not None and high < FLUID_VERSION):
        raise Exception(
            f"fluid {min_version} to {max_version or 'any'} is required, but dpexec follows 1.8.5"
        )


def _version(text: str, argument: str) -> tuple[int, ...]:
    if not isinstance(text, str):
        raise TypeError(f"{argument} of require_version must be a str, but received {type(text)}")
    if not re.fullmatch(r"\d+(\.\d+){0,3}", text):
        raise ValueError(f"{argument} of require_version must look like '1.6.0', not {text!r}")
    numbers = [int(part) for part in text.split(".")]
    return tuple(numbers + [0] * (4 - len(numbers)))
