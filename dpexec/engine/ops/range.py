"""``range``, ``linspace``, ``diag`` and ``eye``: regular tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type, to_numpy
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import require_float, require_integer


def _require_one(spec: Spec, name: str) -> None:
    require(spec.size in (1, -1), f"{name} {spec} must have one element")


def _infer_range(start: Spec, end: Spec, step: Spec) -> Spec:
    for name, spec in (("Start", start), ("End", end), ("Step", step)):
        _require_one(spec, name)
        require(
            spec.dtype == start.dtype, f"{name} {spec} must have the data type of Start {start}"
        )
    return Spec((-1,), start.dtype)


@op(
    "range",
    inputs="Start End Step",
    infer=_infer_range,
    no_grad=True,
    checks_values=True,
    samples=lambda r: [
        Sample(
            {"Start": np.array([0]), "End": np.array([7]), "Step": np.array([3])},
            expected={"Out": np.array([0, 3, 6])},
        ),
        Sample(
            {"Start": np.array([1.0]), "End": np.array([0.0]), "Step": np.array([-0.3])},
            expected={"Out": np.array([1.0, 0.7, 0.4, 0.1])},
        ),
        Sample(
            {
                "Start": np.array([5], np.int32),
                "End": np.array([-3], np.int32),
                "Step": np.array([-2], np.int32),
            },
            expected={"Out": np.array([5, 3, 1, -1])},
        ),
    ],
    host_inputs="Start End Step",
    makes_numbers=True,
)
def range(xp: Any, start: Any, end: Any, step: Any) -> Any:
    """``Start``, ``Start + Step`` ... as far as they lie before ``End``.

    Source: Paddle op ``range``.

    Raises:
        ValueError: the step is 0 or leads away from the end.
    """
    first, last, stride = (value.reshape(-1)[0].item() for value in (start, end, step))
    if stride == 0 or (last - first) * stride < 0:
        raise ValueError(f"Step {stride} does not lead from Start {first} to End {last}")
    steps = (end.reshape(-1)[0] - start.reshape(-1)[0]) / step.reshape(-1)[0]
    count = math.ceil(abs(float(steps)))
    return first + xp.arange(count, dtype=start.dtype) * stride


def _infer_linspace(start: Spec, stop: Spec, num: Spec) -> Spec:
    for name, spec in (("Start", start), ("Stop", stop), ("Num", num)):
        _require_one(spec, name)
    require_float(start, "Start")
    require_integer(num, "Num")
    require(stop.dtype == start.dtype, f"Stop {stop} must have the data type of Start {start}")
    return Spec((-1,), start.dtype)


@op(
    "linspace",
    inputs="Start Stop Num",
    infer=_infer_linspace,
    no_grad=True,
    checks_values=True,
    samples=lambda r: [
        Sample(
            {"Start": np.array([0.0]), "Stop": np.array([1.0]), "Num": np.array([4], np.int32)},
            expected={"Out": np.array([0.0, 1 / 3, 2 / 3, 1.0])},
        ),
        Sample(
            {"Start": np.array([3.0]), "Stop": np.array([1.0]), "Num": np.array([1], np.int32)},
            expected={"Out": np.array([3.0])},
        ),
        Sample(
            {"Start": np.array([2.0]), "Stop": np.array([-1.0]), "Num": np.array([5], np.int32)},
            expected={"Out": np.array([2.0, 1.25, 0.5, -0.25, -1.0])},
        ),
    ],
    host_inputs="Num",
)
def linspace(xp: Any, start: Any, stop: Any, num: Any) -> Any:
    """``Num`` equidistant numbers from ``Start`` to ``Stop``. Source: Paddle op ``linspace``.

    Raises:
        ValueError: ``Num`` is not positive.
    """
    count = int(num.reshape(-1)[0])
    if count < 1:
        raise ValueError(f"Num must be positive, but is {count}")
    step = (stop.reshape(1) - start.reshape(1)) / start.dtype.type(max(count - 1, 1))
    return start.reshape(1) + xp.arange(count, dtype=start.dtype) * step


def _infer_diag(diagonal: Spec) -> Spec:
    require(diagonal.rank == 1, f"Diagonal {diagonal} must be a vector")
    return diagonal.replace(shape=diagonal.shape * 2, lod_level=0)


@op(
    "diag",
    inputs="Diagonal",
    infer=_infer_diag,
    no_grad=True,
    samples=lambda r: [
        Sample(
            {"Diagonal": np.array([1.0, 2.0])},
            expected={"Out": np.array([[1.0, 0.0], [0.0, 2.0]])},
        ),
        Sample({"Diagonal": r.integers(0, 9, (3,))}),
        Sample({"Diagonal": r.normal((1,))}),
    ],
)
def diag(xp: Any, diagonal: Any) -> Any:
    """A square matrix with a diagonal, zeros elsewhere. Source: Paddle op ``diag``."""
    return xp.diag(diagonal)


def _infer_eye(*, num_rows: int, num_columns: int = -1, dtype: int = VarType.FP32) -> Spec:
    require(
        num_rows > 0 and (num_columns > 0 or num_columns == -1),
        f"num_rows={num_rows} and num_columns={num_columns} must be positive",
    )
    columns = num_rows if num_columns == -1 else num_columns
    return Spec((num_rows, columns), as_var_type(dtype))


@op(
    "eye",
    inputs="",
    infer=_infer_eye,
    no_grad=True,
    samples=lambda r: [
        Sample({}, {"num_rows": 2, "num_columns": 3}, expected={"Out": np.eye(2, 3)}),
        Sample({}, {"num_rows": 2}, expected={"Out": np.eye(2)}),
        Sample({}, {"num_rows": 3, "num_columns": 2, "dtype": VarType.INT64}),
    ],
)
def eye(xp: Any, *, num_rows: int, num_columns: int = -1, dtype: int = VarType.FP32) -> Any:
    """Ones on the main diagonal, zeros elsewhere; square for ``num_columns`` -1.

    Source: Paddle op ``eye``.
    """
    return xp.eye(num_rows, None if num_columns == -1 else num_columns, dtype=to_numpy(dtype))
