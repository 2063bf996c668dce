"""``randint`` and ``randperm``: random integers; with a seed, the same as in the real Paddle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type, to_numpy
from dpexec.engine.core.random import RandomStream
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops import _samplers
from dpexec.engine.ops._shapes import infer_shape_attribute, integers, product, require_integer


def _infer_randint(
    tensor: Spec | None,
    parts: list[Spec],
    *,
    shape: Sequence[int] = (),
    low: int,
    high: int,
    dtype: int = VarType.INT64,
) -> Spec:
    require(low < high, f"low is {low}, but must be less than high, which is {high}")
    require(high - low < 2**31 - 2, f"high - low is {high - low}, but must be below 2**31 - 2")
    made = Spec(infer_shape_attribute(shape, tensor, parts), as_var_type(dtype))
    require_integer(made, "Out")
    return made


@op(
    "randint",
    inputs="ShapeTensor? ShapeTensorList?[]",
    infer=_infer_randint,
    no_grad=True,
    samples=lambda r: [
        Sample({}, {"shape": [3, 4], "low": -3, "high": 4, "seed": 7}),
        Sample({}, {"shape": [5], "low": 0, "high": 2000000000, "seed": 1, "dtype": VarType.INT32}),
        Sample({"ShapeTensor": np.array([2, 3])}, {"low": 1, "high": 2}),
        Sample(
            {"ShapeTensorList": [np.array([2])]},
            {"shape": [-1], "low": 0, "high": 9},
            deviates={
                "Out": (
                    "draws new numbers in every run if there is no seed; dpexec draws new ones, "
                    "too, so the numbers differ"
                )
            },
        ),
    ],
    host_inputs="ShapeTensor ShapeTensorList",
    longs="shape",
)
def randint(
    xp: Any,
    tensor: Any,
    parts: list[Any],
    *,
    shape: Sequence[int] = (),
    low: int,
    high: int,
    seed: int = 0,
    dtype: int = VarType.INT64,
    rng: RandomStream,
) -> Any:
    """Uniform integers of ``[low, high)``.

    With a ``seed`` they are those of the real Paddle. Source: Paddle op ``randint``.
    """
    dims = integers(shape, tensor, parts)
    values = _samplers.integers(seed or rng.integer(), product(dims), low, high)
    return xp.asarray(values.astype(to_numpy(dtype)).reshape(dims))


def _infer_randperm(*, n: int, dtype: int = VarType.INT64) -> Spec:
    require(n > 0, f"n is {n}, but must be positive")
    return Spec((n,), as_var_type(dtype))


@op(
    "randperm",
    inputs="",
    infer=_infer_randperm,
    no_grad=True,
    samples=lambda r: [
        Sample({}, {"n": 12, "seed": 7}),
        Sample({}, {"n": 7, "seed": 1, "dtype": VarType.INT32}),
        Sample({}, {"n": 1, "seed": 3}),
    ],
)
def randperm(
    xp: Any, *, n: int, seed: int = 0, dtype: int = VarType.INT64, rng: RandomStream
) -> Any:
    """The integers below ``n`` in random order.

    With a ``seed`` the order is that of the real Paddle on Linux. Source: Paddle op ``randperm``.
    """
    if seed:
        order = _samplers.permutation(seed, n)
    else:
        order = np.argsort(np.asarray(rng.bits(np, (n,))))
    return xp.asarray(order.astype(to_numpy(dtype)))
