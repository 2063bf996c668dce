"""Recurrent layers over sequences, and their single steps."""

from __future__ import annotations

from typing import Any, NoReturn

from dpexec.checks import SINGLE_DOUBLE, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs

__all__ = ["dynamic_gru", "dynamic_lstm", "dynamic_lstmp", "lstm"]


def _initial(states: dict[str, Variable | None], layer: str) -> dict[str, Variable]:
    """The given initial states, by slot."""
    given = {slot: state for slot, state in states.items() if state is not None}
    for slot, state in given.items():
        check_variable_and_dtype(state, slot.lower(), SINGLE_DOUBLE, layer)
    return given


def dynamic_lstm(
    input: Variable,
    size: int,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    dtype: Any = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """A long short-term memory over sequences.

    Args:
        input: ``(rows, 4 * cells)`` with one level of sequences, usually the result of ``fc``;
            columns for candidate, input gate, forget gate and output gate.
        size: 4 * cells.
        h_0: outputs before the first step, ``(sequences, cells)``; None for zeros.
        c_0: cells before the first step, ``(sequences, cells)``; None for zeros.
        param_attr: attributes of the weight ``(cells, 4 * cells)``.
        bias_attr: attributes of the bias: ``(1, 7 * cells)``, ending with the peephole weights, or
            ``(1, 4 * cells)`` without them.
        use_peepholes: whether the gates depend on the cells.
        is_reverse: whether to process sequences from their end.
        gate_activation: ``sigmoid``, ``tanh``, ``relu`` or ``identity``.
        cell_activation: likewise, applied to the cells to compute the outputs.
        candidate_activation: likewise, applied to the candidates.
        dtype: element type of the parameters.
        name: prefix of names.

    Returns:
        Outputs and cells, each ``(rows, cells)``. No gradient flows back from the cells. Source:
        Paddle op ``lstm``; Gers, Schmidhuber, 2000.

    Raises:
        AssertionError: ``bias_attr`` is False.
        TypeError: ``input`` is no variable, or not of floats.

    See Also:
        :func:`dynamic_gru`: sequences of different lengths.
        :func:`rnn`: padded batches, any cell.
        :func:`lstm_unit`: one step.
        :func:`gru_unit`: one step.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     words = fluid.data("words", [None, 8], lod_level=1)
        ...     hidden, cell = fluid.layers.dynamic_lstm(fluid.layers.fc(words, 4 * 3), 4 * 3)
        ...     hidden.shape
        (-1, 3)
    """
    if bias_attr is False:
        raise AssertionError("bias_attr should not be False in dynamic_lstm.")
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "dynamic_lstm")
    helper = LayerHelper("lstm", param_attr=param_attr, bias_attr=bias_attr, name=name)
    cells = size // 4
    inputs = {
        "Input": input,
        "Weight": helper.create_parameter(helper.param_attr, [cells, 4 * cells], dtype),
        "Bias": helper.create_parameter(
            helper.bias_attr, [1, (7 if use_peepholes else 4) * cells], dtype, is_bias=True
        ),
        **_initial({"H0": h_0, "C0": c_0}, "dynamic_lstm"),
    }
    slots = ("Hidden", "Cell", "BatchGate", "BatchCellPreAct")
    attrs = {
        "use_peepholes": use_peepholes,
        "is_reverse": is_reverse,
        "gate_activation": gate_activation,
        "cell_activation": cell_activation,
        "candidate_activation": candidate_activation,
    }
    made = add_outputs(helper, inputs, dict.fromkeys(slots, dtype), attrs)
    return made["Hidden"], made["Cell"]


def dynamic_lstmp(
    input: Variable,
    size: int,
    proj_size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    dtype: Any = "float32",
    name: str | None = None,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Variable, Variable]:
    """A long short-term memory whose outputs are projected to a smaller width.

    Args:
        input: as for :func:`dynamic_lstm`.
        size: 4 * cells.
        proj_size: width of the projections.
        param_attr: attributes of the weights ``(proj_size, 4 * cells)`` and
            ``(cells, proj_size)``.
        bias_attr: as for :func:`dynamic_lstm`.
        use_peepholes: whether the gates depend on the cells.
        is_reverse: whether to process sequences from their end.
        gate_activation: as for :func:`dynamic_lstm`.
        cell_activation: likewise.
        candidate_activation: likewise.
        proj_activation: ``identity`` for none; any other value applies ``cell_activation``, as in
            the real Paddle.
        dtype: element type of the parameters.
        name: prefix of names.
        h_0: projections before the first step, ``(sequences, proj_size)``; None for zeros.
        c_0: cells before the first step, ``(sequences, cells)``; None for zeros.
        cell_clip: cells are clipped to plus and minus this; None for no limit.
        proj_clip: projections are clipped to plus and minus this; None for no limit.

    Returns:
        Projections ``(rows, proj_size)`` and cells ``(rows, cells)``. No gradient flows back from
        the cells. Source: Paddle op ``lstmp``; Sak, Senior, Beaufays, 2014.

    Raises:
        AssertionError: ``bias_attr`` is False, or a clip is negative.
        TypeError: ``input`` is no variable, or not of floats.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.layers.fc(fluid.data("x", [None, 8], lod_level=1), size=4 * 16)
        ...     projection, cell = fluid.layers.dynamic_lstmp(x, size=4 * 16, proj_size=5)
        ...     projection.shape, cell.shape
        ((-1, 5), (-1, 16))
    """
    if bias_attr is False:
        raise AssertionError("bias_attr should not be False in dynamic_lstmp.")
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "dynamic_lstmp")
    helper = LayerHelper("lstmp", param_attr=param_attr, bias_attr=bias_attr, name=name)
    cells = size // 4
    inputs = {
        "Input": input,
        "Weight": helper.create_parameter(helper.param_attr, [proj_size, 4 * cells], dtype),
        "ProjWeight": helper.create_parameter(helper.param_attr, [cells, proj_size], dtype),
        "Bias": helper.create_parameter(
            helper.bias_attr, [1, (7 if use_peepholes else 4) * cells], dtype, is_bias=True
        ),
        **_initial({"H0": h_0, "C0": c_0}, "dynamic_lstmp"),
    }
    for word, bound in (("cell_clip", cell_clip), ("proj_clip", proj_clip)):
        if bound is not None and bound < 0:
            raise AssertionError(f"{word} of dynamic_lstmp must not be negative, but is {bound}")
    slots = ("Projection", "Cell", "unused", "BatchHidden", "BatchGate", "BatchCellPreAct")
    outputs = {slot: helper.create_variable_for_type_inference(dtype) for slot in slots}
    outputs.pop("unused")  # fluid makes such a variable, so the next ones count on from it
    attrs = {
        "use_peepholes": use_peepholes,
        "cell_clip": cell_clip,
        "proj_clip": proj_clip,
        "is_reverse": is_reverse,
        "gate_activation": gate_activation,
        "cell_activation": cell_activation,
        "candidate_activation": candidate_activation,
        "proj_activation": proj_activation,
    }
    helper.append_op(type="lstmp", inputs=inputs, outputs=outputs, attrs=attrs)
    return outputs["Projection"], outputs["Cell"]


