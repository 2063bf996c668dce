"""``save``, ``load`` and their ``_combine`` forms: variables in files, as operators of a program.

Programs in which Paddle saves and loads contain them. Files have Paddle 1.x's format, as in
:mod:`dpexec.io`. On a cluster, paths are on the workers' file systems.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.lod import Lod, lod_name
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.formats import streams
from dpexec.engine.ir.opdef import op, require
from dpexec.engine.ops._sequences import at_their_places

_on_files = partial(op, infer=None, no_grad=True, checks_values=True, acts=True)


@_on_files("save", inputs="X X@LOD?", outputs="", sparse=("X",))
def save(
    xp: Any,
    x: Any,
    lod: Lod | None,
    *,
    file_path: str,
    overwrite: bool = True,
    save_as_fp16: bool = False,
) -> tuple[()]:
    """Write a variable to a file. A killed process leaves the old file or the new one.

    Args:
        xp: the array library.
        x: the variable.
        lod: the offsets of its sequences, if it has any.
        file_path: the file; its directory is created.
        overwrite: False refuses to replace a file.
        save_as_fp16: write floating point numbers in half precision.

    Source: Paddle op ``save``.
    """
    _write(file_path, [_holder(x, lod, save_as_fp16)], overwrite)
    return ()


@_on_files("save_combine", inputs="X[] X@LOD?[]", outputs="Y?", sparse=("X",))
def save_combine(
    xp: Any,
    x: list[Any],
    lods: list[Lod],
    *,
    names: Mapping[str, Sequence[str]],
    file_path: str,
    overwrite: bool = True,
    save_as_fp16: bool = False,
    save_to_memory: bool = False,
) -> None:
    """Write variables to one file, one after another; arguments as for ``save``.

    Source: Paddle op ``save_combine``.
    """
    require(not save_to_memory, "save_to_memory is not supported; save to a file_path")
    found = at_their_places(names["X@LOD"], lods) if lods else [None] * len(x)
    holders = [_holder(*value, save_as_fp16) for value in zip(x, found, strict=True)]
    _write(file_path, holders, overwrite)


def _write(name: str, values: Sequence[LoDTensor | SelectedRows], overwrite: bool) -> None:
    path = Path(name)
    require(overwrite or not path.exists(), f"{path} exists, and overwrite is False")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    try:
        with open(unfinished, "xb") as file:
            for value in values:
                streams.write(file, value)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _holder(value: Any, lod: Lod | None, half: bool) -> LoDTensor | SelectedRows:
    if isinstance(value, SelectedRows):
        rows, array = _on_host(value.row_array, False), _on_host(value.value, half)
        return SelectedRows(rows, value.height_, array)
    tensor = LoDTensor()
    tensor.array = _on_host(value, half)
    tensor.set_lod((lod or Lod()).to_lists())
    return tensor


def _on_host(array: Any, half: bool) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = array.get() if hasattr(array, "get") else array
    return found.astype(np.float16) if half and found.dtype.kind == "f" else found


@_on_files("load", inputs="", outputs="Out Out@LOD?")
def load(
    xp: Any,
    *,
    names: Mapping[str, Sequence[str]],
    file_path: str,
    load_as_fp16: bool = False,
    seek: int = -1,
    shape: Sequence[int] = (),
) -> tuple[Any, Lod | None]:
    """A variable from a file, with the shape and type stored there.

    Its sequences are loaded, too, if it is declared with ``lod_level``.

    Args:
        xp: the array library.
        file_path: the file.
        load_as_fp16: floating point numbers in half precision.
        seek: number of the first element to read; -1 reads all elements.
        shape: with ``seek``, shape of the result.

    Source: Paddle op ``load``.
    """
    (array,), lods = _read(file_path, names)
    if seek >= 0:
        count = int(np.prod(shape))
        require(
            seek + count <= array.size,
            f"{file_path} has {array.size} elements, too few for {list(shape)} from {seek} on",
        )
        array = array.reshape(-1)[seek : seek + count].reshape(shape)
    return xp.asarray(_on_host(array, load_as_fp16)), next(iter(lods), None)


@_on_files("load_combine", inputs="", outputs="Out[] Out@LOD?[]")
def load_combine(
    xp: Any,
    *,
    names: Mapping[str, Sequence[str]],
    file_path: str,
    load_as_fp16: bool = False,
    model_from_memory: bool = False,
) -> tuple[list[Any], list[Lod]]:
    """Variables from one file, in the order in which they were saved; arguments as for ``load``.

    Source: Paddle op ``load_combine``.
    """
    require(not model_from_memory, "model_from_memory is not supported; load from a file_path")
    arrays, lods = _read(file_path, names)
    return [xp.asarray(_on_host(array, load_as_fp16)) for array in arrays], lods


def _read(
    path: str, names: Mapping[str, Sequence[str]]
) -> tuple[list[np.ndarray[Any, Any]], list[Lod]]:
    """The arrays of a file, one for each name, and the offsets of those with sequences."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise EnforceNotMet(f"cannot open file {path}: {error.strerror}") from None
    wanted = names["Out"]
    with file:
        found = [streams.read(file, VarType.LOD_TENSOR, name, path) for name in wanted]
        require(
            not file.read(1),
            f"file {path} has more than {len(found)} variables; loading part of them is not "
            "allowed",
        )
    arrays, lods = [], []
    for name, tensor in zip(wanted, found, strict=True):
        assert isinstance(tensor, LoDTensor)
        arrays.append(tensor.numpy())
        if lod_name(name) in names.get("Out@LOD", ()):
            lods.append(Lod(tensor.lod()))
        else:
            require(
                not tensor.lod(),
                f"file {path} holds sequences (LoD) for {name}: declare it with lod_level=1, or "
                "more, and not as persistable",
            )
    return arrays, lods
