"""Scaling of channels and weights."""

from __future__ import annotations

import math
from typing import Any

from dpexec.checks import SINGLE_DOUBLE, check_choice, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.initializer import Normal
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs
from dpexec.param_attr import ParamAttr

__all__ = ["affine_channel", "lrn", "spectral_norm"]


def affine_channel(
    x: Variable,
    scale: Variable | None = None,
    bias: Variable | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    act: str | None = None,
) -> Variable:
    """``scale * x + bias`` with one scale and one bias per channel.

    Args:
        x: ``(N, C, ...)``, or ``(N, ..., C)`` as ``data_layout`` says.
        scale: ``(C,)``.
        bias: ``(C,)``.
        data_layout: ``"NCHW"`` or ``"NHWC"``.
        name: prefix of names.
        act: name of an activation.

    Returns:
        The same shape. Source: Paddle op ``affine_channel``.

    Raises:
        TypeError: ``x`` is no variable of type float32 or float64.
        EnforceNotMet: ``scale`` or ``bias`` does not have one number per channel of ``x``.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 32, 32])
        ...     scale = fluid.data("scale", [3])
        ...     bias = fluid.data("bias", [3])
        ...     fluid.layers.affine_channel(x, scale, bias).shape
        (-1, 3, 32, 32)
    """
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, "affine_channel")
    check_type(scale, "scale", (Variable, type(None)), "affine_channel")
    check_type(bias, "bias", (Variable, type(None)), "affine_channel")
    inputs = {"X": x, "Scale": scale, "Bias": bias}
    attrs = {"data_layout": data_layout}
    return add_op("affine_channel", inputs, x.dtype, attrs, name=name, act=act)


def lrn(
    input: Variable,
    n: int = 5,
    k: float = 1.0,
    alpha: float = 0.0001,
    beta: float = 0.75,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Local response normalisation: ``input / (k + alpha * sum(input**2))**beta``.

    Args:
        input: float32 ``(N, C, H, W)``, or ``(N, H, W, C)`` as ``data_format`` says.
        n: number of neighbouring channels to sum over; odd.
        k: addend.
        alpha: factor of the sum.
        beta: exponent.
        name: prefix of names.
        data_format: ``"NCHW"`` or ``"NHWC"``.

    Returns:
        The same shape. Source: Paddle op ``lrn``; Krizhevsky and others, 2012.

    Raises:
        ValueError: the input does not have 4 dimensions, or the format is unknown.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 32, 32])
        ...     fluid.layers.lrn(x).shape
        (-1, 3, 32, 32)
    """
    check_variable_and_dtype(input, "input", ("float32",), "lrn")
    if len(input.shape) != 4:
        raise ValueError(f"lrn takes 4 dimensions, but {input.name} has the shape {input.shape}")
    check_choice(data_format, "data_format", ("NCHW", "NHWC"), "lrn")
    helper = LayerHelper("lrn", name=name)
    dtypes = {"MidOut": input.dtype, "Out": input.dtype}
    attrs = {"n": n, "k": k, "alpha": alpha, "beta": beta, "data_format": data_format}
    made = add_outputs(helper, {"X": input}, dtypes, attrs)
    made["MidOut"].stop_gradient = True
    return made["Out"]


def spectral_norm(
    weight: Variable,
    dim: int = 0,
    power_iters: int = 1,
    eps: float = 1e-12,
    name: str | None = None,
) -> Variable:
    """A weight divided by an estimate of its largest singular value.

    The gradient is the true derivative; the real Paddle uses another formula.

    Args:
        weight: 2 to 5 dimensions.
        dim: the dimension that becomes the rows of a matrix: 0 for ``fc``, 1 for convolutions.
        power_iters: number of power iterations; their vectors are persistable and start randomly.
        eps: added to lengths of vectors.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``spectral_norm``; Miyato and others, 2018.

    Raises:
        TypeError: ``weight`` is no variable of type float32 or float64.
        EnforceNotMet: ``weight`` does not have two to five dimensions, or ``power_iters`` is
            negative.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [8, 16])
        ...     fluid.layers.spectral_norm(x, dim=0, power_iters=2).shape
        (8, 16)
    """
    check_variable_and_dtype(weight, "weight", SINGLE_DOUBLE, "spectral_norm")
    check_type(dim, "dim", int, "spectral_norm")
    check_type(power_iters, "power_iters", int, "spectral_norm")
    check_type(eps, "eps", float, "spectral_norm")
    helper = LayerHelper("spectral_norm", name=name)
    rows = weight.shape[dim]

    def vector(size: int) -> Any:
        made = helper.create_parameter(
            ParamAttr(), [size], weight.dtype, default_initializer=Normal(0.0, 1.0)
        )
        made.stop_gradient = True
        return made

    inputs = {"Weight": weight, "U": vector(rows)}
    inputs["V"] = vector(math.prod(weight.shape) // rows)
    out = helper.create_variable(dtype=weight.dtype)
    attrs = {"dim": dim, "power_iters": power_iters, "eps": eps}
    helper.append_op(type="spectral_norm", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out
