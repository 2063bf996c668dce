"""``uniform_random``, ``gaussian_random``, ``truncated_gaussian_random`` and similar operators.

With a seed they give the numbers of the real Paddle, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type, to_numpy
from dpexec.engine.core.random import RandomStream
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops import _distributions
from dpexec.engine.ops._rows import unnumbered
from dpexec.engine.ops._shapes import (
    batch_size_like,
    infer_shape_attribute,
    product,
    require_float,
    wanted_shape,
)

Shape = Sequence[int]


def _infer(
    tensor: Spec | None, parts: list[Spec], *, shape: Shape = (), dtype: int = VarType.FP32
) -> Spec:
    made = Spec(infer_shape_attribute(shape, tensor, parts), as_var_type(dtype))
    require_float(made, "Out")
    return made


def _infer_uniform(
    tensor: Spec | None,
    parts: list[Spec],
    *,
    shape: Shape = (),
    dtype: int = VarType.FP32,
    min: float = -1.0,
    max: float = 1.0,
    diag_num: int = 0,
    diag_step: int = 0,
) -> Spec:
    require(min < max, f"min must be less than max, but they are {min} and {max}")
    require(
        diag_num >= 0 and diag_step >= 0,
        f"diag_num and diag_step must not be negative, but are {diag_num} and {diag_step}",
    )
    require(tensor is None or tensor.rank == 1, f"ShapeTensor {tensor} must be a vector")
    return _infer(tensor, parts, shape=shape, dtype=dtype)


def _infer_fixed(*, shape: Shape, dtype: int = VarType.FP32) -> Spec:
    return _infer(None, [], shape=shape, dtype=dtype)


def _infer_batch_size_like(
    like: Spec,
    *,
    shape: Shape,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    dtype: int = VarType.FP32,
) -> Spec:
    made = batch_size_like(shape, like.shape, input_dim_idx, output_dim_idx)
    require(
        all(dim >= 0 for i, dim in enumerate(made) if i != output_dim_idx),
        f"attribute shape is {list(shape)}, but only dimension {output_dim_idx} may be unknown",
    )
    spec = Spec(made, as_var_type(dtype))
    require_float(spec, "Out")
    return spec


def _with_diagonal(values: Any, diag_num: int, diag_step: int, diag_val: float) -> Any:
    """Set ``diag_num`` elements of the flat array, ``diag_step + 1`` apart."""
    positions = np.arange(diag_num) * (diag_step + 1)
    require(
        diag_num == 0 or positions[-1] < values.size,
        f"diag_num={diag_num} and diag_step={diag_step} lead beyond the {values.size} elements",
    )
    values[positions] = diag_val
    return values


_DRAWN = {
    "Out": (
        "draws new numbers in every run if there is no seed; dpexec draws new ones, too, so the "
        "numbers differ"
    )
}


@op(
    "uniform_random",
    inputs="ShapeTensor? ShapeTensorList?[]",
    infer=_infer_uniform,
    no_grad=True,
    samples=lambda r: [
        Sample(
            {},
            {"shape": [2, 3], "min": -0.5, "max": 0.25, "seed": 3},
        ),
        Sample(
            {},
            {"shape": [3, 4], "seed": 9, "diag_num": 3, "diag_step": 4, "diag_val": 1.0},
        ),
        Sample({}, {"shape": [7], "seed": 1}),
        Sample(
            {"ShapeTensorList": [np.array([n], np.int32) for n in (2, 5)]},
            {"shape": [-1, 5]},
            deviates=_DRAWN,
        ),
    ],
    host_inputs="ShapeTensor ShapeTensorList",
    longs="shape",
    fills=True,
)
def uniform_random(
    xp: Any,
    tensor: Any,
    parts: list[Any],
    *,
    shape: Shape = (),
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
    dtype: int = VarType.FP32,
    diag_num: int = 0,
    diag_step: int = 0,
    diag_val: float = 1.0,
    rng: RandomStream,
    as_rows: bool = False,
) -> Any:
    """Uniform numbers in ``[min, max)``.

    ``diag_num`` elements, ``diag_step + 1`` apart in the flat array, are set to ``diag_val``. If
    the output is SelectedRows, the numbers are its values; it has no row numbers. With a ``seed``
    the numbers are those of the real Paddle. Source: Paddle op ``uniform_random``.
    """
    dims = wanted_shape(shape, tensor, parts)
    kind = to_numpy(dtype)
    values = _distributions.uniform(seed or rng.integer(), product(dims), min, max, kind)
    values = _with_diagonal(values, diag_num, diag_step, diag_val)
    made = xp.asarray(values.astype(kind, copy=False).reshape(dims))
    return unnumbered(xp, made) if as_rows else made


@op(
    "gaussian_random",
    inputs="ShapeTensor? ShapeTensorList?[]",
    infer=_infer,
    attrs={"use_mkldnn": False},
    no_grad=True,
    samples=lambda r: [
        Sample({}, {"shape": [2, 3]}, deviates=_DRAWN),
        Sample({}, {"shape": [2, 3], "seed": 3}),
        Sample({}, {"shape": [5], "seed": 8, "mean": 1.0, "std": 0.25}),
        Sample({"ShapeTensor": np.array([4, 2])}, {"seed": 11}),
    ],
    host_inputs="ShapeTensor ShapeTensorList",
    precision="gray",
    longs="shape",
    fills=True,
)
def gaussian_random(
    xp: Any,
    tensor: Any,
    parts: list[Any],
    *,
    shape: Shape = (),
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: int = VarType.FP32,
    rng: RandomStream,
) -> Any:
    """Normal numbers of the given mean and standard deviation.

    With a ``seed`` the numbers are those of the real Paddle. Source: Paddle op
    ``gaussian_random``.
    """
    dims = wanted_shape(shape, tensor, parts)
    kind = to_numpy(dtype)
    values = _distributions.normal(seed or rng.integer(), product(dims), mean, std, kind)
    return xp.asarray(values.astype(kind, copy=False).reshape(dims))


@op(
    "truncated_gaussian_random",
    inputs="",
    infer=_infer_fixed,
    no_grad=True,
    samples=lambda r: [
        Sample({}, {"shape": [2, 3], "std": 0.5}, deviates=_DRAWN),
        Sample({}, {"shape": [2, 3], "seed": 3}),
        Sample({}, {"shape": [4, 1], "seed": 6, "mean": 1.0, "std": 0.5}),
    ],
    fills=True,
)
def truncated_gaussian_random(
    xp: Any,
    *,
    shape: Shape,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: int = VarType.FP32,
    rng: RandomStream,
) -> Any:
    """Numbers of a normal distribution that is truncated at two standard deviations.

    With a ``seed`` the numbers are those of the real Paddle; they are made in float32. Source:
    Paddle op ``truncated_gaussian_random``.
    """
    values = _distributions.truncated_normal(seed or rng.integer(), product(shape), mean, std)
    return xp.asarray(values.astype(to_numpy(dtype), copy=False).reshape(tuple(shape)))


def _like(r: Any) -> list[Sample]:
    x = r.normal((3, 2))
    return [
        Sample({"Input": x}, {"shape": [-1, 4]}, deviates=_DRAWN),
        Sample({"Input": x}, {"shape": [-1, 2], "seed": 2}),
        Sample({"Input": x}, {"shape": [4, -1], "output_dim_idx": 1, "seed": 5}),
        Sample({"Input": x}, {"shape": [1, 5], "input_dim_idx": 1, "seed": 4}),
    ]


@op(
    "uniform_random_batch_size_like",
    inputs="Input",
    infer=_infer_batch_size_like,
    no_grad=True,
    samples=_like,
    precision="gray",
)
def uniform_random_batch_size_like(
    xp: Any,
    like: Any,
    *,
    shape: Shape,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
    dtype: int = VarType.FP32,
    diag_num: int = 0,
    diag_step: int = 0,
    diag_val: float = 1.0,
    rng: RandomStream,
) -> Any:
    """Uniform numbers, one dimension of their shape taken from ``Input``.

    With a ``seed``, every device draws the same numbers, those of ``uniform_random``. Without one,
    all devices together draw the numbers that a single device would. Source: Paddle op
    ``uniform_random_batch_size_like``.
    """
    dims = batch_size_like(shape, like.shape, input_dim_idx, output_dim_idx)
    kind = to_numpy(dtype)
    if seed:
        values = _distributions.uniform(seed, product(dims), min, max, kind)
    else:
        values = np.asarray(rng.uniform(np, dims, kind)).reshape(-1)
        values = values * kind.type(max - min) + kind.type(min)
    values = _with_diagonal(values, diag_num, diag_step, diag_val)
    return xp.asarray(values.astype(kind, copy=False).reshape(dims))


@op(
    "gaussian_random_batch_size_like",
    inputs="Input",
    infer=_infer_batch_size_like,
    no_grad=True,
    samples=_like,
    precision="gray",
)
def gaussian_random_batch_size_like(
    xp: Any,
    like: Any,
    *,
    shape: Shape,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: int = VarType.FP32,
    rng: RandomStream,
) -> Any:
    """Normal numbers, one dimension of their shape taken from ``Input``.

    With a ``seed``, every device draws the same numbers, those of ``gaussian_random``. Without one,
    all devices together draw the numbers that a single device would (Box, Muller, 1958). Source:
    Paddle op ``gaussian_random_batch_size_like``.
    """
    dims = batch_size_like(shape, like.shape, input_dim_idx, output_dim_idx)
    kind = to_numpy(dtype)
    if seed:
        values = _distributions.normal(seed, product(dims), mean, std, kind)
    else:
        angle_and_radius = rng.uniform(np, (*dims, 2), np.float64)
        radius = np.sqrt(-2 * np.log1p(-angle_and_radius[..., 1]))
        values = radius * np.cos(2 * np.pi * angle_and_radius[..., 0]) * std + mean
    return xp.asarray(values.astype(kind, copy=False).reshape(dims))
