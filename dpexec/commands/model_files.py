"""Reads models and parameters from files of all formats that ``dpexec convert`` knows."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpexec.commands import CommandError
from dpexec.commands.parameter_files import has_parameters_only, read_parameters
from dpexec.engine.core.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    import numpy as np

    from dpexec.engine.ir.program import Program

__all__ = [
    "FORMATS",
    "Arrays",
    "Model",
    "detect",
    "explained",
    "prefix_of",
    "program_of",
    "read",
    "safetensors_library",
]

Arrays = dict[str, "np.ndarray[Any, Any]"]

FORMATS = ("paddle", "fluid", "onnx", "safetensors", "numpy")
"""Directories of ``save_inference_model``, files of ``fluid.save``, and those of others."""

_ENDINGS = {
    ".onnx": "onnx",
    ".safetensors": "safetensors",
    ".npz": "numpy",
    ".pdparams": "fluid",
    ".pdmodel": "fluid",
    ".pdopt": "fluid",
}
_OF_FLUID = (".pdparams", ".pdopt", ".pdmodel")


@dataclass
class Model:
    """What a file holds.

    Args:
        path: where it was found.
        format: one of :data:`FORMATS`.
        program: None where there are parameters only.
        feeds: names of the variables to feed; None where the file does not say.
        fetches: names of the variables to fetch; None where the file does not say.
        arrays: the values of persistable variables.
        state: those that belong to an optimizer.
    """

    path: Path
    format: str
    program: Program | None = None
    feeds: list[str] | None = None
    fetches: list[str] | None = None
    arrays: Arrays = field(default_factory=dict)
    state: Arrays = field(default_factory=dict)

    def __str__(self) -> str:
        size = sum(array.nbytes for array in self.arrays.values())
        parts = [f"{len(self.arrays)} arrays, {size:,} bytes"]
        if self.program is not None:
            count = sum(len(block.ops) for block in self.program.blocks)
            parts.insert(0, f"{count} operators")
        return f"{self.path} ({self.format}: {', '.join(parts)})"


# ---- which format


def detect(path: Path, new: bool = False) -> str:
    """The format of a file or directory, from its name and content.

    Args:
        path: the file or directory.
        new: whether it will be written; then only its name counts.

    Raises:
        CommandError: the format cannot be told, or there is nothing.
    """
    ending = path.suffix.lower()
    if new:
        if ending and ending not in _ENDINGS and not path.is_dir():
            raise CommandError(f"{path.name}: no format ends with {ending}; choose one with --to")
        return _ENDINGS.get(ending, "paddle")
    if ending in _ENDINGS and not path.is_dir():
        return _ENDINGS[ending]
    if path.is_dir():
        return "paddle"
    if any(path.with_name(path.name + end).exists() for end in _OF_FLUID):
        return "fluid"
    if not path.exists():
        raise CommandError(f"{path} does not exist")
    with open(path, "rb") as file:
        head = file.read(16)
    if head.startswith(b"PK\x03\x04"):
        return "numpy"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size:
        return "safetensors"
    return "paddle"


def prefix_of(path: Path) -> Path:
    """The common part of the names of ``fluid.save``'s files."""
    return path.with_suffix("") if path.suffix in _OF_FLUID else path


# ---- reading


@contextmanager
def explained(path: Path) -> Any:
    """Errors of reading and writing as errors of the command."""
    from dpexec.engine.core.errors import EnforceNotMet

    try:
        yield
    except EnforceNotMet as error:
        raise CommandError(str(error).strip()) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(f"{error.filename or path}: {reason}") from error
    except (ValueError, AssertionError) as error:
        raise CommandError(f"{path}: {error}") from error


def read(
    path: Path,
    format: str | None = None,
    model_file: str | None = None,
    params_file: str | None = None,
    program: Program | None = None,
) -> Model:
    """Read a model, or parameters.

    Args:
        path: a file, a directory, or the common part of the names of ``fluid.save``'s files.
        format: one of :data:`FORMATS`; None finds it.
        model_file: file of the program in a directory, ``__model__`` by default.
        params_file: file of all parameters in a directory; by default the only other file of a
            directory that has not a file for each.
        program: whose parameters they are, where files do not say their names.

    Raises:
        CommandError: it cannot be read, or its format cannot be told.
    """
    from dpexec.engine.core.scope import Scope, scope_guard

    found = format or detect(path)
    readers: dict[str, Callable[[], Model]] = {
        "paddle": lambda: _read_paddle(path, model_file, params_file, program),
        "fluid": lambda: _read_fluid(path),
        "onnx": lambda: _read_onnx(path),
        "safetensors": lambda: Model(path, "safetensors", arrays=_read_safetensors(path)),
        "numpy": lambda: Model(path, "numpy", arrays=_read_numpy(path)),
    }
    with explained(path), scope_guard(Scope()):
        return readers[found]()


