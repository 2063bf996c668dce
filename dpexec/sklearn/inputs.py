"""Converting estimators' inputs to feeds of a program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from dask.base import is_dask_collection
from scipy.sparse import csr_array

import dpexec as fluid
from dpexec.engine.core.light_dataclasses import dataclass

__all__ = [
    "LABEL",
    "SOLE",
    "WEIGHT",
    "InputSpec",
    "Sparse",
    "SparseRows",
    "batches",
    "fed",
    "has_names",
    "inputs_of",
    "require_inputs",
    "row_count",
    "specs_of",
]

SOLE, LABEL, WEIGHT = "x", "label", "sample_weight"
"""Names of the variables for X (if it is a single array), for the target and for the weights."""

Rows = np.ndarray[Any, Any] | slice
Sparse = Literal["dense", "rows"]
"""How a net gets sparse matrices: as dense variables, or as :class:`SparseRows`."""

_VALUES = ".values"  # suffix of the variable with the values of an input's sparse rows


@dataclass(frozen=True)
class SparseRows:
    """A sparse matrix in a net: for each sample, the columns that are not 0 and their values.

    Args:
        columns: column numbers, sequences of int64 ``(entries, 1)``.
        values: values of these entries, sequences of float32 ``(entries, 1)``.
        width: number of columns of the matrix.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from scipy.sparse import random
        >>> from dpexec.sklearn import Regressor
        >>> def net(rows):  # called with SparseRows, since the estimator has sparse="rows"
        ...     return fluid.layers.fc(rows.product(4), size=1)
        >>> x = random(8, 100, density=0.1, format="csr", dtype="float32", random_state=0)
        >>> y = np.arange(8, dtype="float32")
        >>> Regressor(net, sparse="rows", epochs=1).fit(x, y).predict(x).shape
        (8,)
    """

    columns: Any
    values: Any
    width: int

    def product(self, size: int, param_attr: Any = None) -> Any:
        """The product with a trained matrix ``(width, size)``, ``(samples, size)``.

        A step reads and updates only those rows of the trained matrix whose columns occur in its
        samples, so the matrix may be large.

        Args:
            size: number of columns of the product.
            param_attr: name, initializer and regularizer of the trained matrix.
        """
        rows = fluid.layers.embedding(
            self.columns, [self.width, size], is_sparse=True, param_attr=param_attr
        )
        weighted = fluid.layers.elementwise_mul(rows, self.values, axis=0)
        return fluid.layers.sequence_pool(weighted, "sum")


@dataclass(frozen=True)
class InputSpec:
    """The declaration of a net's input.

    Args:
        shape: shape of a sample; for sequences, of one row.
        dtype: ``float32`` or ``int64``.
        sequences: whether a sample is a sequence of rows, of any length.
        sparse: whether a sample is a row of a sparse matrix with ``shape[0]`` columns.
    """

    shape: tuple[int, ...]
    dtype: str
    sequences: bool = False
    sparse: bool = False

    def variable(self, name: str) -> Any:
        """Declare the input in the program that is being built; sparse rows take two variables."""
        if self.sparse:
            columns = fluid.data(name, [None, 1], "int64", 1)
            values = fluid.data(name + _VALUES, [None, 1], "float32", 1)
            return SparseRows(columns, values, self.shape[0])
        return fluid.data(name, [None, *self.shape], self.dtype, int(self.sequences))


def has_names(X: Any) -> bool:
    """Whether X is a dictionary of inputs; sparse matrices that are dictionaries are not."""
    return isinstance(X, Mapping) and not hasattr(X, "toarray")


def inputs_of(X: Mapping[str, Any]) -> dict[str, Any]:
    """Several inputs: floats become float32, integers and booleans int64.

    A list holds sequences: an array of ids or of rows for each sample. Sparse matrices stay sparse.
    Everything else is an array with a row for each sample.

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
    if hasattr(value, "toarray"):
        return _csr(name, value)
    if not isinstance(value, list):
        return _numbers(name, value)
    if any(np.ndim(sequence) == 0 for sequence in value):
        raise TypeError(f"input {name!r} is a list, so it must hold a sequence for each sample")
    return [_numbers(name, sequence) for sequence in value]


def _csr(name: str, value: Any) -> Any:
    if np.dtype(value.dtype).kind not in "iubf":
        raise TypeError(f"input {name!r} must hold numbers, but has elements of {value.dtype}")
    return csr_array(value).astype(np.float32)


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


def specs_of(inputs: Mapping[str, Any], sparse: Sparse = "dense") -> dict[str, InputSpec]:
    """The declarations of inputs.

    Args:
        inputs: inputs by name.
        sparse: how the net gets those that are sparse matrices.
    """
    return {name: _spec(value, sparse) for name, value in inputs.items()}


def _spec(value: Any, sparse: Sparse) -> InputSpec:
    if isinstance(value, list):
        first = value[0]
        return InputSpec(first.shape[1:] or (1,), first.dtype.name, sequences=True)
    if hasattr(value, "toarray"):
        return InputSpec((value.shape[1],), "float32", sparse=sparse == "rows")
    if is_dask_collection(value) and not hasattr(value, "dtype"):  # a dataframe
        return InputSpec((len(value.columns),), "float32")
    dtype = "int64" if np.dtype(value.dtype).kind in "iub" else "float32"
    return InputSpec(tuple(value.shape[1:]) or (1,), dtype)


def require_inputs(found: Mapping[str, Any], specs: Mapping[str, InputSpec], kind: str) -> None:
    """Check that samples have the inputs that a net was fitted to.

    Args:
        found: inputs by name.
        specs: declarations of the net's inputs.
        kind: the estimator's, for messages.

    Raises:
        ValueError: names or shapes differ.
    """
    if found.keys() != specs.keys():
        raise ValueError(f"X has {_named(found)}, but {kind} was fitted to {_named(specs)}")
    for name, spec in specs.items():
        shape = tuple(getattr(found[name], "shape", ())[1:]) or (1,)
        if hasattr(found[name], "shape") and not spec.sequences and shape != spec.shape:
            raise ValueError(
                f"input {name!r} has samples of the shape {shape}, but {kind} was fitted to "
                f"{spec.shape}"
            )


def _named(inputs: Mapping[str, Any]) -> str:
    return "no names of inputs" if list(inputs) == [SOLE] else f"the inputs {sorted(inputs)}"


def fed(inputs: Mapping[str, Any], specs: Mapping[str, InputSpec], rows: Rows) -> dict[str, Any]:
    """The feeds of some samples.

    Args:
        inputs: inputs of all samples; sparse matrices become dense, a batch at a time, unless they
            are fed as sparse rows.
        specs: declarations of the inputs.
        rows: indices of the samples, or a range.
    """
    found: dict[str, Any] = {}
    for name, spec in specs.items():
        if spec.sparse:
            found[name], found[name + _VALUES] = _sparse_rows(inputs[name], rows)
        else:
            found[name] = _fed(inputs[name], spec, rows)
    return found


def _sparse_rows(value: Any, rows: Rows) -> tuple[Any, Any]:
    """Columns and values of some rows of a matrix; a row's entries in the order of columns."""
    taken = csr_array(value)[rows]
    taken.sum_duplicates()  # sorts the entries, too
    lengths = [np.diff(taken.indptr).tolist()]
    columns, values = taken.indices.astype(np.int64), taken.data.astype(np.float32)
    place = fluid.CPUPlace()
    return (
        fluid.create_lod_tensor(columns.reshape(-1, 1), lengths, place),
        fluid.create_lod_tensor(values.reshape(-1, 1), lengths, place),
    )


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
