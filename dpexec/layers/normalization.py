"""Normalisation with trainable scale and shift."""

from __future__ import annotations

import math
from typing import Any

import dpexec.engine.ops  # noqa: F401 - the operators that layers are made from
from dpexec.checks import (
    SINGLE_DOUBLE,
    check_choice,
    check_variable_and_dtype,
)
from dpexec.engine.ir.callsite import warn
from dpexec.engine.ir.variable import Variable
from dpexec.initializer import Constant
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs
from dpexec.param_attr import ParamAttr

__all__ = ["data_norm", "group_norm", "instance_norm", "l2_normalize", "layer_norm"]


def layer_norm(
    input: Variable,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Normalise every sample with its own mean and variance.

    Args:
        input: any shape.
        scale: multiply by trainable factors, which start at 1.
        shift: add trainable terms, which start at 0.
        begin_norm_axis: dimensions from here on are normalised together.
        epsilon: added to the variance.
        param_attr: attributes of the factors.
        bias_attr: attributes of the terms.
        act: name of an activation.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``layer_norm``; Ba, Kiros, Hinton, 2016.

    Raises:
        AssertionError: ``param_attr`` is False with ``scale``, or ``bias_attr`` with ``shift``.
        TypeError: ``input`` is no variable, or not of floats.

    See Also:
        :func:`batch_norm`: over the batch.
        :func:`group_norm`: over groups of channels.
        :func:`instance_norm`: over each image and channel.
        :func:`data_norm`: by statistics that are trained along.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 16])
        ...     fluid.layers.layer_norm(x).shape
        (-1, 16)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "layer_norm")
    helper = LayerHelper(
        "layer_norm", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    shape = [math.prod(input.shape[begin_norm_axis:])]
    inputs = {"X": input}
    if scale:
        if param_attr is False:
            raise AssertionError("param_attr of layer_norm cannot be False with scale")
        inputs["Scale"] = helper.create_parameter(
            helper.param_attr, shape, input.dtype, default_initializer=Constant(1.0)
        )
    elif param_attr:
        warn("param_attr of layer_norm has no effect without scale")
    if shift:
        if bias_attr is False:
            raise AssertionError("bias_attr of layer_norm cannot be False with shift")
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, shape, input.dtype, is_bias=True)
    elif bias_attr:
        warn("bias_attr of layer_norm has no effect without shift")
    dtypes = dict.fromkeys(("Mean", "Variance", "Y"), input.dtype)
    attrs = {"epsilon": epsilon, "begin_norm_axis": begin_norm_axis}
    made = add_outputs(helper, inputs, dtypes, attrs)
    made["Mean"].stop_gradient = made["Variance"].stop_gradient = True
    return helper.append_activation(made["Y"])


