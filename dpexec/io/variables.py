"""Saving and loading the variables of a program, in one file or in a file for each."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.lod import LoDRankTable
from dpexec.engine.core.scope import Scope, global_scope
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.core.tensors import LoDTensor, LoDTensorArray
from dpexec.engine.core.variable_values import bring_together
from dpexec.engine.formats import streams
from dpexec.engine.ir.callsite import warn
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.io.atomic import write_files
from dpexec.io.selection import is_parameter, is_persistable, valid_program

__all__ = [
    "get_parameter_value",
    "get_parameter_value_by_name",
    "save_params",
    "save_persistables",
    "save_vars",
]


# ---- values in the scope


def value_of(name: str) -> LoDTensor | SelectedRows:
    """The value of a variable in the global scope.

    Raises:
        EnforceNotMet: there is no value, or one of a type that files cannot store.
    """
    holder = global_scope().find_var(name)
    value = None if holder is None else holder.value
    if isinstance(value, (LoDTensorArray, LoDRankTable)):
        kind = type(value).__name__
        raise EnforceNotMet(f"variable {name} holds a {kind}; only tensors and rows can be saved")
    if isinstance(value, SelectedRows) and value.value is not None:
        return value
    if isinstance(value, LoDTensor) and value._is_initialized():
        return value
    raise EnforceNotMet(f"variable {name} has no value to save: run the startup program first")


def put(name: str, value: LoDTensor | SelectedRows, scope: Scope | None = None) -> None:
    """Store a value in a scope, by default the global one, so that all devices see it."""
    scope = global_scope() if scope is None else scope
    holder = scope.find_var(name) or scope.var(name)
    if isinstance(value, SelectedRows):
        rows = holder.get_selected_rows()
        rows.set_rows(value.rows())
        rows.set_height(value.height())
        rows.get_tensor().set(value.get_tensor())
    else:
        tensor = holder.get_tensor()
        tensor.set(value, tensor._place())
        tensor.set_lod(value.lod())


def get_parameter_value(para: Variable, executor: Any) -> np.ndarray[Any, Any]:
    """The value of a parameter in the global scope.

    Args:
        para: the parameter.
        executor: ignored; accepted for compatibility.

    Returns:
        An array of its own.

    Raises:
        AssertionError: the variable is no parameter.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     y = fluid.layers.fc(fluid.data("x", [None, 2]), size=1)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     _ = exe.run(startup)
        ...     fluid.io.get_parameter_value(main.global_block().var("fc_0.b_0"), exe)
        array([0.], dtype=float32)
    """
    if not is_parameter(para):
        raise AssertionError("The input variable is not parameter.")
    return np.array(value_of(para.name))


def get_parameter_value_by_name(
    name: str, executor: Any, program: Program | None = None
) -> np.ndarray[Any, Any]:
    """The value of a parameter by its name, see :func:`get_parameter_value`.

    Args:
        name: name of the parameter.
        executor: ignored; accepted for compatibility.
        program: the program that has the parameter; None for the default main program.

    Returns:
        An array of its own.

    Raises:
        AssertionError: the variable is no parameter.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     x = fluid.data("x", [None, 2])
        ...     y = fluid.layers.fc(x, size=1)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     _ = exe.run(startup)
        ...     fluid.io.get_parameter_value_by_name("fc_0.b_0", exe, main)
        array([0.], dtype=float32)
    """
    return get_parameter_value(valid_program(program).global_block().var(name), executor)


# ---- saving


def save_vars(
    executor: Any,
    dirname: str | None,
    main_program: Program | None = None,
    vars: Iterable[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> bytes | None:
    """Save variables in Paddle 1.x's format; a killed process leaves the old or the new files.

    Args:
        executor: ignored; accepted for compatibility.
        dirname: the directory; None, with ``filename`` None too, returns the bytes instead.
        main_program: program of the variables; None takes the default main program.
        vars: the variables; None takes all for which ``predicate`` is true.
        predicate: function of a variable.
        filename: one file for all, sorted by name; None writes a file per variable.

    Returns:
        The file's content if ``dirname`` is None, else None.

    Raises:
        TypeError: ``filename`` is no string.
        EnforceNotMet: a variable has no value.

    See Also:
        :func:`~dpexec.io.save_params`: parameters.
        :func:`~dpexec.io.save_persistables`: all that training needs.
        :func:`~dpexec.io.save_inference_model`: a part of the program with its parameters.

    Example:
        >>> import dpexec as fluid, os, tempfile
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     x = fluid.data("x", [None, 2])
        ...     y = fluid.layers.fc(x, size=1)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as folder:
        ...     _ = exe.run(startup)
        ...     fluid.io.save_vars(exe, folder, main, predicate=lambda v: v.name.endswith(".w_0"))
        ...     os.listdir(folder)
        ['fc_0.w_0']
    """
    if filename is not None and not (isinstance(filename, str) and filename):
        raise TypeError(f"filename must be the name of a file or None, but is {filename!r:.80}")
    program = valid_program(main_program)
    chosen = list(filter(predicate, program.list_vars())) if vars is None else list(vars)
    if not chosen:
        warn(
            "no variable in your model, please ensure there are any variables in your model to save"
        )
        return None
    names = sorted({var.name for var in chosen if var.type != VarType.RAW})
    bring_together(global_scope(), names)
    values = {name: value_of(name) for name in names}
    if filename is None and dirname is not None:
        writers = {name: partial(_write, values=[value]) for name, value in values.items()}
        write_files(dirname, writers)
        return None
    if dirname is None:
        buffer = io.BytesIO()
        _write(buffer, list(values.values()))
        return buffer.getvalue()
    write_files(dirname, {str(filename): partial(_write, values=list(values.values()))})
    return None


def _write(file: BinaryIO, values: list[LoDTensor | SelectedRows]) -> None:
    for value in values:
        streams.write(file, value)


def save_params(
    executor: Any, dirname: str, main_program: Program | None = None, filename: str | None = None
) -> bytes | None:
    """Save all parameters.

    Args:
        executor: as for :func:`save_vars`.
        dirname: as for :func:`save_vars`.
        main_program: as for :func:`save_vars`.
        filename: as for :func:`save_vars`.

    Returns:
        As :func:`save_vars`.

    Raises:
        TypeError: ``main_program`` is no program, or ``filename`` no name of a file.
        EnforceNotMet: a parameter has no value: run the startup program first.

    See Also:
        :func:`~dpexec.io.save_persistables`: all that training needs.
        :func:`~dpexec.io.save_vars`: chosen variables.
        :func:`~dpexec.io.save_inference_model`: a part of the program with its parameters.

    Example:
        >>> import dpexec as fluid, tempfile
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     x = fluid.data("x", [None, 2])
        ...     y = fluid.layers.fc(x, size=1)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as folder:
        ...     _ = exe.run(startup)
        ...     fluid.io.save_params(exe, folder, main)
        ...     import os
        ...     sorted(os.listdir(folder))
        ['fc_0.b_0', 'fc_0.w_0']
    """
    return save_vars(executor, dirname, main_program, None, is_parameter, filename)


def save_persistables(
    executor: Any, dirname: str, main_program: Program | None = None, filename: str | None = None
) -> bytes | None:
    """Save all persistable variables: parameters, accumulators, counters and learning rates.

    Args:
        executor: as for :func:`save_vars`.
        dirname: as for :func:`save_vars`.
        main_program: as for :func:`save_vars`.
        filename: as for :func:`save_vars`.

    Returns:
        As :func:`save_vars`.

    Raises:
        TypeError: ``main_program`` is no program, or ``filename`` no name of a file.
        EnforceNotMet: a variable has no value: run the startup program first.

    See Also:
        :func:`~dpexec.io.save_params`: parameters.
        :func:`~dpexec.io.save_vars`: chosen variables.
        :func:`~dpexec.io.save_inference_model`: a part of the program with its parameters.

    Example:
        >>> import dpexec as fluid, os, tempfile
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     x = fluid.data("x", [None, 2])
        ...     y = fluid.layers.fc(x, size=1)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as folder:
        ...     _ = exe.run(startup)
        ...     fluid.io.save_persistables(exe, folder, main)
        ...     sorted(os.listdir(folder))  # with an optimizer, its state, too
        ['fc_0.b_0', 'fc_0.w_0']
    """
    return save_vars(executor, dirname, main_program, None, is_persistable, filename)
