"""Rows of a tensor in other sequences than they had, and images as sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dpexec.checks import NO_HALF, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import add_op

__all__ = ["im2sequence", "lod_append", "lod_reset"]


def lod_reset(
    x: Variable, y: Variable | None = None, target_lod: Sequence[int] | None = None
) -> Variable:
    """The same rows in other sequences.

    Args:
        x: ``(rows, ...)``, with sequences or without.
        y: has the sequences, any number of levels; or int32 ``(sequences + 1,)`` without any:
            the rows at which they begin, and the number of all rows.
        target_lod: these rows as numbers, ``[0, 2, 5]`` for sequences of 2 and 3 rows.

    Returns:
        Like ``x``. Source: Paddle op ``lod_reset``.

    Raises:
        ValueError: neither ``y`` nor ``target_lod`` is given.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 1])
        ...     words = fluid.layers.lod_reset(x, target_lod=[0, 2, 5])
        ...     sums = fluid.layers.sequence_pool(words, "sum")
        ...     feed = {"x": np.ones((5, 1), "float32")}
        ...     (rows,) = fluid.Executor().run(feed=feed, fetch_list=[sums])
        >>> rows.ravel().tolist()
        [2.0, 3.0]
    """
    check_variable_and_dtype(x, "x", NO_HALF, "lod_reset")
    if y is not None:
        check_type(y, "y", Variable, "lod_reset")
        return add_op("lod_reset", {"X": x, "Y": y}, x.dtype)
    if target_lod is None:
        raise ValueError("lod_reset needs y or target_lod")
    return add_op("lod_reset", {"X": x}, x.dtype, {"target_lod": target_lod})


def lod_append(x: Variable, level: Variable | Iterable[int]) -> Variable:
    """The same rows, with a finer level of sequences below those that there are.

    Args:
        x: ``(rows, ...)``.
        level: the rows at which the finer sequences begin, and the number of all rows; or a
            variable that has them, as for :func:`lod_reset`.

    Returns:
        Like ``x``, with one level more. Source: Paddle op ``lod_reset``.

    Raises:
        ValueError: ``level`` is neither numbers nor a variable.
    """
    if x is None:
        raise ValueError("lod_append needs x")
    if not isinstance(level, (Variable, Iterable)):
        raise ValueError(f"level in lod_append must be numbers or a variable, but is {level!r}")
    check_variable_and_dtype(x, "x", NO_HALF, "lod_append")
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {"append": True}
    if isinstance(level, Variable):
        inputs["Y"] = level
    else:
        attrs["target_lod"] = list(level)
    return add_op("lod_reset", inputs, x.dtype, attrs, layer="lod_append")


def im2sequence(
    input: Variable,
    filter_size: int | Sequence[int] = 1,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    input_image_size: Variable | None = None,
    out_stride: int | Sequence[int] = 1,
    name: str | None = None,
) -> Variable:
    """Every window over an image as a row, all windows of an image as a sequence.

    Args:
        input: images, float32 ``(N, C, H, W)``.
        filter_size: height and width of the window.
        stride: steps of the window.
        padding: what is added around images: for both axes, or top, left, bottom and right.
        input_image_size: heights and widths ``(N, 2)`` that the images had before they became
            ``out_stride`` times smaller; only windows over these are taken.
        out_stride: for height and width; used with ``input_image_size``.
        name: prefix of names.

    Returns:
        ``(windows, C * height * width)``. Source: Paddle op ``im2sequence``.
    """
    check_variable_and_dtype(input, "input", ("float32",), "im2sequence")
    paddings = _both(padding)
    attrs = {
        "kernels": _both(filter_size),
        "strides": _both(stride),
        "paddings": paddings * 2 if len(paddings) == 2 else paddings,
    }
    inputs = {"X": input}
    if input_image_size is not None:
        inputs["Y"] = input_image_size
        attrs["out_stride"] = _both(out_stride)
    return add_op("im2sequence", inputs, input.dtype, attrs, name=name)


def _both(value: Any) -> list[int]:
    """A number for both axes, or the numbers for each."""
    return [value, value] if isinstance(value, int) else list(value)
