"""``basic_lstm`` and ``basic_gru``: stacked recurrent layers, in one or both directions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from dpexec.engine.ir.variable import Variable
from dpexec.layers import (
    StaticRNN,
    concat,
    dropout,
    reshape,
    reverse,
    sequence_mask,
    shape,
    transpose,
)
from dpexec.layers.recurrent_units import Activation, BasicGRUUnit, BasicLSTMUnit, kept

__all__ = ["BasicGRUUnit", "BasicLSTMUnit", "basic_gru", "basic_lstm"]

States = Sequence[Variable]
Unit = Callable[[Variable, States], States]
"""What a layer computes in a step: the new states, the output first."""


def basic_gru(
    input: Variable,
    init_hidden: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Activation | None = None,
    activation: Activation | None = None,
    dtype: str = "float32",
    name: str = "basic_gru",
) -> tuple[Variable, Variable]:
    """Several layers of gated recurrent units.

    Args:
        input: ``(rows, steps, width)``.
        init_hidden: ``(layers * directions, rows, hidden_size)``; zeros by default.
        hidden_size: width of the states.
        num_layers: number of layers.
        sequence_length: ``(rows,)``: length of each row; all steps by default.
        dropout_prob: dropout probability of every layer's outputs.
        bidirectional: whether to add a second network that runs from the last step to the first.
        batch_first: False for inputs and outputs ``(steps, rows, ...)``.
        param_attr: attributes of the weights; direction and layer are appended to its name.
        bias_attr: attributes of the biases, with the same suffixes.
        gate_activation: activation of the gates; sigmoid by default.
        activation: activation of the candidates; tanh by default.
        dtype: element type of the parameters.
        name: prefix of the parameters' names.

    Returns:
        The outputs of the last layer, ``(rows, steps, directions * hidden_size)``, and the states
        after the last step, ``(layers * directions, rows, hidden_size)``.

    Source: ``fluid.contrib.layers.basic_gru``.

    Raises:
        TypeError: ``input`` is no variable of three dimensions, or a size is no integer.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     words = fluid.data("words", [4, 10, 8])
        ...     outputs, last = fluid.contrib.layers.basic_gru(words, None, 16, bidirectional=True)
        ...     outputs.shape, last.shape
        ((4, 10, 32), (2, 4, 16))
    """

    def unit(scope: str, param_attr: Any, bias_attr: Any) -> Unit:
        made = BasicGRUUnit(
            scope, hidden_size, param_attr, bias_attr, gate_activation, activation, dtype
        )
        return lambda x, states: [made(x, states[0])]

    network = _Network(hidden_size, num_layers, dropout_prob, "downgrade_in_infer")
    units = _units(unit, name, num_layers, bidirectional, param_attr, bias_attr)
    states = None if init_hidden is None else [init_hidden]
    out, (hidden,) = network.run(input, states, 1, units, sequence_length, batch_first)
    return out, hidden


def basic_lstm(
    input: Variable,
    init_hidden: Variable | None,
    init_cell: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Activation | None = None,
    activation: Activation | None = None,
    forget_bias: float = 1.0,
    dtype: str = "float32",
    name: str = "basic_lstm",
) -> tuple[Variable, Variable, Variable]:
    """Several layers of long short-term memories.

    Args:
        input: ``(rows, steps, width)``.
        init_hidden: ``(layers * directions, rows, hidden_size)``; zeros by default.
        init_cell: in the shape of ``init_hidden``; give both or neither.
        hidden_size: width of the states.
        num_layers: number of layers.
        sequence_length: ``(rows,)``: length of each row; all steps by default.
        dropout_prob: dropout probability of every layer's outputs.
        bidirectional: whether to add a second network that runs from the last step to the first.
        batch_first: False for inputs and outputs ``(steps, rows, ...)``.
        param_attr: attributes of the weights; direction and layer are appended to its name.
        bias_attr: attributes of the biases, with the same suffixes.
        gate_activation: ignored, as in fluid, which always uses the sigmoid.
        activation: ignored, as in fluid, which always uses tanh.
        forget_bias: added to the forget gates before their activation.
        dtype: element type of the parameters.
        name: prefix of the parameters' names.

    Returns:
        The outputs of the last layer, ``(rows, steps, directions * hidden_size)``; the hidden
        states and the cells after the last step, ``(layers * directions, rows, hidden_size)``.

    Source: ``fluid.contrib.layers.basic_lstm``.

    Raises:
        TypeError: ``input`` is no variable of three dimensions, or a size is no integer.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     words = fluid.data("words", [4, 10, 8])
        ...     outputs, hidden, cell = fluid.contrib.layers.basic_lstm(words, None, None, 16)
        ...     outputs.shape, hidden.shape
        ((4, 10, 16), (1, 4, 16))
    """

    def unit(scope: str, param_attr: Any, bias_attr: Any) -> Unit:
        made = BasicLSTMUnit(
            scope,
            hidden_size,
            param_attr,
            bias_attr,
            gate_activation,
            activation,
            forget_bias,
            dtype,
        )
        return lambda x, states: made(x, *states)

    network = _Network(hidden_size, num_layers, dropout_prob, "upscale_in_train")
    units = _units(unit, name, num_layers, bidirectional, param_attr, bias_attr)
    states = None if init_hidden is None or init_cell is None else [init_hidden, init_cell]
    out, (hidden, cell) = network.run(input, states, 2, units, sequence_length, batch_first)
    return out, hidden, cell


def _units(
    unit: Callable[[str, Any, Any], Unit],
    name: str,
    num_layers: int,
    bidirectional: bool,
    param_attr: Any,
    bias_attr: Any,
) -> list[list[Unit]]:
    """Per direction, the units of all layers."""
    ways = [("layers", "fw"), ("reverse_layers", "bw")][: 2 if bidirectional else 1]
    return [
        [
            unit(
                f"{name}_{scope}_{layer}",
                _named(param_attr, f"_{way}_w_{layer}"),
                _named(bias_attr, f"_{way}_b_{layer}"),
            )
            for layer in range(num_layers)
        ]
        for scope, way in ways
    ]


def _named(attr: Any, end: str) -> Any:
    if attr is None or attr.name is None:
        return attr
    made = copy.deepcopy(attr)
    made.name += end
    return made


class _Network:
    """Layers of units, one after another in every step.

    Args:
        size: of the states.
        layers: number of layers.
        dropout_prob: dropout probability of every layer's outputs.
        dropout_kind: which dropout.
    """

    def __init__(self, size: int, layers: int, dropout_prob: float, dropout_kind: str) -> None:
        self.size = size
        self.layers = layers
        self._dropout_prob = dropout_prob
        self._dropout_kind = dropout_kind

    def run(
        self,
        x: Variable,
        initial: States | None,
        states: int,
        units: Sequence[Sequence[Unit]],
        lengths: Variable | None,
        batch_first: bool,
    ) -> tuple[Variable, States]:
        """The outputs of all steps, and the states after the last one.

        Args:
            x: what goes into the first layer.
            initial: states of all layers and directions; None for zeros.
            states: how many a unit has.
            units: per direction and layer.
            lengths: how many steps of each row count.
            batch_first: whether axis 0 of ``x`` has the rows, and not the steps.
        """
        if batch_first:
            x = transpose(x, [1, 0, 2])
        mask = None
        if lengths is not None:
            mask = transpose(sequence_mask(lengths, maxlen=shape(x)[0], dtype="float32"), [1, 0])
        whole = [self.layers, len(units), -1, self.size]
        if initial is not None:
            initial = [reshape(state, shape=whole) for state in initial]
        out, last = self._one_way(x, initial, states, units[0], mask, 0)
        if len(units) > 1:
            x, mask = reverse(x, axis=[0]), None if mask is None else reverse(mask, axis=[0])
            back, back_last = self._one_way(x, initial, states, units[1], mask, 1)
            out = concat([out, reverse(back, axis=[0])], axis=2)
            flat = [self.layers * 2, -1, self.size]
            pairs = zip(last, back_last, strict=True)
            last = [reshape(concat(pair, axis=1), shape=flat) for pair in pairs]
        return (transpose(out, [1, 0, 2]) if batch_first else out), last

    def _one_way(
        self,
        x: Variable,
        initial: States | None,
        states: int,
        units: Sequence[Unit],
        mask: Variable | None,
        direction: int,
    ) -> tuple[Variable, States]:
        rnn = StaticRNN()
        with rnn.step():
            now = rnn.step_input(x)
            step_mask = None if mask is None else rnn.step_input(mask)
            for layer, unit in enumerate(units):
                before = [
                    rnn.memory(batch_ref=x, shape=[-1, self.size])
                    if initial is None
                    else rnn.memory(init=initial[number][layer, direction])
                    for number in range(states)
                ]
                after = unit(now, before)
                if step_mask is not None:
                    pairs = zip(before, after, strict=True)
                    after = [kept(old, new, step_mask) for old, new in pairs]
                for old, new in zip(before, after, strict=True):
                    rnn.update_memory(old, new)
                rnn.output(*after)
                now = self._dropped(after[0])
            rnn.step_output(now)
        *made, out = rnn()
        slices = [var[-1] for var in made]
        whole = [self.layers, -1, self.size]
        return out, [
            reshape(concat(slices[number::states], axis=0), shape=whole) for number in range(states)
        ]

    def _dropped(self, x: Variable) -> Variable:
        if not self._dropout_prob:
            return x
        return dropout(x, self._dropout_prob, dropout_implementation=self._dropout_kind)
