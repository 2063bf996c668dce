"""Changing the sequences of a tensor's rows, and turning images into sequences."""

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
    """The same rows, divided into other sequences.

    Args:
        x: ``(rows, ...)``, with sequences or without.
        y: a variable whose sequences are used, with any number of levels; or an int32 variable
            ``(sequences + 1,)`` without sequences that holds offsets: the sequences' first rows,
            and the total number of rows.
        target_lod: the offsets as numbers, ``[0, 2, 5]`` for sequences of 2 and 3 rows.

    Returns:
        Like ``x``. Source: Paddle op ``lod_reset``.

    Raises:
        ValueError: neither ``y`` nor ``target_lod`` is given.

    See Also:
        :func:`lod_append`: one more level of sequences.

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
    """The same rows, with a finer level of sequences added.

    Args:
        x: ``(rows, ...)``.
        level: offsets of the finer sequences as for :func:`lod_reset`: numbers, or a variable.
            A variable with sequences replaces those of ``x``, as in Paddle.

    Returns:
        Like ``x``, with one more level. Source: Paddle op ``lod_reset``.

    Raises:
        ValueError: ``level`` is neither numbers nor a variable.

    See Also:
        :func:`lod_reset`: new sequences of the same rows.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1], [2], [3]], "float32"))
        ...     out = fluid.layers.lod_append(x, [0, 2, 3])
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(fetch_list=[out], return_numpy=False)
        >>> found.recursive_sequence_lengths()
        [[2, 1]]
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
    """Convert each image to a sequence of rows, one row for each window.

    Args:
        input: images, float32 ``(N, C, H, W)``.
        filter_size: height and width of the window.
        stride: distance between windows.
        padding: padding around images: one number, two (for both axes), or four (top, left, bottom,
            right).
        input_image_size: heights and widths ``(N, 2)`` of the images before they were downscaled by
            ``out_stride``; only windows within these sizes are used.
        out_stride: scale of height and width; used with ``input_image_size``.
        name: prefix of names.

    Returns:
        ``(windows, C * height * width)``. Source: Paddle op ``im2sequence``.

    Raises:
        TypeError: ``input`` is no variable of type float32.
        EnforceNotMet: ``input`` is no images, or a size is not one number or two.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 1, 4, 4])
        ...     fluid.layers.im2sequence(x, filter_size=2, stride=2).shape
        (-1, 4)
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
    """Expand one number to both axes."""
    return [value, value] if isinstance(value, int) else list(value)
