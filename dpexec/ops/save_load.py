"""``save``, ``load`` and their ``_combine`` forms: variables in files, as operators of a program.

Paddle's own programs that save and load contain them. Files are Paddle 1.x's, those of
:mod:`dpexec.io`. On a cluster the paths are the workers'.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpexec.core.dtypes import VarType
from dpexec.core.tensors import LoDTensor, SelectedRows
from dpexec.errors import EnforceNotMet
from dpexec.ir import streams
from dpexec.ir.opdef import op, require

__all__: list[str] = []


@op(
    "save",
    inputs="X",
    outputs="",
    infer=None,
    sparse=("X",),
    no_grad=True,
    checks_values=True,
)
def save(
    xp: Any, x: Any, *, file_path: str = "", overwrite: bool = True, save_as_fp16: bool = False
) -> tuple[()]:
    """Write a variable to a file. A killed process leaves the old file or the new one.

    Args:
        xp: the array library.
        x: the variable.
        file_path: the file; its directory is made.
        overwrite: False refuses to replace a file.
        save_as_fp16: write floating point numbers in half precision.

    Source: Paddle op ``save``.
    """
    _write(file_path, [x], overwrite, save_as_fp16)
    return ()


@op(
    "save_combine",
    inputs="X[]",
    outputs="Y?",
    infer=None,
    sparse=("X",),
    no_grad=True,
    checks_values=True,
)
def save_combine(
    xp: Any,
    x: list[Any],
    *,
    file_path: str = "",
    overwrite: bool = True,
    save_as_fp16: bool = False,
    save_to_memory: bool = False,
) -> None:
    """Write variables to one file, one after another; arguments as for ``save``.

    Source: Paddle op ``save_combine``.
    """
    require(not save_to_memory, "save_to_memory is not supported; save to a file_path")
    _write(file_path, x, overwrite, save_as_fp16)


def _write(name: str, values: Sequence[Any], overwrite: bool, half: bool) -> None:
    path = Path(name)
    require(overwrite or not path.exists(), f"{path} exists, and overwrite is False")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    try:
        with open(unfinished, "xb") as file:
            for value in values:
                streams.write(file, _holder(value, half))
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _holder(value: Any, half: bool) -> LoDTensor | SelectedRows:
    if isinstance(value, SelectedRows):
        rows, array = _on_host(value.row_array, False), _on_host(value.value, half)
        return SelectedRows(rows, value.height_, array)
    tensor = LoDTensor()
    tensor.array = _on_host(value, half)
    return tensor


def _on_host(array: Any, half: bool) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = array.get() if hasattr(array, "get") else array
    return found.astype(np.float16) if half and found.dtype.kind == "f" else found


@op("load", inputs="", outputs="Out", infer=None, no_grad=True, checks_values=True)
def load(
    xp: Any,
    *,
    file_path: str = "",
    load_as_fp16: bool = False,
    seek: int = -1,
    shape: Sequence[int] = (),
) -> Any:
    """A variable from a file, with shape and type that it has there.

    Args:
        xp: the array library.
        file_path: the file.
        load_as_fp16: floating point numbers in half precision.
        seek: take ``shape`` elements from this one on, instead of all; -1 takes all.
        shape: with ``seek``, of the result.

    Source: Paddle op ``load``.
    """
    (array,) = _read(file_path, 1)
    if seek >= 0:
        count = int(np.prod(shape))
        require(
            seek + count <= array.size,
            f"{file_path} has {array.size} elements, too few for {list(shape)} from {seek} on",
        )
        array = array.reshape(-1)[seek : seek + count].reshape(shape)
    return xp.asarray(_on_host(array, load_as_fp16))


@op("load_combine", inputs="", outputs="Out[]", infer=None, no_grad=True, checks_values=True)
def load_combine(
    xp: Any,
    *,
    needs: Sequence[Sequence[bool]],
    file_path: str = "",
    load_as_fp16: bool = False,
    model_from_memory: bool = False,
) -> list[Any]:
    """Variables from one file, in the order in which they were saved; arguments as for ``load``.

    Source: Paddle op ``load_combine``.
    """
    require(not model_from_memory, "model_from_memory is not supported; load from a file_path")
    arrays = _read(file_path, len(needs[0]))
    return [xp.asarray(_on_host(array, load_as_fp16)) for array in arrays]


def _read(name: str, count: int) -> list[np.ndarray[Any, Any]]:
    """The arrays of a file, which must have just as many."""
    try:
        file = open(name, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise EnforceNotMet(f"cannot open file {name}: {error.strerror}") from None
    with file:
        found = [_read_array(file, name, number) for number in range(count)]
        require(
            not file.read(1),
            f"file {name} has more than {count} variables; loading part of them is not allowed",
        )
    return found


def _read_array(file: Any, name: str, number: int) -> np.ndarray[Any, Any]:
    tensor = streams.read(file, VarType.LOD_TENSOR, f"number {number}", name)
    assert isinstance(tensor, LoDTensor)
    require(not tensor.lod(), f"file {name} holds a sequence (LoD), only dense ones are supported")
    return tensor.numpy()
