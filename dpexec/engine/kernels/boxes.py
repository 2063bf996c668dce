"""Boxes of detectors: prior boxes, overlaps, and boxes relative to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import OpDef
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Constant, Value, keywords, lowering
from dpexec.engine.kernels.machine import Count, Floats, Number, kernel
from dpexec.engine.kernels.math import exp, log
from dpexec.engine.kernels.shapes import move
from dpexec.engine.ops.anchor_generator import anchor_generator
from dpexec.engine.ops.density_prior_box import density_prior_box
from dpexec.engine.ops.prior_box import prior_box

__all__: list[str] = []

_F = np.float32
_ZERO, _HALF, _ONE = _F(0), _F(0.5), _F(1)


# ---- boxes that follow from shapes alone


class _Shaped:
    """Stands for an array of which only shape and type count."""

    def __init__(self, value: Value) -> None:
        self.shape = tuple(map(int, (1, *value.shape[1:])))
        self.dtype = value.dtype


def _declare(definition: OpDef) -> None:
    """Let boxes, which are computed once, be copied."""

    @lowering(definition.type, attrs=keywords(definition.kernel))
    def boxes_of(code: Code, *values: Value | None, **attrs: Any) -> Any:
        """One copy."""
        inputs, outs = values[:-2], values[-2:]
        if not single(*inputs):
            return False
        made = definition.kernel(np, *(_Shaped(value) for value in inputs if value), **attrs)
        for out, array in zip(outs, made, strict=True):
            if out is not None:
                given = Constant(np.asarray(array, np.float32))
                move(code, given, out, (out.size,), (0, [1]), (0, [1]))


for _definition in (prior_box, density_prior_box, anchor_generator):
    _declare(_definition)


# ---- pairs of boxes


@kernel
def _overlaps(n: Count, m: Count, x: Floats, y: Floats, extra: Number, out: Floats) -> int:
    """Intersection over union of all pairs.

    Arguments: boxes, other boxes, these, how much longer than the difference of ends a side is,
        result.
    """
    for i in range(n):
        left, top, right, bottom = x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]
        area = (right - left + extra) * (bottom - top + extra)
        for j in range(m):
            x0, y0, x1, y1 = y[4 * j], y[4 * j + 1], y[4 * j + 2], y[4 * j + 3]
            across = max(min(right, x1) - max(left, x0) + extra, _ZERO)
            down = max(min(bottom, y1) - max(top, y0) + extra, _ZERO)
            shared = across * down
            covered = area + (x1 - x0 + extra) * (y1 - y0 + extra) - shared
            out[i * m + j] = shared / (_ONE if covered == _ZERO else covered)
    return 0


@lowering("iou_similarity")
def iou_similarity(
    code: Code, x: Value, lod: Value | None, y: Value, out: Value, *, box_normalized: bool
) -> Any:
    """One look at every pair."""
    if not single(x, y):
        return False
    code.emit(_overlaps, x.shape[0], y.shape[0], x, y, 0.0 if box_normalized else 1.0, out)


@kernel
def _encode(
    n: Count, m: Count, target: Floats, prior: Floats, extra: Number, step: Count, factors: Floats,
    out: Floats,
) -> int:  # fmt: skip
    """Centres and sizes of boxes relative to those of prior boxes.

    Arguments: boxes, prior boxes, these; how much longer than the difference of ends a side is;
        how far apart the variances of two prior boxes are, variances; result.
    """
    for i in range(n):
        t = 4 * i
        x, y = (target[t] + target[t + 2]) * _HALF, (target[t + 1] + target[t + 3]) * _HALF
        w, h = target[t + 2] - target[t] + extra, target[t + 3] - target[t + 1] + extra
        for j in range(m):
            p, f, o = 4 * j, step * j, 4 * (i * m + j)
            width, height = prior[p + 2] - prior[p] + extra, prior[p + 3] - prior[p + 1] + extra
            out[o] = (x - (prior[p] + width * _HALF)) / width / factors[f]
            out[o + 1] = (y - (prior[p + 1] + height * _HALF)) / height / factors[f + 1]
            out[o + 2] = log(abs(w / width)) / factors[f + 2]
            out[o + 3] = log(abs(h / height)) / factors[f + 3]
    return 0


@kernel
def _decode(
    n: Count, m: Count, across: Count, target: Floats, prior: Floats, extra: Number, step: Count,
    factors: Floats, out: Floats,
) -> int:  # fmt: skip
    """Boxes from centres and sizes relative to those of prior boxes.

    Arguments: rows and columns of boxes; whether each column has a prior box, else each row;
        further ones as for ``_encode``.
    """
    for i in range(n):
        for j in range(m):
            k, o = j if across else i, 4 * (i * m + j)
            p, f = 4 * k, step * k
            width, height = prior[p + 2] - prior[p] + extra, prior[p + 3] - prior[p + 1] + extra
            x = target[o] * factors[f] * width + (prior[p] + width * _HALF)
            y = target[o + 1] * factors[f + 1] * height + (prior[p + 1] + height * _HALF)
            w = exp(target[o + 2] * factors[f + 2]) * width * _HALF
            h = exp(target[o + 3] * factors[f + 3]) * height * _HALF
            out[o], out[o + 1] = x - w, y - h
            out[o + 2], out[o + 3] = x + w - extra, y + h - extra
    return 0


@lowering("box_coder")
def box_coder(
    code: Code, prior: Value, variances: Value | None, target: Value, lod: Value | None,
    out: Value, *, code_type: str, box_normalized: bool, axis: int, variance: Sequence[float],
) -> Any:  # fmt: skip
    """One look at every pair."""
    if not single(prior, variances, target):
        return False
    given = Constant(np.array(variance or [1.0] * 4, np.float32))
    about = (
        *(target, prior, 0.0 if box_normalized else 1.0),
        *((0, given) if variances is None else (4, variances)),
    )
    if code_type == "encode_center_size":
        code.emit(_encode, target.shape[0], prior.shape[0], *about, out)
    else:
        code.emit(_decode, *target.shape[:2], int(axis == 0), *about, out)
