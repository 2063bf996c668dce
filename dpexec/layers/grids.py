"""Layers that sample images at given positions."""

from __future__ import annotations

from typing import Any

from dpexec.checks import SINGLE_DOUBLE, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import add_op
from dpexec.layers.resizing import Size

__all__ = ["affine_grid", "grid_sampler"]


def affine_grid(theta: Variable, out_shape: Size, name: str | None = None) -> Variable:
    """The sampling points of an affine transformation, for :func:`grid_sampler`.

    Args:
        theta: ``(N, 2, 3)``.
        out_shape: N, C, H and W: numbers, or an int32 variable with all four.
        name: ignored.

    Returns:
        ``(N, H, W, 2)``: x and y of each pixel, from -1 to 1. Source: Paddle op ``affine_grid``;
        Jaderberg and others, 2015.

    Raises:
        ValueError: ``out_shape`` has the wrong type.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     theta = fluid.data("theta", [2, 2, 3])
        ...     fluid.layers.affine_grid(theta, out_shape=[2, 3, 8, 8]).shape
        (2, -1, -1, 2)
    """
    check_variable_and_dtype(theta, "theta", SINGLE_DOUBLE, "affine_grid")
    if not isinstance(out_shape, (list, tuple, Variable)):
        raise ValueError(f"out_shape must be a list, tuple or Variable, but is {out_shape!r}")
    inputs: dict[str, Any] = {"Theta": theta}
    attrs: dict[str, Any] = {}
    if isinstance(out_shape, Variable):
        check_variable_and_dtype(out_shape, "out_shape", ("int32",), "affine_grid")
        inputs["OutputShape"] = out_shape
    else:
        attrs["output_shape"] = list(out_shape)
    return add_op("affine_grid", inputs, theta.dtype, attrs, slot="Output")


def grid_sampler(x: Variable, grid: Variable, name: str | None = None) -> Variable:
    """Sample images at given points, with bilinear interpolation.

    Args:
        x: ``(N, C, H, W)``.
        grid: ``(N, H, W, 2)``: x and y of each point, from -1 (centre of the first column or row)
            to 1 (centre of the last one), as :func:`affine_grid` gives them. Pixels outside of
            the image count as 0.
        name: prefix of names.

    Returns:
        ``(N, C, H, W)``. Source: Paddle op ``grid_sampler``; Jaderberg and others, 2015.

    Raises:
        TypeError: ``x`` or ``grid`` is no variable of type float32 or float64.
        EnforceNotMet: ``x`` is no images, or ``grid`` is not ``(samples, height, width, 2)`` with
            as many samples.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 32, 32])
        ...     grid = fluid.data("grid", [None, 32, 32, 2])
        ...     fluid.layers.grid_sampler(x, grid).shape
        (-1, 3, 32, 32)
    """
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, "grid_sampler")
    check_variable_and_dtype(grid, "grid", SINGLE_DOUBLE, "grid_sampler")
    return add_op("grid_sampler", {"X": x, "Grid": grid}, x.dtype, slot="Output", name=name)
