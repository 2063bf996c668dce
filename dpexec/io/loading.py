"""Reading variables from files of Paddle 1.x."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import EnforceNotMet, see
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.formats import streams
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Parameter, Variable
from dpexec.io.atomic import stored
from dpexec.io.selection import is_parameter, is_persistable, valid_program
from dpexec.io.variables import put

__all__ = ["load_params", "load_persistables", "load_vars"]


def load_vars(
    executor: Any,
    dirname: str | None,
    main_program: Program | None = None,
    vars: Iterable[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | bytes | None = None,
) -> None:
    """Load variables saved by :func:`save_vars` or Paddle 1.x, on all devices; all or none.

    Args:
        executor: ignored; accepted for compatibility.
        dirname: the directory; None if ``filename`` is the content itself.
        main_program: program of the variables; None takes the default main program.
        vars: the variables; None takes all for which ``predicate`` is true.
        predicate: function of a variable.
        filename: the file with all variables; None for a file per variable.

    Raises:
        EnforceNotMet: a file is missing or damaged; the error names file and variable.
        RuntimeError: a parameter has another shape than in the file.
        ValueError: neither a directory nor content is given.

    See Also:
        :func:`~dpexec.io.load_params`: parameters.
        :func:`~dpexec.io.load_persistables`: all that training needs.
        :func:`~dpexec.io.load_inference_model`: a program with its parameters.

    Example:
        >>> import dpexec as fluid, tempfile
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     y = fluid.layers.fc(fluid.data("x", [None, 2]), size=1)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> weights = lambda variable: variable.name.endswith(".w_0")
        >>> with fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as folder:
        ...     _ = exe.run(startup)
        ...     fluid.io.save_vars(exe, folder, main, predicate=weights)
        ...     before = fluid.io.get_parameter_value_by_name("fc_0.w_0", exe, main)
        ...     _ = exe.run(startup)  # other numbers
        ...     fluid.io.load_vars(exe, folder, main, predicate=weights)
        ...     bool((fluid.io.get_parameter_value_by_name("fc_0.w_0", exe, main) == before).all())
        True
    """
    program = valid_program(main_program)
    chosen = filter(predicate, program.list_vars()) if vars is None else vars
    for name, value in read_vars(dirname, chosen, filename).items():
        put(name, value)


def read_vars(
    dirname: str | None, variables: Iterable[Variable], filename: str | bytes | None
) -> dict[str, LoDTensor | SelectedRows]:
    """Values of variables by name, from files; arguments and errors as for :func:`load_vars`."""
    wanted = {var.name: var for var in variables if var.type != VarType.RAW}
    if filename is None and dirname is None:
        raise ValueError("The directory path and params cannot be None at the same time.")
    if filename is None:
        found = {name: _read_one(str(dirname), var) for name, var in wanted.items()}
    else:
        found = _read_all(dirname, filename, [wanted[name] for name in sorted(wanted)])
    for name, value in found.items():
        shape = np.shape(value.numpy()) if isinstance(value, LoDTensor) else None
        check_shape(wanted[name], shape, _place_of(dirname, name if filename is None else filename))
    return found


def _place_of(dirname: str | None, name: str | bytes) -> str:
    return "in memory" if isinstance(name, bytes) else os.fspath(stored(dirname or "", name))


def check_shape(var: Variable, shape: tuple[int, ...] | None, path: Any) -> None:
    """Check that a loaded value fits a parameter.

    Args:
        var: the parameter.
        shape: shape of the loaded value; None if it is no tensor.
        path: the file that it was loaded from.

    Raises:
        RuntimeError: the shapes differ.
    """
    if isinstance(var, Parameter) and shape is not None and shape != var.shape:
        problem = (
            f"Variable's shape does not match, the Program requires a parameter with the shape of "
            f"({var.shape}), while the loaded parameter (namely [ {var.name} ]) has a shape of "
            f"({shape}), in file {path}."
        )
        raise see("parameters-of-another-shape", RuntimeError(problem))


def _open(directory: str | None, name: str, variable: str) -> BinaryIO:
    path = stored(directory or "", name)
    try:
        return open(path, "rb")
    except OSError as error:
        problem = f"cannot read file {path} for variable {variable}: {error.strerror}"
        raise see("parameters-that-are-not-in-the-folder", EnforceNotMet(problem)) from None


def _read_one(directory: str, var: Variable) -> LoDTensor | SelectedRows:
    with _open(directory, var.name, var.name) as file:
        value = streams.read(file, var.type, var.name, file.name)
        check_end(file, var.name, file.name)
        return value


def _read_all(
    directory: str | None, filename: str | bytes, variables: list[Variable]
) -> dict[str, LoDTensor | SelectedRows]:
    if not variables:
        return {}
    last = variables[-1].name
    if isinstance(filename, bytes):
        file: BinaryIO = io.BytesIO(filename)
    else:
        file = _open(directory, filename, variables[0].name)
    path = _place_of(directory, filename)
    with file:
        found = {var.name: streams.read(file, var.type, var.name, path) for var in variables}
        check_end(file, last, path)
    return found


def check_end(file: BinaryIO, name: str, path: Any) -> None:
    """Check that nothing follows the latest variable that was read.

    Args:
        file: the open file.
        name: the variable.
        path: the file's name, for the error.

    Raises:
        EnforceNotMet: the file goes on.
    """
    if file.read(1):
        raise EnforceNotMet(
            f"file {path} goes on after variable {name}: it holds something else than asked for"
        )


def load_params(
    executor: Any,
    dirname: str | None,
    main_program: Program | None = None,
    filename: str | bytes | None = None,
) -> None:
    """Load all parameters.

    Args:
        executor: as for :func:`load_vars`.
        dirname: as for :func:`load_vars`.
        main_program: as for :func:`load_vars`.
        filename: as for :func:`load_vars`.

    Raises:
        TypeError: ``main_program`` is no program, or ``filename`` no name of a file.
        EnforceNotMet: a file is missing or damaged, or has another shape than its variable.

    See Also:
        :func:`~dpexec.io.load_persistables`: all that training needs.
        :func:`~dpexec.io.load_vars`: chosen variables.
        :func:`~dpexec.io.load_inference_model`: a program with its parameters.

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
        ...     before = fluid.io.get_parameter_value_by_name("fc_0.w_0", exe, main)
        ...     _ = exe.run(startup)  # other numbers
        ...     fluid.io.load_params(exe, folder, main)
        ...     bool((fluid.io.get_parameter_value_by_name("fc_0.w_0", exe, main) == before).all())
        True
    """
    load_vars(executor, dirname, main_program, None, is_parameter, filename)


def load_persistables(
    executor: Any,
    dirname: str | None,
    main_program: Program | None = None,
    filename: str | bytes | None = None,
) -> None:
    """Load all persistable variables.

    Args:
        executor: as for :func:`load_vars`.
        dirname: as for :func:`load_vars`.
        main_program: as for :func:`load_vars`.
        filename: as for :func:`load_vars`.

    Raises:
        TypeError: ``main_program`` is no program, or ``filename`` no name of a file.
        EnforceNotMet: a file is missing or damaged, or has another shape than its variable.

    See Also:
        :func:`~dpexec.io.load_params`: parameters.
        :func:`~dpexec.io.load_vars`: chosen variables.
        :func:`~dpexec.io.load_inference_model`: a program with its parameters.

    Example:
        >>> import dpexec as fluid, tempfile
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     x = fluid.data("x", [None, 2])
        ...     y = fluid.layers.fc(x, size=1)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as folder:
        ...     _ = exe.run(startup)
        ...     fluid.io.save_persistables(exe, folder, main, filename="all")
        ...     before = fluid.io.get_parameter_value_by_name("fc_0.w_0", exe, main)
        ...     _ = exe.run(startup)  # other numbers
        ...     fluid.io.load_persistables(exe, folder, main, filename="all")
        ...     bool((fluid.io.get_parameter_value_by_name("fc_0.w_0", exe, main) == before).all())
        True
    """
    load_vars(executor, dirname, main_program, None, is_persistable, filename)