def program_of(path: Path) -> Program:
    """The program of a model, without its parameters where these lie in other files.

    Raises:
        CommandError: there are parameters only, or the files cannot be read.
    """
    from dpexec.io.inference import read_program

    program = None
    found = detect(path)
    with explained(path):
        if found == "paddle" and not has_parameters_only(path):
            folder, name = _program_file(path, None)
            return read_program(str(folder), name)
        if found == "fluid":
            prefix = prefix_of(path)
            file = prefix.with_name(f"{prefix.name}.pdmodel")
            return read_program(str(file.parent), file.name)
    if found == "onnx":
        program = read(path, found).program
    if program is None:
        raise CommandError(f"{path} has parameters only: there is nothing to draw")
    return program


def _program_file(path: Path, model_file: str | None) -> tuple[Path, str]:
    """The directory of a model, and the name of the program's file."""
    folder = path
    if not path.is_dir():
        folder, model_file = path.parent, model_file or path.name
    name = model_file or "__model__"
    if not (folder / name).exists():
        files = sorted(p.name for p in folder.iterdir())
        raise CommandError(
            f"{folder} has no {name}, the file of a program "
            f"(there are {', '.join(files[:8]) or 'no files'}): name it, as with --model-file, and "
            "all parameters in one file, as with --params-file"
        )
    return folder, name


def _read_paddle(
    path: Path, model_file: str | None, params_file: str | None, owner: Program | None
) -> Model:
    from dpexec.io.inference import load_inference_model, read_program
    from dpexec.io.selection import get_program_persistable_vars

    if model_file is None and has_parameters_only(path):
        return Model(path, "paddle", arrays=read_parameters(path, owner))
    folder, name = _program_file(path, model_file)
    program = read_program(str(folder), name)
    names = [var.name for var in get_program_persistable_vars(program)]
    if params_file is None and names and not (folder / names[0]).exists():
        params_file = _only_other(folder, name)
        if params_file is None:
            ports = program.desc.get_feed_target_names(), program.desc.get_fetch_target_names()
            return Model(path, "paddle", program, *ports)
    program, feeds, fetches = load_inference_model(str(folder), None, name, params_file)
    fetched = [var.name for var in fetches]
    return Model(path, "paddle", program, feeds or None, fetched or None, _in_scope(names))


def _only_other(folder: Path, program: str) -> str | None:
    """The file of all parameters; None if there are no other files than the program's."""
    others = [p.name for p in folder.iterdir() if p.is_file() and p.name != program]
    others = [name for name in others if not name.startswith(".")]
    if len(others) > 1:
        raise CommandError(
            f"{folder} has no file for each parameter: name the one with all by --params-file "
            f"(there are {', '.join(sorted(others)[:8])})"
        )
    return others[0] if others else None


def _in_scope(names: Iterable[str]) -> Arrays:
    import numpy as np

    from dpexec.io.variables import value_of

    return {name: np.array(value_of(name)) for name in names}


def _read_fluid(path: Path) -> Model:
    from dpexec.io.inference import read_program
    from dpexec.io.pickles import read_arrays

    prefix = prefix_of(path)
    model = Model(path, "fluid")
    files = {end: prefix.with_name(prefix.name + end) for end in _OF_FLUID}
    if not any(file.exists() for file in files.values()):
        raise CommandError(f"there is no {prefix}.pdparams, .pdopt or .pdmodel")
    if files[".pdmodel"].exists():
        model.program = read_program(str(prefix.parent), files[".pdmodel"].name)
        model.feeds = model.program.desc.get_feed_target_names() or None
        model.fetches = model.program.desc.get_fetch_target_names() or None
    for ending, arrays in ((".pdparams", model.arrays), (".pdopt", model.state)):
        if files[ending].exists():
            arrays.update(read_arrays(files[ending]))
    return model


def _read_onnx(path: Path) -> Model:
    try:
        from dpexec.onnx import load
    except ImportError as error:
        raise CommandError(str(error)) from error
    from dpexec.io.selection import get_program_persistable_vars

    program, feeds, fetches = load(path)
    names = [var.name for var in get_program_persistable_vars(program)]
    return Model(path, "onnx", program, feeds, [v.name for v in fetches], _in_scope(names))


def _read_numpy(path: Path) -> Arrays:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, ValueError, AttributeError, EOFError) as error:
        raise CommandError(f"{path} is no archive of NumPy arrays: {error}") from error


def safetensors_library() -> Any:
    """The package ``safetensors``, with its part for NumPy.

    Raises:
        CommandError: it is not installed.
    """
    try:
        import safetensors.numpy
    except ImportError as error:
        raise CommandError("safetensors files need pip install dpexec[onnx]") from error
    return safetensors


def _read_safetensors(path: Path) -> Arrays:
    library = safetensors_library()
    try:
        found: Arrays = library.numpy.load_file(path)
    except (library.SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise CommandError(f"{path} is no file of safetensors: {error}") from error
    return found
