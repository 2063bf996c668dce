"""Padding of tensors and images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import NUMBERS, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import add_op, number_or_tensor

__all__ = ["pad", "pad2d"]


def pad(
    x: Variable, paddings: Sequence[int], pad_value: float = 0.0, name: str | None = None
) -> Variable:
    """Pad ``x`` with a constant.

    Args:
        x: any shape.
        paddings: number of elements to add before and after, for each dimension in turn.
        pad_value: the constant.
        name: prefix of names.

    Returns:
        The padded variable. Source: Paddle op ``pad``.

    Raises:
        TypeError: ``x`` is no variable of type float16, float32, float64, int32 or int64.
        EnforceNotMet: ``paddings`` does not hold two numbers for each dimension of ``x``.

    See Also:
        :func:`pad2d`: images.
        :func:`pad_constant_like`: to the shape of another variable.
        :func:`sequence_pad`: sequences.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0], "float32"))
        ...     out = fluid.layers.pad(x, paddings=[0, 1], pad_value=9.0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([1., 2., 9.], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", NUMBERS, "pad")
    attrs = {"paddings": list(paddings), "pad_value": float(pad_value)}
    return add_op("pad", {"X": x}, x.dtype, attrs, name=name)


def pad2d(
    input: Variable,
    paddings: Sequence[int] | Variable = (0, 0, 0, 0),
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Pad images.

    Args:
        input: ``(N, C, H, W)``, or ``(N, H, W, C)`` as ``data_format`` says.
        paddings: number of pixels to add at top, bottom, left, right; or an int32 variable of
            these four.
        mode: ``"constant"``, ``"reflect"`` or ``"edge"``.
        pad_value: the constant.
        data_format: ``"NCHW"`` or ``"NHWC"``.
        name: prefix of names.

    Returns:
        The padded images. Source: Paddle op ``pad2d``.

    Raises:
        AssertionError: there is no such mode.
        TypeError: ``input`` is no variable, or not of numbers.

    See Also:
        :func:`pad`: any axes.
        :func:`pad_constant_like`: to the shape of another variable.
        :func:`sequence_pad`: sequences.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[[[1.0, 2.0]]]], "float32"))
        ...     out = fluid.layers.pad2d(x, paddings=[0, 0, 1, 1])
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[[[0., 1., 2., 0.]]]], dtype=float32)]
    """
    check_variable_and_dtype(input, "input", NUMBERS, "pad2d")
    if mode not in ("reflect", "edge", "constant"):
        raise AssertionError(f"pad2d has no mode {mode!r}")
    inputs: dict[str, Any] = {"X": input}
    attrs = {"mode": mode, "pad_value": float(pad_value), "data_format": data_format}
    attrs["paddings"] = []  # as in the original, if a variable has them
    number_or_tensor(paddings, "Paddings", "paddings", inputs, attrs)
    return add_op("pad2d", inputs, input.dtype, attrs, name=name)
