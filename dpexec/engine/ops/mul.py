"""``mul``: the product of two tensors flattened to matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.cost import Call
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._eight_bits import (
    back_scales,
    has_eight_bits,
    per_channel,
    quantized,
    require_float_or_small,
    require_scales,
    result_type,
    stored,
)
from dpexec.engine.ops._shapes import product, require_same_dtype


def _infer(
    x: Spec,
    y: Spec,
    *,
    x_num_col_dims: int = 1,
    y_num_col_dims: int = 1,
    use_mkldnn: bool = False,
    force_fp32_output: bool = False,
    scale_y: Sequence[float] = (1.0,),
) -> Spec:
    require_float_or_small(x, "X", use_mkldnn)
    require(
        0 < x_num_col_dims < x.rank,
        f"x_num_col_dims={x_num_col_dims} must leave X {x} at least one dimension on each side",
    )
    require(
        0 < y_num_col_dims < y.rank,
        f"y_num_col_dims={y_num_col_dims} must leave Y {y} at least one dimension on each side",
    )
    if not has_eight_bits(x):
        require_same_dtype(x, y)
    require(y.size, f"Y {y} must have elements")
    width = product(x.shape[x_num_col_dims:])
    height = product(y.shape[:y_num_col_dims])
    require(
        dims_match(width, height),
        f"as a matrix, X {x} has {width} columns (x_num_col_dims={x_num_col_dims}), but Y {y} "
        f"has {height} rows (y_num_col_dims={y_num_col_dims})",
    )
    made = x.replace(shape=(*x.shape[:x_num_col_dims], *y.shape[y_num_col_dims:]))
    if not has_eight_bits(x):
        return made
    require_scales("scale_y", scale_y, y, product(y.shape[y_num_col_dims:]))
    kind = result_type(unsigned=False, force_fp32_output=force_fp32_output, residual=None)
    return made.replace(dtype=kind)


def _matrix(array: Any, rows: int) -> Any:
    """The array with its first ``rows`` dimensions as rows and the rest as columns."""
    if array.ndim == 2:
        return array
    shape = array.shape
    return array.reshape(product(shape[:rows]), product(shape[rows:]))


def _small(
    r: SampleRng,
    kind: type[np.integer[Any]],
    deviates: Mapping[str, str] | None = None,
    **attrs: Any,
) -> Sample:
    """A call as in a quantized model."""
    ends = np.iinfo(kind)
    x = r.integers(ends.min, ends.max + 1, (3, 12)).astype(kind)
    given = {"use_mkldnn": True, "scale_x": 40.0, "scale_y": [30.0], **attrs}
    return Sample({"X": x, "Y": r.normal((12, 5))}, given, grad=(), deviates=deviates or {})


def _samples(r: SampleRng) -> list[Sample]:
    return [
        Sample({"X": r.normal((3, 4)), "Y": r.normal((4, 2))}),
        Sample({"X": r.normal((2, 3, 4)), "Y": r.normal((4, 5))}, {"x_num_col_dims": 2}),
        Sample({"X": r.normal((2, 3, 4)), "Y": r.normal((3, 4, 2, 1))}, {"y_num_col_dims": 2}),
        Sample(
            {"X": np.array([[1.0, 2.0]]), "Y": np.array([[3.0], [4.0]])},
            expected={"Out": np.array([[11.0]])},
        ),
        _small(r, np.int8, scale_out=4.0),
        _small(r, np.uint8, scale_out=2.0),
        _small(r, np.uint8, force_fp32_output=True),
        _small(
            r,
            np.int8,
            scale_out=4.0,
            scale_y=[30.0, 20.0, 45.5, 10.0, 12.0],
            deviates={"*": "refuses several numbers in scale_y; dpexec takes one for each column"},
        ),
    ]


def _macs(call: Call) -> int:
    return call.size("Out") * product(call.shape("Y")[: call.attrs["y_num_col_dims"]])


@op(
    "mul",
    inputs="X Y",
    infer=_infer,
    attrs={"scale_y": [1.0]},
    samples=_samples,
    operand_ulps=2,
    capturable=True,
    grad_lod="own",
    precision="white",
    quantized="weights inputs outputs",
    macs=_macs,
)
def mul(
    xp: Any,
    x: Any,
    y: Any,
    *,
    x_num_col_dims: int = 1,
    y_num_col_dims: int = 1,
    force_fp32_output: bool = False,
    scale_x: float = 1.0,
    scale_y: Sequence[float] = (1.0,),
    scale_out: float = 1.0,
) -> Any:
    """The matrix product of ``x`` and ``y``.

    The first ``x_num_col_dims`` dimensions of ``x`` are its rows, the others its columns; ``y``
    likewise. The result has the row dimensions of ``x`` and the column dimensions of ``y``.

    Quantized models have an ``x`` of int8 or uint8: ``y`` is converted to int8 by ``scale_y``. The
    result is multiplied by ``scale_out`` and converted to int8; with ``force_fp32_output`` it is
    float32.
    Source: Paddle op ``mul``.
    """
    left, right = _matrix(x, x_num_col_dims), _matrix(y, y_num_col_dims)
    if x.dtype.kind == "f":
        out = xp.matmul(left, right)
    else:
        weights = quantized(xp, right, per_channel(scale_y, 2, 1))
        back = back_scales(scale_x, scale_y, 1.0 if force_fp32_output else scale_out)
        out = xp.matmul(left.astype(np.float64), weights).astype(np.float32)
        out *= xp.asarray(per_channel(back, 2, 1))
        out = stored(xp, out, np.float32 if force_fp32_output else np.int8)
    return out.reshape(x.shape[:x_num_col_dims] + y.shape[y_num_col_dims:])


def _infer_grad(x: Spec, y: Spec, d_out: Spec) -> tuple[Spec, Spec]:
    return x.replace(lod_level=0), y.replace(lod_level=0)


@mul.grad("X", "Y", "Out@GRAD", infer=_infer_grad, operand_ulps=2)
def mul_grad(
    xp: Any,
    x: Any,
    y: Any,
    d_out: Any,
    *,
    x_num_col_dims: int = 1,
    y_num_col_dims: int = 1,
    needs: tuple[bool, bool],
) -> tuple[Any, Any]:
    """``d_out @ y.T`` for X and ``x.T @ d_out`` for Y."""
    x_matrix, y_matrix = _matrix(x, x_num_col_dims), _matrix(y, y_num_col_dims)
    d_matrix = d_out.reshape(x_matrix.shape[0], y_matrix.shape[1])
    return (
        xp.matmul(d_matrix, y_matrix.T).reshape(x.shape) if needs[0] else None,
        xp.matmul(x_matrix.T, d_matrix).reshape(y.shape) if needs[1] else None,
    )


def _infer_double(
    x: Spec, y: Spec, d_out: Spec, ddx: Spec | None, ddy: Spec | None
) -> tuple[Spec, Spec, Spec]:
    return x, y, d_out


@mul_grad.double_grad("X", "Y", "DOut", "DDX?", "DDY?", outputs="DX DY DDOut", infer=_infer_double)
def mul_grad_grad(
    xp: Any,
    x: Any,
    y: Any,
    d_out: Any,
    ddx: Any,
    ddy: Any,
    *,
    x_num_col_dims: int = 1,
    y_num_col_dims: int = 1,
    needs: tuple[bool, bool, bool],
) -> tuple[Any, Any, Any]:
    """``d_out @ ddy.T`` for X, ``ddx.T @ d_out`` for Y and ``ddx @ y + x @ ddy`` for ``d_out``."""
    dims = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    dx = dy = ddout = None
    if needs[0]:
        dx = (
            xp.zeros_like(x)
            if ddy is None
            else mul_grad(xp, x, ddy, d_out, **dims, needs=(True, False))[0]
        )
    if needs[1]:
        dy = (
            xp.zeros_like(y)
            if ddx is None
            else mul_grad(xp, ddx, y, d_out, **dims, needs=(False, True))[1]
        )
    if needs[2]:
        parts = [
            mul(xp, a, b, **dims) for a, b in ((ddx, y), (x, ddy)) if not (a is None or b is None)
        ]
        ddout = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return dx, dy, ddout
