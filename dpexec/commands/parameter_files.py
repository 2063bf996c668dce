"""Parameters without a program, as ``save_params`` and ``save_persistables`` write them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpexec.commands import CommandError

if TYPE_CHECKING:
    import numpy as np

    from dpexec.engine.ir.program import Program

__all__ = ["has_parameters_only", "read_parameters"]

_VERSION = bytes(4)  # with which tensors begin, and no program does


def has_parameters_only(path: Path) -> bool:
    """Whether a file, or every file of a directory, begins as those of parameters do."""
    files = list(_files(path).values()) if path.is_dir() else [path]
    return bool(files) and all(_begins(file) for file in files)


def _files(folder: Path) -> dict[str, Path]:
    """Files of a directory and of those in it, as names of variables may have slashes."""
    from dpexec.io.atomic import stored
    from dpexec.io.checkpoint import saved_files

    names = sorted(set(saved_files(str(folder))))
    return {n: stored(folder, n) for n in names if not Path(n).name.startswith(".")}


def _begins(file: Path) -> bool:
    with open(file, "rb") as stream:
        return stream.read(len(_VERSION)) == _VERSION


def read_parameters(path: Path, program: Program | None) -> dict[str, np.ndarray[Any, Any]]:
    """Read a directory with a file for each variable, or a file with all.

    Args:
        path: the directory or the file.
        program: tells the names in a file with all, which are those of its persistable variables
            or of its parameters, in order.

    Raises:
        CommandError: the names cannot be told.
        EnforceNotMet: a file is damaged.
    """
    if not path.is_dir():
        return _named(path, _read(path), program)
    files = _files(path)
    if len(files) == 1:
        [file] = files.values()
        return _named(file, _read(file), program)
    found = {}
    for name, file in files.items():
        arrays = _read(file)
        if len(arrays) != 1:
            raise CommandError(f"{file} holds {len(arrays)} parameters, other files one each")
        found[name] = arrays[0]
    return found


def _read(file: Path) -> list[np.ndarray[Any, Any]]:
    """All tensors of a file."""
    import numpy as np

    from dpexec.engine.core.dtypes import VarType
    from dpexec.engine.formats import streams

    found: list[np.ndarray[Any, Any]] = []
    size = file.stat().st_size
    with open(file, "rb") as stream:
        while stream.tell() < size:
            name = f"number {len(found) + 1}"
            found.append(np.array(streams.read(stream, VarType.LOD_TENSOR, name, file)))
    return found


def _named(
    file: Path, arrays: list[np.ndarray[Any, Any]], program: Program | None
) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a file by name."""
    from dpexec.io.selection import get_program_persistable_vars

    if program is None:
        if len(arrays) == 1:
            return {file.name: arrays[0]}
        raise CommandError(
            f"{file} holds {len(arrays)} parameters, but not their names: name a model that has "
            "their program with --program"
        )
    persistable = {var.name for var in get_program_persistable_vars(program)}
    for names in (persistable, persistable & _read_forward(program)):
        if len(names) == len(arrays):
            return dict(zip(sorted(names), arrays, strict=True))
    raise CommandError(
        f"{file} holds {len(arrays)} parameters, the program has {len(persistable)}: which is "
        "which cannot be told"
    )


def _read_forward(program: Program) -> set[str]:
    """The variables that the forward pass reads: not those of an optimizer."""
    from dpexec.engine.ir.roles import FORWARD, LOSS, ROLE

    operators = (op for block in program.blocks for op in block.ops)
    forward = (op for op in operators if op.attrs.get(ROLE, FORWARD) & ~LOSS == FORWARD)
    return {name for op in forward for name in op.input_arg_names}
