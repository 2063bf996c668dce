"""Instance norm, group norm and per-channel factors, as formulas."""

from __future__ import annotations

from typing import Any

from dpexec.engine.kernels.formulas import Sheet, planes
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Value, lowering


@lowering("affine_channel")
def affine_channel(
    code: Code, x: Value, scale: Value, bias: Value, out: Value, *, data_layout: str
) -> Any:
    """One pass."""
    if not single(x, scale, bias):
        return False
    sheet = Sheet(code, planes(x, data_layout != "NCHW"))
    channels = sheet.left([0, 2])
    sheet.each("x * s + b", out, x=x, s=(scale, channels), b=(bias, channels))
    return sheet.done(out)


@lowering("affine_channel_grad")
def affine_channel_grad(
    code: Code, x: Value, scale: Value, d_out: Value, dx: Value | None, d_scale: Value | None,
    d_bias: Value | None, *, data_layout: str,
) -> Any:  # fmt: skip
    """One pass, and the sums over a channel."""
    if not single(x, scale, d_out):
        return False
    sheet = Sheet(code, planes(x, data_layout != "NCHW"))
    if dx is not None:
        sheet.each("d * s", dx, d=d_out, s=(scale, sheet.left([0, 2])))
    if d_scale is not None:
        sheet.total(sheet.each("d * x", d=d_out, x=x), [0, 2], d_scale)
    if d_bias is not None:
        sheet.total(d_out, [0, 2], d_bias)
    return sheet.done(dx, d_scale, d_bias)


def _standardized(
    sheet: Sheet, x: Value, axes: list[int], epsilon: float, mean: Value | None = None
) -> tuple[Value, Value, Value]:
    """The difference from the mean, the variance, and the inverse standard deviation."""
    row = sheet.left(axes)
    share = 1.0
    for axis in axes:
        share /= sheet.shape[axis]
    middle = sheet.total(x, axes, mean, share)
    above = sheet.each("x - m", x=x, m=(middle, row))
    variance = sheet.total(sheet.each("v * v", v=above), axes, None, share)
    inverse = sheet.each("one / sqrt(v + e)", None, row, {"e": epsilon}, v=variance)
    return above, variance, inverse


@lowering("instance_norm")
def instance_norm(
    code: Code, x: Value, scale: Value | None, bias: Value | None, y: Value, mean: Value | None,
    inverse: Value | None, *, epsilon: float,
) -> Any:  # fmt: skip
    """One plane after another."""
    if not single(x, scale, bias) or (scale is None) != (bias is None):
        return False
    sheet = Sheet(code, planes(x))
    above, _, found = _standardized(sheet, x, [2], epsilon, mean)
    row, channels = sheet.left([2]), sheet.left([0, 2])
    if inverse is not None:
        sheet.each("i", inverse, row, i=found)
    if scale is None or bias is None:
        sheet.each("a * i", y, a=above, i=(found, row))
    else:
        text = "a * i * s + b"
        sheet.each(text, y, a=above, i=(found, row), s=(scale, channels), b=(bias, channels))
    return sheet.done(y, mean, inverse)


@lowering("instance_norm_grad")
def instance_norm_grad(
    code: Code, x: Value, scale: Value | None, mean: Value, inverse: Value, d_y: Value,
    dx: Value | None, d_scale: Value | None, d_bias: Value | None, *, epsilon: float,
) -> Any:  # fmt: skip
    """One plane after another, and the sums over a channel."""
    if not single(x, scale, d_y):
        return False
    sheet = Sheet(code, planes(x))
    row, channels = sheet.left([2]), sheet.left([0, 2])
    normal = sheet.each("(x - m) * i", x=x, m=(mean, row), i=(inverse, row))
    if d_scale is not None:
        sheet.total(sheet.each("d * v", d=d_y, v=normal), [0, 2], d_scale)
    if d_bias is not None:
        sheet.total(d_y, [0, 2], d_bias)
    if dx is not None:
        scaled = d_y if scale is None else sheet.each("d * s", d=d_y, s=(scale, channels))
        share = 1.0 / sheet.shape[2]
        along = sheet.total(sheet.each("d * v", d=scaled, v=normal), [2], None, share)
        middle = sheet.total(scaled, [2], None, share)
        sheet.each(
            "(d - m - v * w) * i", dx, d=scaled, v=normal,
            m=(middle, row), w=(along, row), i=(inverse, row),
        )  # fmt: skip
    return sheet.done(dx, d_scale, d_bias)


@lowering("group_norm")
def group_norm(
    code: Code, x: Value, scale: Value | None, bias: Value | None, y: Value, mean: Value | None,
    variance: Value | None, *, groups: int, epsilon: float, data_layout: str,
) -> Any:  # fmt: skip
    """One group of channels after another."""
    ragged = x.shape[1] % groups if data_layout == "NCHW" else 1
    if ragged or scale is None or bias is None or not single(x, scale, bias):
        return False
    batch, channels, size = planes(x)
    sheet = Sheet(code, (batch, groups, channels // groups, size))
    above, found, inverse = _standardized(sheet, x, [2, 3], epsilon, mean)
    row, own = sheet.left([2, 3]), sheet.left([0, 3])
    if variance is not None:
        sheet.each("v", variance, row, v=found)
    sheet.each("a * i * s + b", y, a=above, i=(inverse, row), s=(scale, own), b=(bias, own))
    return sheet.done(y, mean, variance)
