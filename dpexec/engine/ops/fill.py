"""Constant tensors: ``fill_constant``, ``fill_zeros_like``, ``assign_value`` and others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type, dtype_name, to_numpy
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._rows import unnumbered
from dpexec.engine.ops._sequences import sequence_count
from dpexec.engine.ops._shapes import batch_size_like, infer_shape_attribute, product, wanted_shape

Shape = Sequence[int]


_NOT_FINITE = "writes 0 for inf and nan; dpexec writes them"


def _infer_constant(
    value_tensor: Spec | None,
    tensor: Spec | None,
    parts: list[Spec],
    *,
    shape: Shape = (),
    dtype: int = VarType.FP32,
    value: float = 0.0,
    str_value: str = "",
) -> Spec:
    if value_tensor is not None:
        require(value_tensor.size in (1, -1), f"ValueTensor {value_tensor} must have one element")
    else:
        _require_fits(value, str_value, dtype)
    return Spec(infer_shape_attribute(shape, tensor, parts), as_var_type(dtype))


def _number(value: float, text: str, kind: np.dtype[Any]) -> Any:
    """The value; ``text``, if given, has the digits that single precision loses."""
    if not text:
        return value
    return int(text) if kind.kind in "iu" else float(text)


def _require_fits(value: float, text: str, dtype: int) -> None:
    """Reject numbers outside the range of an integer type."""
    kind = to_numpy(dtype)
    if kind.kind in "iu":
        number, range = _number(value, text, kind), np.iinfo(kind)
        require(
            range.min <= number <= range.max,
            f"value {text or value} is not from {range.min} to {range.max}, as {kind.name} is",
        )


@op(
    "fill_constant",
    inputs="ValueTensor? ShapeTensor? ShapeTensorList?[]",
    infer=_infer_constant,
    attrs={"force_cpu": False},
    no_grad=True,
    samples=lambda r: [
        Sample({}, {"shape": [2, 3], "value": 1.5}, expected={"Out": np.full((2, 3), 1.5)}),
        Sample(
            {},
            {"shape": [1], "dtype": VarType.INT64, "str_value": "9007199254740993"},
            expected={"Out": np.array([9007199254740993])},
        ),
        Sample({}, {"shape": [2], "str_value": "-inf"}, deviates={"Out": _NOT_FINITE}),
        Sample({"ValueTensor": np.array([4.0]), "ShapeTensor": np.array([3, 1])}),
        Sample({"ShapeTensorList": [np.array([2]), np.array([3])]}, {"shape": [-1, 3]}),
    ],
    capturable=True,
    host_inputs="ShapeTensor ShapeTensorList",
    makes_numbers=True,
    precision="gray",
    longs="shape",
    fills=True,
    flops=0,
)
def fill_constant(
    xp: Any,
    value_tensor: Any,
    tensor: Any,
    parts: list[Any],
    *,
    shape: Shape = (),
    dtype: int = VarType.FP32,
    value: float = 0.0,
    str_value: str = "",
    as_rows: bool = False,
) -> Any:
    """A tensor full of one number.

    ``ValueTensor`` replaces ``value``, and the shape variables replace ``shape``. If the output is
    SelectedRows, the tensor is its values; it has no row numbers. Source: Paddle op
    ``fill_constant``.
    """
    dims = wanted_shape(shape, tensor, parts)
    kind = to_numpy(dtype)
    if value_tensor is not None:
        made = xp.broadcast_to(value_tensor.reshape(()).astype(kind), dims).copy()
    else:
        made = xp.full(dims, _number(value, str_value, kind), kind)
    return unnumbered(xp, made) if as_rows else made


def _infer_batch_size_like(
    like: Spec,
    lod: Spec | None,
    *,
    shape: Shape,
    dtype: int = VarType.FP32,
    value: float = 0.0,
    str_value: str = "",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
) -> Spec:
    _require_fits(value, str_value, dtype)
    if lod is not None and lod.rank and input_dim_idx == 0:
        like = like.replace(shape=(sequence_count(lod), *like.shape[1:]))
    made = batch_size_like(shape, like.shape, input_dim_idx, output_dim_idx)
    return Spec(made, as_var_type(dtype))


@op(
    "fill_constant_batch_size_like",
    inputs="Input Input@LOD?",
    infer=_infer_batch_size_like,
    attrs={"force_cpu": False},
    no_grad=True,
    samples=lambda r: [
        Sample(
            {"Input": r.normal((2, 3))},
            {"shape": [-1, 2], "value": 2.0},
            expected={"Out": np.full((2, 2), 2.0)},
        ),
        Sample(
            {"Input": r.normal((2, 3))},
            {"shape": [4, 1], "input_dim_idx": 1, "output_dim_idx": 1, "str_value": "0.5"},
            expected={"Out": np.full((4, 3), 0.5)},
        ),
        Sample(
            {"Input": r.normal((3, 2))},
            {"shape": [-1, 1], "dtype": VarType.INT64, "value": 7.0},
            expected={"Out": np.full((3, 1), 7)},
        ),
        Sample(
            {"Input": r.normal((6, 2)), "Input@LOD": Lod([[0, 1, 3, 6]])},
            {"shape": [-1, 2]},
            expected={"Out": np.zeros((3, 2))},
        ),
    ],
    capturable=True,
    flops=0,
)
def fill_constant_batch_size_like(
    xp: Any,
    like: Any,
    lod: Lod | None,
    *,
    shape: Shape,
    dtype: int = VarType.FP32,
    value: float = 0.0,
    str_value: str = "",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
) -> Any:
    """A tensor full of one number, one dimension of its shape taken from ``Input``.

    If ``Input`` has sequences, the size of dimension 0 is their number, not that of rows.
    Source: Paddle op ``fill_constant_batch_size_like``.
    """
    sizes = list(like.shape)
    if lod and input_dim_idx == 0:
        sizes[0] = len(lod.lengths)
    dims = batch_size_like(shape, sizes, input_dim_idx, output_dim_idx)
    kind = to_numpy(dtype)
    return xp.full(dims, _number(value, str_value, kind), kind)


_FILLED = (VarType.FP32, VarType.FP64, VarType.INT32, VarType.INT64)


def _infer_fill(*, value: Sequence[float], shape: Shape, dtype: int = VarType.FP32) -> Spec:
    made = Spec(infer_shape_attribute(shape), as_var_type(dtype))
    require(made.dtype in _FILLED, f"fill makes float32, float64, int32 or int64, but not {made}")
    require(
        len(value) == made.size,
        f"value has {len(value)} numbers, but shape {list(shape)} needs {made.size}",
    )
    return made


@op(
    "fill",
    inputs="",
    infer=_infer_fill,
    attrs={"force_cpu": False},
    no_grad=True,
    samples=lambda r: [
        Sample(
            {},
            {"shape": [2, 2], "dtype": VarType.INT64, "value": [1.5, 2.5, 3.5, -4.5]},
            expected={"Out": np.array([[1, 2], [3, -4]])},
        ),
        Sample({}, {"shape": [3], "dtype": VarType.FP32, "value": [0.1, 0.2, -0.3]}),
        Sample({}, {"shape": [1, 2], "dtype": VarType.FP64, "value": [0.1, 1e-9]}),
        Sample({}, {"shape": [2, 1], "dtype": VarType.INT32, "value": [7.9, -7.9]}),
    ],
)
def fill(xp: Any, *, value: Sequence[float], shape: Shape, dtype: int = VarType.FP32) -> Any:
    """A tensor of these numbers, row by row; conversions to integers truncate.

    Source: Paddle op ``fill``.
    """
    return xp.asarray(np.asarray(value, np.float32).astype(to_numpy(dtype))).reshape(tuple(shape))


def _like(x: Spec) -> Spec:
    return x


@op(
    "fill_zeros_like",
    inputs="X",
    infer=_like,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3))}, expected={"Out": np.zeros((2, 3))}),
        Sample({"X": r.normal((4,))}),
        Sample({"X": r.integers(1, 9, (1, 2))}, expected={"Out": np.zeros((1, 2), np.int64)}),
    ],
    capturable=True,
    grad_lod="own",
    folds=True,
    flops=0,
)
def fill_zeros_like(xp: Any, x: Any) -> Any:
    """Zeros in shape and type of ``x``. Source: Paddle op ``fill_zeros_like``."""
    return xp.zeros(x.shape, x.dtype)


def _infer_zeros_of(x: Spec, *, dtype: int = VarType.FP32) -> Spec:
    return x.replace(dtype=as_var_type(dtype))


@op(
    "fill_zeros_like2",
    inputs="X",
    infer=_infer_zeros_of,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3))}, expected={"Out": np.zeros((2, 3), np.float32)}),
        Sample({"X": r.normal((4,))}, {"dtype": VarType.INT64}),
        Sample({"X": r.integers(1, 9, (1, 2))}, {"dtype": VarType.BOOL}),
        Sample({"X": r.integers(1, 9, (3, 1))}),
    ],
    flops=0,
)
def fill_zeros_like2(xp: Any, x: Any, *, dtype: int = VarType.FP32) -> Any:
    """Zeros in the shape of ``x``, of type ``dtype``. Source: Paddle op ``fill_zeros_like2``."""
    return xp.zeros(x.shape, to_numpy(dtype))


def _infer_any_like(x: Spec, *, value: float = 0.0, dtype: int = -1) -> Spec:
    made = x if dtype < 0 else x.replace(dtype=as_var_type(dtype))
    kind = to_numpy(made.dtype)
    low, high = _range(kind)
    require(
        low <= value <= high,
        f"value {value} does not fit into {dtype_name(made.dtype)}, which is {low} to {high}",
    )
    return made


def _range(kind: np.dtype[Any]) -> tuple[float, float]:
    """The smallest and the largest number of a type."""
    if kind.kind == "b":
        return 0, 1
    info = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    return (float(info.min), float(info.max)) if kind.kind == "f" else (info.min, info.max)


@op(
    "fill_any_like",
    inputs="X",
    infer=_infer_any_like,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": r.normal((2,))}, {"value": 3.0}, expected={"Out": np.full(2, 3.0)}),
        Sample({"X": r.normal((2,))}, {"dtype": VarType.INT64}, expected={"Out": np.zeros(2)}),
        Sample(
            {"X": r.integers(0, 9, (2, 1))}, {"value": 5.0}, expected={"Out": np.full((2, 1), 5)}
        ),
    ],
    capturable=True,
    flops=0,
)
def fill_any_like(xp: Any, x: Any, *, value: float = 0.0, dtype: int = -1) -> Any:
    """One number in the shape of ``x``, of its type or another.

    Source: Paddle op ``fill_any_like``.
    """
    return xp.full(x.shape, value, x.dtype if dtype < 0 else to_numpy(dtype))


_VALUE_LISTS = {
    VarType.BOOL: "bool_values",
    VarType.FP32: "fp32_values",
    VarType.INT32: "int32_values",
    VarType.INT64: "int64_values",
}


def _infer_assign_value(
    *,
    shape: Shape,
    dtype: int,
    bool_values: Sequence[Any] = (),
    fp32_values: Sequence[float] = (),
    int32_values: Sequence[int] = (),
    int64_values: Sequence[int] = (),
) -> Spec:
    made = Spec(tuple(shape), as_var_type(dtype))
    require(made.dtype in _VALUE_LISTS, f"assign_value has no list of values for {made}")
    values = (bool_values, fp32_values, int32_values, int64_values)
    name = _VALUE_LISTS[made.dtype]
    found = dict(zip(_VALUE_LISTS.values(), values, strict=True))[name]
    require(
        len(found) == product(shape),
        f"{name} has {len(found)} values, but shape {list(shape)} needs {product(shape)}",
    )
    return made


@op(
    "assign_value",
    inputs="",
    infer=_infer_assign_value,
    no_grad=True,
    samples=lambda r: [
        Sample(
            {},
            {"shape": [1, 2], "dtype": VarType.FP32, "fp32_values": [1.0, 2.5]},
            expected={"Out": np.array([[1.0, 2.5]])},
        ),
        Sample(
            {},
            {"shape": [3], "dtype": VarType.INT32, "int32_values": [1, 2, 3]},
            expected={"Out": np.array([1, 2, 3])},
        ),
        Sample(
            {},
            {"shape": [2], "dtype": VarType.BOOL, "bool_values": [0, 1]},
            expected={"Out": np.array([False, True])},
        ),
    ],
    makes_numbers=True,
    flops=0,
)
def assign_value(
    xp: Any,
    *,
    shape: Shape,
    dtype: int,
    bool_values: Sequence[Any] = (),
    fp32_values: Sequence[float] = (),
    int32_values: Sequence[int] = (),
    int64_values: Sequence[int] = (),
) -> Any:
    """A tensor of the values in the list for its type. Source: Paddle op ``assign_value``."""
    values = (bool_values, fp32_values, int32_values, int64_values)
    found = dict(zip(_VALUE_LISTS.values(), values, strict=True))[_VALUE_LISTS[as_var_type(dtype)]]
    return xp.asarray(found, to_numpy(dtype)).reshape(tuple(shape))
