"""Writes models and parameters as files of all formats that ``dpexec convert`` knows."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpexec.commands import CommandError
from dpexec.commands.model_files import Arrays, Model, explained, prefix_of, safetensors_library

if TYPE_CHECKING:
    from dpexec.engine.ir.program import Program

__all__ = ["write"]

_PARAMETERS_ONLY = ("safetensors", "numpy")


def write(
    model: Model,
    path: Path,
    format: str,
    feeds: list[str] | None = None,
    fetches: list[str] | None = None,
    params_file: str | None = None,
    opset: int = 17,
) -> None:
    """Write a model, or its parameters; what was there is replaced when all is complete.

    Args:
        model: the model.
        path: a file, or a directory for ``paddle``.
        format: one of :data:`FORMATS`.
        feeds: variables to feed; None takes those of the model.
        fetches: variables to fetch; None takes those of the model.
        params_file: for ``paddle``: a file for all parameters instead of a file for each.
        opset: for ``onnx``: version of the operators.

    Raises:
        CommandError: the format needs what the model does not have, or the file cannot be written.
    """
    from dpexec.engine.core.scope import Scope, scope_guard
    from dpexec.io.atomic import write_files

    with explained(path), scope_guard(Scope()):
        if format in _PARAMETERS_ONLY:
            _require_arrays(model)
            write_files(path.parent, {path.name: partial(_ARCHIVES[format], model.arrays)})
            return
        program = _program_in_scope(model)
        if format == "fluid":
            write_files(path.parent, _fluid_writers(model, program, prefix_of(path).name))
            return
        ports = _ports(model, program, feeds, fetches)
        if format == "paddle":
            _write_paddle(program, path, *ports, params_file)
        else:
            _write_onnx(program, path, *ports, opset)


def _require_arrays(model: Model) -> None:
    if not model.arrays:
        raise CommandError(f"{model.path} has no parameters")


def _write_numpy(arrays: Arrays, file: Any) -> None:
    import numpy as np

    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)


def _write_safetensors(arrays: Arrays, file: Any) -> None:
    import numpy as np

    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    file.write(safetensors_library().numpy.save(plain))


_ARCHIVES = {"numpy": _write_numpy, "safetensors": _write_safetensors}


def _program_in_scope(model: Model) -> Program:
    """The program of a model, when its values are in the scope.

    Raises:
        CommandError: there is no program, or values are missing or do not fit.
    """
    from dpexec.engine.core.tensors import LoDTensor
    from dpexec.io.selection import get_program_persistable_vars
    from dpexec.io.variables import put

    if model.program is None:
        raise CommandError(
            f"{model.path} has parameters, but no program, so it cannot become a model: name one "
            "that has the program with --program"
        )
    variables = {var.name: var for var in get_program_persistable_vars(model.program)}
    values = {**model.arrays, **model.state}
    missing = sorted(variables.keys() - values.keys())
    if missing:
        raise CommandError(f"{model.path} has no values for {_listed(missing)}")
    for name, var in variables.items():
        if -1 not in var.shape and tuple(var.shape) != values[name].shape:
            raise CommandError(
                f"{name} has the shape {list(values[name].shape)} in {model.path}, but "
                f"{list(var.shape)} in the program"
            )
        tensor = LoDTensor()
        tensor.set(values[name], None)
        put(name, tensor)
    return model.program


def _listed(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} others" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _ports(
    model: Model, program: Program, feeds: list[str] | None, fetches: list[str] | None
) -> tuple[list[str], list[str]]:
    """The names to feed and to fetch."""
    block = program.global_block()
    feeds = feeds or model.feeds
    fetches = fetches or model.fetches
    if feeds is None:
        feeds = [v.name for v in block.vars.values() if v.is_data or v.need_check_feed]
    if fetches is None:
        read = {name for op in block.ops for name in op.input_arg_names}
        ends = [n for op in block.ops for n in op.output_arg_names if n not in read]
        raise CommandError(
            f"{model.path} does not say what is fetched: name it with --fetch (nothing reads "
            f"{_listed(list(dict.fromkeys(ends)))})"
        )
    for name in (*feeds, *fetches):
        if not block.has_var(name):
            raise CommandError(f"the program of {model.path} has no variable {name!r}")
    return feeds, fetches


def _fluid_writers(
    model: Model, program: Program, base: str
) -> Mapping[str, Callable[[Any], None]]:
    from dpexec.io.pickles import write_arrays

    data = _with_ports(model, program).desc.serialize_to_string()
    return {
        f"{base}.pdparams": partial(write_arrays, arrays=model.arrays),
        f"{base}.pdopt": partial(write_arrays, arrays=model.state),
        f"{base}.pdmodel": lambda file: file.write(data),
    }


def _with_ports(model: Model, program: Program) -> Program:
    """The program with operators that say what is fed and fetched, as far as that is known."""
    from dpexec.engine.ir.feed_fetch import append_fetch_ops, prepend_feed_ops

    known = program.desc.get_fetch_target_names()
    if known or model.feeds is None or model.fetches is None:
        return program
    copy = program.clone()
    prepend_feed_ops(copy, model.feeds)
    append_fetch_ops(copy, model.fetches)
    return copy


def _write_paddle(
    program: Program, path: Path, feeds: list[str], fetches: list[str], params_file: str | None
) -> None:
    from dpexec.io.inference import save_inference_model

    block = program.global_block()
    if path.exists() and not path.is_dir():
        raise CommandError(f"{path} is a file; a model of Paddle is a directory")
    save_inference_model(
        str(path),
        feeds,
        [block.var(name) for name in fetches],
        None,
        program,
        params_filename=params_file,
    )


def _write_onnx(
    program: Program, path: Path, feeds: list[str], fetches: list[str], opset: int
) -> None:
    try:
        from dpexec.onnx import export
    except ImportError as error:
        raise CommandError(str(error)) from error
    export(program, path, feeds, fetches, opset=opset)