def dynamic_gru(
    input: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    h_0: Variable | None = None,
    origin_mode: bool = False,
) -> Variable:
    """A gated recurrent unit over sequences.

    Args:
        input: ``(rows, 3 * size)`` with one level of sequences, usually the result of ``fc``;
            columns for update gate, reset gate and candidate.
        size: width of the states.
        param_attr: attributes of the weight ``(size, 3 * size)``; its memory holds a matrix
            ``(size, 2 * size)`` for the gates, then one ``(size, size)`` for the candidate.
        bias_attr: attributes of the bias ``(1, 3 * size)``; False for none.
        is_reverse: whether to process sequences from their end.
        gate_activation: ``sigmoid``, ``tanh``, ``relu`` or ``identity``.
        candidate_activation: likewise.
        h_0: states before the first step, ``(sequences, size)``; None for zeros.
        origin_mode: the update gate is the weight of the old state (Cho et al., 2014) instead of
            the weight of the candidate (Chung et al., 2014).

    Returns:
        States ``(rows, size)``. Source: Paddle op ``gru``.

    Raises:
        TypeError: ``input`` is no variable of type float32 or float64.
        EnforceNotMet: ``input`` is not ``(rows, 3 * size)`` with sequences.

    See Also:
        :func:`dynamic_lstm`: sequences of different lengths.
        :func:`rnn`: padded batches, any cell.
        :func:`lstm_unit`: one step.
        :func:`gru_unit`: one step.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 24], lod_level=1)
        ...     fluid.layers.dynamic_gru(x, size=8).shape
        (-1, 8)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "dynamic_gru")
    helper = LayerHelper("gru", input=input, param_attr=param_attr, bias_attr=bias_attr)
    dtype = input.dtype
    inputs = {
        "Input": input,
        "Weight": helper.create_parameter(helper.param_attr, [size, 3 * size], dtype),
    }
    if bias_attr is not False:
        inputs["Bias"] = helper.create_parameter(
            helper.bias_attr, [1, 3 * size], dtype, is_bias=True
        )
    inputs |= _initial({"H0": h_0}, "dynamic_gru")
    slots = ("Hidden", "BatchGate", "BatchResetHiddenPrev", "BatchHidden")
    attrs = {
        "is_reverse": is_reverse,
        "gate_activation": gate_activation,
        "activation": candidate_activation,
        "origin_mode": origin_mode,
    }
    return add_outputs(helper, inputs, dict.fromkeys(slots, dtype), attrs)["Hidden"]


def lstm(
    input: Variable,
    init_h: Variable,
    init_c: Variable,
    max_len: int,
    hidden_size: int,
    num_layers: int,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    is_test: bool = False,
    name: str | None = None,
    default_initializer: Any = None,
    seed: int = -1,
) -> NoReturn:
    """Not supported: cuDNN's long short-term memory, which Paddle itself has only on GPUs.

    Args:
        input: as in Paddle, like all arguments.
        init_h: outputs before the first step.
        init_c: cells before the first step.
        max_len: largest length of a sequence.
        hidden_size: number of cells.
        num_layers: number of stacked layers.
        dropout_prob: dropout probability between layers.
        is_bidirec: whether to process sequences in both directions.
        is_test: disables dropout.
        name: prefix of names.
        default_initializer: initializer of the weights.
        seed: seed of the dropout.

    Raises:
        NotImplementedError: always.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):  # the same net, of cells
        ...     x = fluid.data("x", [4, 10, 8])  # batch, steps, features
        ...     outputs, states = fluid.layers.rnn(fluid.layers.LSTMCell(hidden_size=16), x)
        ...     outputs.shape
        (4, 10, 16)
    """
    raise NotImplementedError(
        "layers.lstm (operator cudnn_lstm) runs on GPUs alone in Paddle, too, and its weights have "
        "the layout of cuDNN; use layers.dynamic_lstm on sequences, or layers.rnn with LSTMCell"
    )
