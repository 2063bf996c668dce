"""Normalisation with the mean and variance of the batch."""

from __future__ import annotations

from typing import Any

from dpexec.checks import FLOATS, SINGLE_DOUBLE, check_choice, check_variable_and_dtype
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.initializer import Constant
from dpexec.layer_helper import LayerHelper
from dpexec.param_attr import ParamAttr

__all__ = ["batch_norm", "inplace_abn"]


def batch_norm(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float | Variable = 0.9,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
) -> Variable:
    """Normalise every channel with the mean and variance of the batch.

    Args:
        input: ``(N, C, ...)``, or ``(N, ..., C)`` as ``data_layout`` says.
        act: name of an activation.
        is_test: use the moving mean and variance.
        momentum: weight of the old moving mean and variance in each update.
        epsilon: added to the variance.
        param_attr: attributes of the scale, which starts at 1.
        bias_attr: attributes of the shift, which starts at 0.
        data_layout: ``"NCHW"`` or ``"NHWC"``.
        in_place: write to ``input`` itself.
        name: prefix of names.
        moving_mean_name: name of the variable with the moving mean; None makes one up. Layers that
            give the same name share it.
        moving_variance_name: likewise, of the moving variance.
        do_model_average_for_mean_and_var: whether ModelAverage includes both.
        use_global_stats: use the moving mean and variance while training, too.

    Returns:
        The same shape. Source: Paddle op ``batch_norm``; Ioffe, Szegedy, 2015.

    Raises:
        AssertionError: ``bias_attr`` is False.
        TypeError: ``input`` is no variable, or not of floats.
        ValueError: there is no such ``data_layout``.

    See Also:
        :func:`layer_norm`: over the features of a row.
        :func:`group_norm`: over groups of channels.
        :func:`instance_norm`: over each image and channel.
        :func:`data_norm`: by statistics that are trained along.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 32, 32])
        ...     fluid.layers.batch_norm(x, act="relu").shape
        (-1, 3, 32, 32)
    """
    if bias_attr is False:
        raise AssertionError("bias_attr of batch_norm cannot be False")
    check_variable_and_dtype(input, "input", FLOATS, "batch_norm")
    check_choice(data_layout, "data_layout", ("NCHW", "NHWC"), "batch_norm")
    helper = LayerHelper(
        "batch_norm", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    attrs = {
        "epsilon": epsilon,
        "is_test": is_test,
        "data_layout": data_layout,
        "use_global_stats": use_global_stats,
    }
    names, averaged = (moving_mean_name, moving_variance_name), do_model_average_for_mean_and_var
    out = _normalized(helper, input, in_place, names, averaged, momentum, attrs)
    return helper.append_activation(out)


def inplace_abn(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float | Variable = 0.9,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
    act_alpha: float = 1.0,
) -> Variable:
    """Batch normalisation and an activation, computed in place of the input.

    Args:
        input: as for :func:`batch_norm`; overwritten with the result.
        act: None or ``"identity"``, ``"leaky_relu"``, ``"elu"``.
        is_test: use the moving mean and variance.
        momentum: weight of the old moving mean and variance in each update.
        epsilon: added to the variance.
        param_attr: attributes of the scale, which starts at 1.
        bias_attr: attributes of the shift, which starts at 0.
        data_layout: ``"NCHW"`` or ``"NHWC"``.
        name: prefix of names.
        moving_mean_name: name of the variable with the moving mean; None makes one up. Layers that
            give the same name share it.
        moving_variance_name: likewise, of the moving variance.
        do_model_average_for_mean_and_var: whether ModelAverage includes both.
        use_global_stats: use the moving mean and variance while training, too.
        act_alpha: slope of ``leaky_relu`` below 0; factor of ``elu`` below 0.

    Returns:
        ``input``. Source: Paddle op ``inplace_abn``; Rota Bulò and others, 2018.

    Raises:
        AssertionError: ``bias_attr`` is False.
        TypeError: ``input`` is no variable, or not of floats.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 8, 8])
        ...     fluid.layers.inplace_abn(x, act="leaky_relu").shape
        (-1, 3, 8, 8)
    """
    layer = "inplace_abn"
    if bias_attr is False:
        raise AssertionError("bias_attr of inplace_abn cannot be False")
    check_choice(act, "act", (None, "identity", "leaky_relu", "elu"), layer)
    check_choice(data_layout, "data_layout", ("NCHW", "NHWC"), layer)
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, layer)
    helper = LayerHelper(layer, param_attr=param_attr, bias_attr=bias_attr, name=name)
    attrs = {
        "epsilon": epsilon,
        "is_test": is_test,
        "data_layout": data_layout,
        "use_global_stats": use_global_stats,
        "activation": act or "",
        "alpha": act_alpha,
    }
    names, averaged = (moving_mean_name, moving_variance_name), do_model_average_for_mean_and_var
    return _normalized(helper, input, True, names, averaged, momentum, attrs)


def _normalized(
    helper: LayerHelper,
    input: Variable,
    in_place: bool,
    moving_names: tuple[str | None, str | None],
    averaged: bool,
    momentum: float | Variable,
    attrs: dict[str, Any],
) -> Variable:
    """Add the layer's operator and parameters; returns the result.

    Args:
        helper: the layer's helper.
        input: as for the layers.
        in_place: whether the result lies in ``input``.
        moving_names: names of the moving mean and the moving variance.
        averaged: whether ModelAverage includes the moving statistics.
        momentum: as for the layers.
        attrs: all other attributes.
    """
    dtype = VarType.FP32 if input.dtype == VarType.FP16 else input.dtype
    shape = [input.shape[1 if attrs["data_layout"] == "NCHW" else -1]]
    scale = helper.create_parameter(
        helper.param_attr, shape, dtype, default_initializer=Constant(1.0)
    )
    bias = helper.create_parameter(helper.bias_attr, shape, dtype, is_bias=True)
    mean, variance = (
        _moving(helper, name, shape, dtype, start, averaged)
        for name, start in zip(moving_names, (0.0, 1.0), strict=True)
    )
    inputs = {"X": input, "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance}
    if isinstance(momentum, Variable):
        inputs["MomentumTensor"] = momentum
    else:
        attrs["momentum"] = momentum
    outputs = {"MeanOut": mean, "VarianceOut": variance}
    for slot in ("SavedMean", "SavedVariance"):
        outputs[slot] = helper.create_variable_for_type_inference(dtype, stop_gradient=True)
    outputs["Y"] = input if in_place else helper.create_variable_for_type_inference(dtype)
    helper.append_op(type=helper.layer_type, inputs=inputs, outputs=outputs, attrs=attrs)
    return outputs["Y"]


def _moving(
    helper: LayerHelper,
    name: str | None,
    shape: list[int],
    dtype: VarType,
    start: float,
    averaged: bool,
) -> Variable:
    """A moving statistic: every training step moves it towards the batch's."""
    attr = ParamAttr(
        name=name, initializer=Constant(start), trainable=False, do_model_average=averaged
    )
    made = helper.create_parameter(attr, shape, dtype)
    made.stop_gradient = True
    return made
