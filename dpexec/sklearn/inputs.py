"""Converting estimators' inputs to feeds of a program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.base import is_dask_collection

import dpexec as fluid

__all__ = [
    "LABEL",
    "SOLE",
    "WEIGHT",
    "InputSpec",
    "batches",
    "fed",
    "has_names",
    "inputs_of",
    "row_count",
    "specs_of",
]

SOLE, LABEL, WEIGHT = "x", "label", "sample_weight"
"""Names of variables: of an X that is one array, of the target, and of the weights."""

Rows = np.ndarray[Any, Any] | slice


@dataclass(frozen=True)
class InputSpec:
    """The declaration of a net's input.

    Args:
        shape: shape of a sample; for sequences, of one row.
        dtype: ``float32`` or ``int64``.
        sequences: whether a sample is a sequence of rows, of any length.
    """

    shape: tuple[int, ...]
    dtype: str
    sequences: bool = False

    def variable(self, name: str) -> Any:
        """Declare the input in the program that is being built."""
        return fluid.data(name, [None, *self.shape], self.dtype, int(self.sequences))


def has_names(X: Any) -> bool:
    """Whether X is a dictionary of inputs; sparse matrices that are dictionaries are not."""
    return isinstance(X, Mapping) and not hasattr(X, "toarray")


def inputs_of(X: Mapping[str, Any]) -> dict[str, Any]:
    """Several inputs: floats become float32, integers and booleans int64.

    A list holds sequences: an array of ids or of rows for each sample. Everything else is an array
    with a row for each sample.

    Raises:
        ValueError: there are no inputs, or their numbers of samples differ.
        TypeError: an input holds anything but numbers, or has a reserved name.
    """
    if not X:
        raise ValueError("X has no inputs")
    for name in X:
        if not isinstance(name, str) or name in (LABEL, WEIGHT):
            raise TypeError(f"{name!r} cannot be the name of an input")
    found = {name: _input(name, value) for name, value in X.items()}
    counts = {name: row_count(value) for name, value in found.items()}
    if len({count for count in counts.values() if count is not None}) > 1:
        raise ValueError(f"all inputs must have as many samples, but they have {counts}")
    return found


def _input(name: str, value: Any) -> Any:
    if is_dask_collection(value):
        return value
    if not isinstance(value, list):
        return _numbers(name, value)
    if any(np.ndim(sequence) == 0 for sequence in value):
        raise TypeError(f"input {name!r} is a list, so it must hold a sequence for each sample")
    return [_numbers(name, sequence) for sequence in value]


def _numbers(name: str, value: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(value)
    if array.dtype.kind in "iub":
        return array.astype(np.int64, copy=False)
    if array.dtype.kind != "f":
        raise TypeError(f"input {name!r} must hold numbers, but has elements of {array.dtype}")
    return array.astype(np.float32, copy=False)


def row_count(value: Any) -> int | None:
    """The number of samples; None for a Dask collection of unknown length."""
    if isinstance(value, list):
        return len(value)
    rows = getattr(value, "shape", (None,))[0]
    return int(rows) if isinstance(rows, int | np.integer | float) and rows == rows else None


def specs_of(inputs: Mapping[str, Any]) -> dict[str, InputSpec]:
    """The declarations of inputs."""
    return {name: _spec(value) for name, value in inputs.items()}


def _spec(value: Any) -> InputSpec:
    if isinstance(value, list):
        first = value[0]
        return InputSpec(first.shape[1:] or (1,), first.dtype.name, sequences=True)
    if is_dask_collection(value) and not hasattr(value, "dtype"):  # a dataframe
        return InputSpec((len(value.columns),), "float32")
    dtype = "int64" if np.dtype(value.dtype).kind in "iub" else "float32"
    return InputSpec(tuple(value.shape[1:]) or (1,), dtype)


def fed(inputs: Mapping[str, Any], specs: Mapping[str, InputSpec], rows: Rows) -> dict[str, Any]:
    """The feeds of some samples.

    Args:
        inputs: inputs of all samples; sparse matrices become dense, a batch at a time.
        specs: declarations of the inputs.
        rows: indices of the samples, or a range.
    """
    return {name: _fed(inputs[name], spec, rows) for name, spec in specs.items()}


def _fed(value: Any, spec: InputSpec, rows: Rows) -> Any:
    if spec.sequences:
        taken = value[rows] if isinstance(rows, slice) else [value[row] for row in rows]
        return _sequences(taken, spec)
    taken = value[rows]
    dense = taken.toarray() if hasattr(taken, "toarray") else taken
    return np.ascontiguousarray(dense, spec.dtype).reshape(-1, *spec.shape)


def _sequences(taken: Sequence[Any], spec: InputSpec) -> Any:
    rows = [np.asarray(sequence).reshape(-1, *spec.shape) for sequence in taken]
    together = np.concatenate(rows).astype(spec.dtype, copy=False)
    return fluid.create_lod_tensor(together, [[len(r) for r in rows]], fluid.CPUPlace())


def batches(count: int, size: int) -> list[slice]:
    """Ranges of at most ``size`` samples."""
    return [slice(k * size, min((k + 1) * size, count)) for k in range(math.ceil(count / size))]
