"""``fluid.save`` and ``fluid.load``: parameters, optimizer state and program in separate files.

``.pdparams`` and ``.pdopt`` are pickles of dicts of arrays, as Paddle 1.8 writes them. Only arrays
and plain containers are unpickled, so a file cannot make the reader run code.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.scope import global_scope
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.formats import streams
from dpexec.engine.ir.callsite import warn
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.executor import Executor
from dpexec.io.atomic import stored, write_files
from dpexec.io.loading import check_end, check_shape, load_vars
from dpexec.io.pickles import Arrays, read_arrays, write_arrays
from dpexec.io.selection import is_belong_to_optimizer, is_parameter, is_persistable
from dpexec.io.variables import put, value_of

__all__ = [
    "load",
    "load_program_state",
    "save",
    "set_program_state",
]

_log = logging.getLogger(__name__)
_ENDINGS = (".pdparams", ".pdopt", ".pdmodel")


def _of_tensors(array: np.ndarray[Any, Any], name: str, path: Any) -> np.ndarray[Any, Any]:
    """An array in native byte order; an error if tensors do not support its type."""
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    try:
        as_var_type(array.dtype)
    except (TypeError, ValueError) as error:
        raise EnforceNotMet(f"file {path} is damaged at variable {name}: {error}") from None
    return array


def _array(var: Variable) -> np.ndarray[Any, Any]:
    return np.array(value_of(var.name))


def save(program: Program, model_path: str) -> None:
    """Save parameters, optimizer state and the program: ``.pdparams``, ``.pdopt``, ``.pdmodel``.

    A killed process leaves the three old files or the three new ones.

    Args:
        program: the program to save; values are taken from the global scope.
        model_path: directory and common prefix of the file names.

    Raises:
        AssertionError: the path is a directory without a prefix of file names.
        EnforceNotMet: a variable has no value.

    See Also:
        :func:`~dpexec.load`: reads them.
        :func:`~dpexec.load_program_state`: as a dict of arrays.
        :func:`~dpexec.set_program_state`: from such a dict.

    Example:
        >>> import dpexec as fluid, tempfile
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     x = fluid.data("x", [None, 2])
        ...     y = fluid.layers.fc(x, size=1)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as folder:
        ...     _ = exe.run(startup)
        ...     fluid.save(main, folder + "/model")
        ...     sorted(fluid.load_program_state(folder + "/model"))
        ['fc_0.b_0', 'fc_0.w_0']
    """
    directory, base = os.path.split(model_path)
    if not base:
        raise AssertionError(
            "The input model_path MUST be format of dirname/filename, but received "
            f"{model_path!r}, which has no file name"
        )
    variables = list(program.list_vars())
    params = {var.name: _array(var) for var in variables if is_parameter(var)}
    others = {var.name: _array(var) for var in variables if is_belong_to_optimizer(var)}
    model = program.desc.serialize_to_string()
    writers: dict[str, Callable[[BinaryIO], Any]] = {
        base + ".pdparams": partial(write_arrays, arrays=params),
        base + ".pdopt": partial(write_arrays, arrays=others),
        base + ".pdmodel": lambda file: file.write(model),
    }
    write_files(directory or ".", writers)


def _prefix(model_path: str) -> str:
    for ending in _ENDINGS:
        if model_path.endswith(ending):
            return model_path.removesuffix(ending)
    return model_path


def _file(prefix: str, ending: str) -> Any:
    directory, base = os.path.split(prefix)
    return stored(directory or ".", base + ending)


def load(
    program: Program,
    model_path: str,
    executor: Executor | None = None,
    var_list: Iterable[Variable] | None = None,
) -> None:
    """Load files written by :func:`save` or a ``fluid.io.save_*`` function, here or in Paddle.

    Args:
        program: the program whose variables are loaded into the global scope; all or none.
        model_path: the path given to :func:`save`, or a directory or file of ``fluid.io.save_*``.
        executor: needed for files of ``fluid.io.save_*``, as in fluid.
        var_list: the variables in one file of ``fluid.io.save_*``.

    Raises:
        AssertionError: a variable or the optimizer's file is missing.
        EnforceNotMet: a file is damaged.
        FileNotFoundError: there are no saved files at this path.
        RuntimeError: a parameter's shape differs from the file's.
        ValueError: ``executor`` or ``var_list`` is required but missing.

    See Also:
        :func:`~dpexec.save`: parameters, optimizer and program in three files.
        :func:`~dpexec.load_program_state`: as a dict of arrays.
        :func:`~dpexec.set_program_state`: from such a dict.

    Example:
        >>> import dpexec as fluid, tempfile
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     x = fluid.data("x", [None, 2])
        ...     y = fluid.layers.fc(x, size=1)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as folder:
        ...     _ = exe.run(startup)
        ...     fluid.save(main, folder + "/model")
        ...     before = fluid.io.get_parameter_value_by_name("fc_0.w_0", exe, main)
        ...     _ = exe.run(startup)  # other numbers
        ...     fluid.load(main, folder + "/model", exe)
        ...     bool((fluid.io.get_parameter_value_by_name("fc_0.w_0", exe, main) == before).all())
        True
    """
    if executor is not None and not isinstance(executor, Executor):
        raise AssertionError(f"executor must be an Executor, not {executor!r}")
    prefix = _prefix(model_path)
    if not _file(prefix, ".pdparams").exists():
        _load_streams(program, model_path, executor, var_list)
        return
    variables = list(program.list_vars())
    found: dict[str, LoDTensor] = {}
    for ending, chosen in (
        (".pdparams", list(filter(is_parameter, variables))),
        (".pdopt", list(filter(is_belong_to_optimizer, variables))),
    ):
        if not chosen:
            continue
        path = _file(prefix, ending)
        if not path.exists():
            raise AssertionError(f"Optimizer file [{path}] not exits")
        arrays = read_arrays(path)
        for var in chosen:
            if var.name not in arrays:
                raise AssertionError(f"Can not find [{var.name}] in model file [{path}]")
            check_shape(var, arrays[var.name].shape, path)
            tensor = found[var.name] = LoDTensor()
            tensor.array = _of_tensors(arrays[var.name], var.name, path)
    for name, tensor in found.items():
        put(name, tensor)


def _load_streams(
    program: Program,
    model_path: str,
    executor: Executor | None,
    var_list: Iterable[Variable] | None,
) -> None:
    if executor is None:
        raise ValueError(
            f"there is no file {_prefix(model_path)}.pdparams, which fluid.save writes; "
            "executor is required when loading model file saved with "
            "[ save_params, save_persistables, save_vars ]"
        )
    if os.path.isdir(model_path):
        files = set(saved_files(model_path))
        chosen = [var for var in program.list_vars() if var.name in files]
        unused = sorted(files - {var.name for var in chosen})
        if unused:
            _log.warning("variable file [ %s ] not used", " ".join(unused))
        load_vars(executor, model_path, program, chosen)
        return
    directory, base = os.path.split(model_path)
    _check_stored(model_path)
    if var_list is None:
        raise ValueError(
            "var_list is required when loading model file saved with "
            "[ save_params, save_persistables, save_vars ]"
        )
    chosen = list(var_list)
    names = {var.name for var in program.list_vars()}
    for var in chosen:
        if var.name not in names:
            raise LookupError(f"loaded var [{var.name}] is not in program variable list")
    load_vars(executor, directory or ".", program, chosen, filename=base)


def _check_stored(model_path: str) -> None:
    directory, base = os.path.split(model_path)
    if not stored(directory or ".", base).exists():
        raise FileNotFoundError(f"there is neither {_prefix(model_path)}.pdparams nor {model_path}")


def saved_files(directory: str) -> list[str]:
    """Names of all files in a directory and in those in it, of the latest complete save."""
    found = []
    for home in (directory, os.path.join(directory, ".dpexec-saved")):
        for folder, folders, names in os.walk(home):
            folders[:] = [name for name in folders if not name.startswith(".dpexec-")]
            found += [os.path.relpath(os.path.join(folder, name), home) for name in names]
    return found


def load_program_state(model_path: str, var_list: Iterable[Variable] | None = None) -> Arrays:
    """Read saved arrays as a dict by name, without writing to a scope.

    Args:
        model_path: as for :func:`load`.
        var_list: the variables in one file of ``fluid.io.save_*``; by default all saved variables.

    Returns:
        Arrays by the names of their variables.

    Raises:
        EnforceNotMet: a file is missing or damaged, or holds more than ``var_list``.
        FileNotFoundError: there are no saved files at this path.
        ValueError: ``var_list`` is required but missing.

    See Also:
        :func:`~dpexec.save`: parameters, optimizer and program in three files.
        :func:`~dpexec.load`: reads them.
        :func:`~dpexec.set_program_state`: from such a dict.

    Example:
        >>> import dpexec as fluid, tempfile
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     y = fluid.layers.fc(fluid.data("x", [None, 2]), size=1)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as folder:
        ...     _ = exe.run(startup)
        ...     fluid.save(main, folder + "/model")
        ...     state = fluid.load_program_state(folder + "/model")
        >>> {name: value.shape for name, value in sorted(state.items())}
        {'fc_0.b_0': (1,), 'fc_0.w_0': (2, 1)}
    """
    prefix = _prefix(model_path)
    if _file(prefix, ".pdparams").exists():
        state = read_arrays(_file(prefix, ".pdparams"))
        if _file(prefix, ".pdopt").exists():
            state.update(read_arrays(_file(prefix, ".pdopt")))
        return state
    if os.path.isdir(model_path):
        wanted = saved_files(model_path) if var_list is None else [var.name for var in var_list]
        return {name: _read(stored(model_path, name), [name])[name] for name in wanted}
    _check_stored(model_path)
    if var_list is None:
        raise ValueError("var_list can not be None when model_path is a file type")
    directory, base = os.path.split(model_path)
    return _read(stored(directory or ".", base), sorted(var.name for var in var_list))


def _read(path: Any, names: list[str]) -> Arrays:
    try:
        with open(path, "rb") as file:
            tensors = {n: streams.read(file, VarType.LOD_TENSOR, n, path) for n in names}
            if names:
                check_end(file, names[-1], path)
    except OSError as error:
        raise EnforceNotMet(
            f"cannot read file {path} for variable {names[0]}: {error.strerror}"
        ) from None
    return {name: np.array(tensor) for name, tensor in tensors.items()}


def set_program_state(program: Program, state_dict: Arrays) -> None:
    """Write arrays into the persistable variables of a program, in the global scope.

    Args:
        program: the program; its startup program must have been run.
        state_dict: arrays by name; names that the program does not have give a warning.

    Raises:
        AssertionError: a variable has no value yet, or an array has another shape or type.

    See Also:
        :func:`~dpexec.save`: parameters, optimizer and program in three files.
        :func:`~dpexec.load`: reads them.
        :func:`~dpexec.load_program_state`: as a dict of arrays.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     y = fluid.layers.fc(fluid.data("x", [None, 2]), size=1)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     _ = exe.run(startup)
        ...     fluid.set_program_state(main, {"fc_0.b_0": np.array([7], "float32")})
        ...     fluid.io.get_parameter_value_by_name("fc_0.b_0", exe, main)
        array([7.], dtype=float32)
    """
    known = {var.name for var in program.list_vars() if is_persistable(var)}
    for name in sorted(known):
        holder = global_scope().find_var(name)
        if holder is None:
            raise AssertionError(
                f"Variable [ {name} ] Not found, Please make sure run startup program"
            )
        if name not in state_dict:
            continue
        old, new = np.asarray(holder.get_tensor()), state_dict[name]
        for what in ("shape", "dtype"):
            if getattr(old, what) != getattr(new, what):
                raise AssertionError(
                    f"Parameter's {what} does not match, the Program requires a parameter with a "
                    f"{what} of ({getattr(old, what)}), while the loaded parameter (namely "
                    f"[ {name} ]) has a {what} of ({getattr(new, what)})."
                )
    for name in sorted(known.intersection(state_dict)):
        tensor = LoDTensor()
        tensor.array = np.asarray(state_dict[name])
        put(name, tensor)
    unused = [name for name in state_dict if name not in known]
    if unused:
        warn(
            "This list is not set, Because of Paramerter not found in program. There are: "
            + " ".join(unused)
        )