def instance_norm(
    input: Variable,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Variable:
    """Normalise every channel of every sample with its own mean and variance.

    Args:
        input: ``(N, C, ...)``.
        epsilon: added to the variance.
        param_attr: attributes of the scale, which starts at 1.
        bias_attr: attributes of the shift, which starts at 0.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``instance_norm``; Ulyanov and others, 2016.

    Raises:
        AssertionError: ``bias_attr`` is False.
        TypeError: ``input`` is no variable, or not of floats.

    See Also:
        :func:`batch_norm`: over the batch.
        :func:`layer_norm`: over the features of a row.
        :func:`group_norm`: over groups of channels.
        :func:`data_norm`: by statistics that are trained along.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 32, 32])
        ...     fluid.layers.instance_norm(x).shape
        (-1, 3, 32, 32)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "instance_norm")
    if bias_attr is False:
        raise AssertionError("bias_attr of instance_norm cannot be False")
    helper = LayerHelper("instance_norm", param_attr=param_attr, bias_attr=bias_attr, name=name)
    shape, dtype = [input.shape[1]], input.dtype
    inputs = {
        "X": input,
        "Scale": helper.create_parameter(
            helper.param_attr, shape, dtype, default_initializer=Constant(1.0)
        ),
        "Bias": helper.create_parameter(helper.bias_attr, shape, dtype, is_bias=True),
    }
    dtypes = dict.fromkeys(("SavedMean", "SavedVariance", "Y"), dtype)
    made = add_outputs(helper, inputs, dtypes, {"epsilon": epsilon})
    made["SavedMean"].stop_gradient = made["SavedVariance"].stop_gradient = True
    return made["Y"]


def group_norm(
    input: Variable,
    groups: int,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Normalise groups of channels of every sample with their own mean and variance.

    Args:
        input: ``(N, C, H, W)``, or ``(N, H, W, C)`` as ``data_layout`` says.
        groups: number of groups; must divide C.
        epsilon: added to the variance.
        param_attr: attributes of a scale; None or False for none, as in fluid 1.8.
        bias_attr: attributes of a shift; None or False for none, as in fluid 1.8.
        act: name of an activation.
        data_layout: ``"NCHW"`` or ``"NHWC"``.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``group_norm``; Wu, He, 2018.

    Raises:
        TypeError: ``input`` is no variable of type float32 or float64.
        EnforceNotMet: ``groups`` is not between 1 and the number of channels.

    See Also:
        :func:`batch_norm`: over the batch.
        :func:`layer_norm`: over the features of a row.
        :func:`instance_norm`: over each image and channel.
        :func:`data_norm`: by statistics that are trained along.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 8, 32, 32])
        ...     fluid.layers.group_norm(x, groups=4).shape
        (-1, 8, 32, 32)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "group_norm")
    check_choice(data_layout, "data_layout", ("NCHW", "NHWC"), "group_norm")
    helper = LayerHelper(
        "group_norm", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    shape, dtype = [input.shape[1 if data_layout == "NCHW" else -1]], input.dtype
    inputs = {"X": input}
    if param_attr:
        inputs["Scale"] = helper.create_parameter(
            helper.param_attr, shape, dtype, default_initializer=Constant(1.0)
        )
    if bias_attr:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, shape, dtype, is_bias=True)
    outputs = {
        "Mean": helper.create_variable(dtype=dtype, stop_gradient=True),
        "Variance": helper.create_variable(dtype=dtype, stop_gradient=True),
        "Y": helper.create_variable(dtype=dtype),
    }
    attrs = {"epsilon": epsilon, "groups": groups, "data_layout": data_layout}
    helper.append_op(type="group_norm", inputs=inputs, outputs=outputs, attrs=attrs)
    return helper.append_activation(outputs["Y"])


def data_norm(
    input: Variable,
    act: str | None = None,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    slot_dim: int = -1,
    sync_stats: bool = False,
    summary_decay_rate: float = 0.9999999,
    enable_scale_and_shift: bool = False,
) -> Variable:
    """Normalise features by sums over all batches; the sums are parameters.

    Args:
        input: ``(N, features)``.
        act: name of an activation.
        epsilon: at most 0.001; added to the sum of squares, once per sample.
        param_attr: a dict with the starting values ``batch_size`` (1e4), ``batch_sum`` (0),
            ``batch_square`` (1e4), ``scale_w`` (1) and ``bias`` (0).
        data_layout: ``"NCHW"`` or ``"NHWC"``.
        in_place: write the result to ``input`` itself.
        name: prefix of the parameters; None for ``dn``.
        moving_mean_name: ignored; accepted for compatibility.
        moving_variance_name: ignored; accepted for compatibility.
        do_model_average_for_mean_and_var: ignored; accepted for compatibility.
        slot_dim: number of features per slot; slots whose first feature is 0 are set to 0.
        sync_stats: ignored; accepted for compatibility.
        summary_decay_rate: ignored; accepted for compatibility.
        enable_scale_and_shift: multiply and add trainable numbers.

    Returns:
        The same shape. Source: Paddle op ``data_norm``.

    Raises:
        ValueError: there is no such layout.

    See Also:
        :func:`batch_norm`: over the batch.
        :func:`layer_norm`: over the features of a row.
        :func:`group_norm`: over groups of channels.
        :func:`instance_norm`: over each image and channel.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 8])
        ...     fluid.layers.data_norm(x).shape
        (-1, 8)
    """
    helper = LayerHelper("data_norm", input=input, act=act, name=name)
    check_choice(data_layout, "data_layout", ("NCHW", "NHWC"), "data_norm")
    dtype, shape = helper.input_dtype(), [input.shape[1 if data_layout == "NCHW" else -1]]
    starts = {"batch_size": 1e4, "batch_sum": 0.0, "batch_square": 1e4, "scale_w": 1.0, "bias": 0.0}
    starts.update(param_attr or {})

    def parameter(suffix: str, start: float) -> Any:
        initializer = Constant(float(start))
        attr = ParamAttr(name=f"{name or 'dn'}.{suffix}", initializer=initializer, trainable=True)
        return helper.create_parameter(attr, shape, dtype)

    inputs, attrs = {"X": input}, {"epsilon": epsilon, "sync_stats": sync_stats}
    attrs["summary_decay_rate"] = summary_decay_rate
    if slot_dim > 0:
        attrs["slot_dim"] = slot_dim
    if enable_scale_and_shift:
        attrs["enable_scale_and_shift"] = True
        inputs |= {slot: parameter(slot, starts[slot]) for slot in ("scale_w", "bias")}
    inputs["BatchSize"] = parameter("batch_size", starts["batch_size"])
    inputs["BatchSum"] = parameter("batch_sum", starts["batch_sum"])
    inputs["BatchSquareSum"] = parameter("batch_square_sum", starts["batch_square"])
    outputs = {
        "Means": helper.create_variable(dtype=dtype, stop_gradient=True),
        "Scales": helper.create_variable(dtype=dtype, stop_gradient=True),
        "Y": input if in_place else helper.create_variable(dtype=dtype),
    }
    helper.append_op(type="data_norm", inputs=inputs, outputs=outputs, attrs=attrs)
    return helper.append_activation(outputs["Y"])


def l2_normalize(
    x: Variable, axis: int | None, epsilon: float = 1e-12, name: str | None = None
) -> Variable:
    """``x`` divided by its L2 norm along an axis.

    Args:
        x: any shape.
        axis: axis to normalise along; None for axis 1.
        epsilon: added under the root.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``norm``.

    Raises:
        TypeError: ``x`` is no variable of type float32 or float64.
        EnforceNotMet: ``axis`` is not one of ``x``.

    See Also:
        :func:`clip`: limits each element.
        :func:`clip_by_norm`: limits the length of the whole.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[3.0, 4.0]], "float32"))
        ...     out = fluid.layers.l2_normalize(x, axis=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[0.6, 0.8]], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, "l2_normalize")
    axis = 0 if len(x.shape) == 1 else 1 if axis is None else axis
    helper = LayerHelper("l2_normalize", name=name)
    attrs = {"axis": axis, "epsilon": epsilon}
    dtypes = {"Out": x.dtype, "Norm": x.dtype}
    return add_outputs(helper, {"X": x}, dtypes, attrs, op_type="norm")["Out"]
