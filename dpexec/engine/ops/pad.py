"""``pad`` and ``pad2d``: tensors with a margin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._kept_rows import with_rows
from dpexec.engine.ops._rows import added_rows

Ints = Sequence[int]


def _infer(x: Spec, *, paddings: Ints) -> Spec:
    require(
        len(paddings) == 2 * x.rank and all(width >= 0 for width in paddings),
        f"paddings are {list(paddings)}, but must be two numbers for every dimension of X {x}",
    )
    return with_rows(x, _resized(x.shape, paddings, 1))


def _resized(shape: Ints, paddings: Ints, sign: int) -> tuple[int, ...]:
    margins = [paddings[2 * i] + paddings[2 * i + 1] for i in range(len(shape))]
    return tuple(d if d < 0 else d + sign * m for d, m in zip(shape, margins, strict=True))


@op(
    "pad",
    inputs="X",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3))}, {"paddings": [0, 1, 2, 0]}),
        Sample({"X": r.normal((2, 1, 2))}, {"paddings": [1, 0, 0, 2, 1, 1], "pad_value": -1.0}),
        Sample(
            {"X": np.array([[1.0, 2.0]])},
            {"paddings": [0, 1, 1, 0], "pad_value": 9.0},
            expected={"Out": np.array([[9.0, 1.0, 2.0], [9.0, 9.0, 9.0]])},
        ),
        Sample(
            {"X": r.normal((4, 6))},
            {"paddings": [0, 0, 0, 2]},
            deviates={
                "X@GRAD": "takes wrong elements for some sizes, such as rows of 6 padded to 8; "
                "dpexec takes the right ones"
            },
        ),
    ],
    rows_stay=lambda op, x, out: not any(op.attr("paddings")[:2]),
    flops=0,
)
def pad(xp: Any, x: Any, *, paddings: Ints, pad_value: float = 0.0) -> Any:
    """``x`` with ``paddings[2*i]`` and ``paddings[2*i + 1]`` times ``pad_value`` around axis ``i``.

    Source: Paddle op ``pad``.
    """
    out = xp.full(_resized(x.shape, paddings, 1), pad_value, x.dtype)
    out[_inside(x.shape, paddings)] = x
    return out


def _inside(shape: Ints, paddings: Ints) -> tuple[slice, ...]:
    return tuple(slice(paddings[2 * i], paddings[2 * i] + d) for i, d in enumerate(shape))


def _infer_grad(d_out: Spec, *, paddings: Ints = ()) -> Spec:
    return d_out.replace(shape=_resized(d_out.shape, paddings, -1))


@pad.grad("Out@GRAD", outputs="X@GRAD", infer=_infer_grad)
def pad_grad(xp: Any, d_out: Any, *, paddings: Ints = ()) -> Any:
    """The gradient without its margin; a view."""
    return d_out[_inside(_resized(d_out.shape, paddings, -1), paddings)]


def _margins(paddings: Ints, data_format: str, rank: int) -> list[int]:
    """Paddings of height and width as paddings of every dimension."""
    before = 2 if data_format == "NCHW" else 1
    return [0, 0] * before + list(paddings) + [0, 0] * (rank - 2 - before)


def _infer_2d(
    x: Spec,
    tensor: Spec | None,
    *,
    paddings: Ints,
    mode: str = "constant",
    data_format: str = "NCHW",
) -> Spec:
    require(x.rank == 4, f"X {x} must have four dimensions")
    require(data_format in ("NCHW", "NHWC"), f"data_format is {data_format}, not NCHW or NHWC")
    require(
        mode in ("constant", "reflect", "edge"),
        f"mode is {mode}, but must be constant, reflect or edge",
    )
    if tensor is not None:
        before = 2 if data_format == "NCHW" else 1
        return x.replace(shape=(*x.shape[:before], -1, -1, *x.shape[before + 2 :]))
    require(
        len(paddings) == 4 and all(width >= 0 for width in paddings),
        f"paddings are {list(paddings)}, but must be four numbers that are not negative",
    )
    margins = _margins(paddings, data_format, x.rank)
    for axis, size in enumerate(x.shape):
        widest = max(margins[2 * axis : 2 * axis + 2])
        require(
            mode != "reflect" or size < 0 or widest < size,
            f"dimension {axis} of X {x} is too small to be reflected {widest} times",
        )
    return x.replace(shape=_resized(x.shape, margins, 1))


def _paddings(paddings: Ints, tensor: Any) -> Ints:
    return paddings if tensor is None else [int(width) for width in tensor.reshape(-1)]


def _source(size: int, before: int, after: int, mode: str) -> np.ndarray[Any, Any]:
    """For every position along a padded axis, the position of its value in the image."""
    positions = np.arange(-before, size + after)
    if mode == "edge":
        return positions.clip(0, size - 1)
    return size - 1 - np.abs(size - 1 - np.abs(positions))


@op(
    "pad2d",
    inputs="X Paddings?",
    infer=_infer_2d,
    samples=lambda r: [
        *(
            Sample({"X": r.normal((2, 2, 3, 4))}, {"paddings": [1, 2, 0, 3], "mode": mode})
            for mode in ("constant", "edge")
        ),
        Sample({"X": r.normal((1, 2, 4, 5))}, {"paddings": [1, 2, 3, 0], "mode": "reflect"}),
        Sample(
            {"X": r.normal((1, 3, 2, 2))},
            {"paddings": [1, 0, 0, 1], "data_format": "NHWC", "mode": "edge"},
        ),
        Sample(
            {"X": r.normal((1, 1, 2, 2)), "Paddings": np.array([1, 0, 2, 0], np.int32)},
            {"paddings": [0, 0, 0, 0]},
        ),
        Sample(
            {"X": np.arange(1.0, 10.0).reshape(1, 1, 3, 3)},
            {"paddings": [1, 0, 0, 2], "mode": "reflect"},
            expected={
                "Out": np.array(
                    [[[[4, 5, 6, 5, 4], [1, 2, 3, 2, 1], [4, 5, 6, 5, 4], [7, 8, 9, 8, 7.0]]]]
                )
            },
        ),
    ],
    host_inputs="Paddings",
    flops=0,
)
def pad2d(
    xp: Any,
    x: Any,
    tensor: Any,
    *,
    paddings: Ints,
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
) -> Any:
    """Images with ``paddings`` (top, bottom, left, right) around them.

    The margin holds ``pad_value``, or the image mirrored at its edge (``reflect``), or its edge
    (``edge``). ``Paddings`` replaces the attribute. Source: Paddle op ``pad2d``.
    """
    margins = _margins(_paddings(paddings, tensor), data_format, x.ndim)
    if mode == "constant":
        return pad(xp, x, paddings=margins, pad_value=pad_value)
    for axis, size in enumerate(x.shape):
        before, after = margins[2 * axis], margins[2 * axis + 1]
        if before or after:
            x = xp.take(x, xp.asarray(_source(size, before, after, mode)), axis=axis)
    return x


@pad2d.grad("X", "Paddings?", "Out@GRAD", outputs="X@GRAD", dense=True)
def pad2d_grad(
    xp: Any,
    x: Any,
    tensor: Any,
    d_out: Any,
    *,
    paddings: Ints = (),
    mode: str = "constant",
    data_format: str = "NCHW",
) -> Any:
    """The gradients of all copies of a pixel, added up."""
    margins = _margins(_paddings(paddings, tensor), data_format, x.ndim)
    if mode == "constant":
        return pad_grad(xp, d_out, paddings=margins)
    for axis, size in enumerate(x.shape):
        before, after = margins[2 * axis], margins[2 * axis + 1]
        if before or after:
            lines = xp.asarray(_source(size, before, after, mode))
            moved = xp.ascontiguousarray(xp.moveaxis(d_out, axis, 0))
            summed = added_rows(xp, lines, moved, (size, *moved.shape[1:]))
            d_out = xp.moveaxis(summed, 0, axis)
    return d_out
