"""Layers that make one step of an LSTM or a GRU."""

from __future__ import annotations

from typing import Any

from dpexec.checks import SINGLE_DOUBLE, check_choice, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs
from dpexec.layers.joining import concat
from dpexec.layers.nn import fc
from dpexec.param_attr import ParamAttr

__all__ = ["gru_unit", "lstm_unit"]

_GRU_ACTIVATIONS = ("identity", "sigmoid", "tanh", "relu")


def gru_unit(
    input: Variable,
    hidden: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> tuple[Variable, Variable, Variable]:
    """One step of a gated recurrent unit.

    Args:
        input: ``(N, size)``, usually the result of ``fc``, as for :func:`dynamic_gru`.
        hidden: states ``(N, size / 3)``.
        size: 3 * width of the states.
        param_attr: attributes of the weight ``(size / 3, size)``.
        bias_attr: attributes of the bias ``(1, size)``; False for none.
        activation: ignored, as in the real Paddle, which always uses ``tanh``.
        gate_activation: ignored, as in the real Paddle, which always uses ``sigmoid``.
        origin_mode: as for :func:`dynamic_gru`.

    Returns:
        The next states; the states multiplied by the reset gate; the activated gates. Source:
        Paddle op ``gru_unit``.

    Raises:
        ValueError: there is no such activation.

    See Also:
        :func:`dynamic_lstm`: sequences of different lengths.
        :func:`dynamic_gru`: sequences of different lengths.
        :func:`rnn`: padded batches, any cell.
        :func:`lstm_unit`: one step.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 24])
        ...     hidden = fluid.data("hidden", [None, 8])
        ...     fluid.layers.gru_unit(x, hidden, size=24)[0].shape
        (-1, 8)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "gru_unit")
    check_variable_and_dtype(hidden, "hidden", SINGLE_DOUBLE, "gru_unit")
    check_type(size, "size", int, "gru_unit")
    check_choice(activation, "activation", _GRU_ACTIVATIONS, "gru_unit")
    check_choice(gate_activation, "gate_activation", _GRU_ACTIVATIONS, "gru_unit")
    helper = LayerHelper("gru_unit", input=input, param_attr=param_attr, bias_attr=bias_attr)
    width, dtype = size // 3, input.dtype
    weight = helper.create_parameter(helper.param_attr, [width, 3 * width], dtype)
    inputs = {"Input": input, "HiddenPrev": hidden, "Weight": weight}
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(
            helper.bias_attr, [1, 3 * width], dtype, is_bias=True
        )
    attrs = {"activation": 2, "gate_activation": 1, "origin_mode": origin_mode}
    dtypes = dict.fromkeys(("Gate", "ResetHiddenPrev", "Hidden"), dtype)
    made = add_outputs(helper, inputs, dtypes, attrs)
    return made["Hidden"], made["ResetHiddenPrev"], made["Gate"]


def lstm_unit(
    x_t: Variable,
    hidden_t_prev: Variable,
    cell_t_prev: Variable,
    forget_bias: float = 0.0,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """One step of a long short-term memory, including its ``fc``.

    Args:
        x_t: inputs of the step, ``(N, width)``.
        hidden_t_prev: outputs of the previous step, ``(N, cells)``.
        cell_t_prev: cells of the previous step, ``(N, cells)``.
        forget_bias: added to the forget gate before its activation.
        param_attr: attributes of the weight ``(width + cells, 4 * cells)``.
        bias_attr: attributes of the bias ``(4 * cells,)``; False for none.
        name: prefix of names.

    Returns:
        Outputs and cells. Source: Paddle op ``lstm_unit``.

    Raises:
        ValueError: the shapes do not fit.

    See Also:
        :func:`dynamic_lstm`: sequences of different lengths.
        :func:`dynamic_gru`: sequences of different lengths.
        :func:`rnn`: padded batches, any cell.
        :func:`gru_unit`: one step.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 16])
        ...     hidden = fluid.data("hidden", [None, 8])
        ...     cell = fluid.data("cell", [None, 8])
        ...     fluid.layers.lstm_unit(x, hidden, cell)[0].shape
        (-1, 8)
    """
    states = {"x_t": x_t, "hidden_t_prev": hidden_t_prev, "cell_t_prev": cell_t_prev}
    helper = LayerHelper("lstm_unit", name=name)
    for argument, var in states.items():
        check_variable_and_dtype(var, argument, SINGLE_DOUBLE, "lstm_unit")
        if len(var.shape) != 2:
            raise ValueError(f"Rank of {argument} must be 2.")
    if len({var.shape[0] for var in states.values()}) > 1:
        raise ValueError(f"The 1st dimensions of {', '.join(states)} must be the same.")
    if hidden_t_prev.shape[1] != cell_t_prev.shape[1]:
        raise ValueError(
            "The 2nd dimensions of hidden_t_prev and cell_t_prev must be the same, but they are "
            f"{hidden_t_prev.shape[1]} and {cell_t_prev.shape[1]}."
        )
    gates = fc(
        concat([x_t, hidden_t_prev], axis=1),
        4 * cell_t_prev.shape[1],
        param_attr=param_attr,
        bias_attr=ParamAttr() if bias_attr is None else bias_attr,
    )
    inputs, dtypes = {"X": gates, "C_prev": cell_t_prev}, {"C": x_t.dtype, "H": x_t.dtype}
    made = add_outputs(helper, inputs, dtypes, {"forget_bias": forget_bias})
    return made["H"], made["C"]
