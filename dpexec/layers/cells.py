"""Cells of recurrent networks, and ``rnn``, which runs a cell over sequences."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from dpexec.checks import SINGLE_DOUBLE, check_dtype, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layers.constants import fill_constant_batch_size_like
from dpexec.layers.manipulation import shape as shape_of
from dpexec.layers.manipulation import transpose
from dpexec.layers.recurrent_units import Activation, BasicGRUUnit, BasicLSTMUnit, kept
from dpexec.layers.sequences import sequence_mask
from dpexec.layers.shifts import reverse
from dpexec.layers.static_rnn import StaticRNN
from dpexec.layers.structures import flat, mapped, packed

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "rnn"]


class RNNCell:
    """One step of a recurrent network; subclasses define :meth:`call`.

    Source: ``fluid.layers.RNNCell``.

    See Also:
        :func:`rnn`: runs a cell over padded batches.
        :class:`LSTMCell`: a cell with two states.
        :class:`GRUCell`: a cell with one state.

    Example:
        >>> import dpexec as fluid
        >>> class Sum(fluid.layers.RNNCell):
        ...     def call(self, inputs, states):
        ...         return states + inputs, states + inputs
        ...
        ...     @property
        ...     def state_shape(self):
        ...         return [8]
        >>> with fluid.program_guard(fluid.Program()):
        ...     outputs, last = fluid.layers.rnn(Sum(), fluid.data("x", [4, 10, 8]))
        ...     outputs.shape, last.shape
        ((4, 10, 8), (4, 8))
    """

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The outputs of a step and the new states.

        Args:
            inputs: inputs of the step, a variable or a structure of variables.
            states: states after the previous step, a variable or a structure of variables.
            kwargs: further arguments of the cell.

        Returns:
            Outputs, and new states in the structure of ``states``.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError("RNNCell must implent the call function.")

    def __call__(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The same as :meth:`call`."""
        return self.call(inputs, states, **kwargs)

    def get_initial_states(
        self,
        batch_ref: Any,
        shape: Any = None,
        dtype: Any = "float32",
        init_value: float = 0,
        batch_dim_idx: int = 0,
    ) -> Any:
        """Initial states, filled with one value.

        Args:
            batch_ref: a variable, or a structure whose first variable has the number of rows.
            shape: shape of the states, without the number of rows (or with -1 for it): a list of
                numbers, or a structure of such lists; by default :attr:`state_shape`.
            dtype: one type for all states, or a structure with one for each; None for
                :attr:`state_dtype`.
            init_value: the value of all elements.
            batch_dim_idx: the axis of the rows in ``batch_ref``.

        Returns:
            A variable ``(rows, ...)`` for each shape, in the structure of the shapes.

        Raises:
            NotImplementedError: no shape is given, and the cell does not define one.
        """
        like = flat(batch_ref)[0]
        shapes = self.state_shape if shape is None else shape
        dtypes = self._state_dtype() if dtype is None else dtype

        def filled(shape: list[int], dtype: Any) -> Variable:
            check_dtype(dtype, "dtype", SINGLE_DOUBLE, "RNNCell")
            whole = list(shape) if shape[0] == -1 else [-1, *shape]
            return fill_constant_batch_size_like(
                like, whole, dtype, init_value, input_dim_idx=batch_dim_idx
            )

        return _with_shapes(filled, shapes, dtypes)

    def _state_dtype(self) -> Any:
        try:
            return self.state_dtype
        except NotImplementedError:
            return "float32"

    @property
    def state_shape(self) -> Any:
        """Shapes of the states, without the number of rows, in the states' structure.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError("Please add implementaion for `state_shape` in the used cell.")

    @property
    def state_dtype(self) -> Any:
        """Types of the states, in the states' structure; or one type for all.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError("Please add implementaion for `state_dtype` in the used cell.")


def _with_shapes(function: Callable[[Any, Any], Variable], shapes: Any, dtypes: Any) -> Any:
    """Map ``function`` over structures of shapes and types; a list of numbers is a shape."""
    if isinstance(shapes, Mapping):
        keys = sorted(shapes)
        return {key: _with_shapes(function, shapes[key], _part(dtypes, key)) for key in keys}
    if all(isinstance(part, int) for part in shapes):
        return function(shapes, dtypes)
    parts = enumerate(shapes)
    made = [_with_shapes(function, part, _part(dtypes, index)) for index, part in parts]
    return type(shapes)(*made) if hasattr(shapes, "_fields") else type(shapes)(made)


def _part(dtypes: Any, key: Any) -> Any:
    return dtypes[key] if isinstance(dtypes, (Mapping, list, tuple)) else dtypes


class GRUCell(RNNCell):
    """A gated recurrent unit: :class:`fluid.contrib.layers.BasicGRUUnit` as a cell.

    Args:
        hidden_size: width of the state ``(rows, hidden_size)``, which is also the output.
        param_attr: attributes of the weights.
        bias_attr: attributes of the biases.
        gate_activation: activation of the gates; sigmoid by default.
        activation: activation of the candidate; tanh by default.
        dtype: float32 or float64.
        name: prefix of the parameters' names.

    Raises:
        TypeError: an argument has the wrong type.

    Source: ``fluid.layers.GRUCell``.

    See Also:
        :func:`rnn`: runs a cell over padded batches.
        :class:`LSTMCell`: a cell with two states.
        :class:`RNNCell`: the base of cells of your own.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     words = fluid.data("words", [None, 10, 8])  # batch, steps, features
        ...     outputs, last = fluid.layers.rnn(fluid.layers.GRUCell(hidden_size=16), words)
        ...     outputs.shape, last.shape
        ((-1, 10, 16), (-1, 16))
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        dtype: str = "float32",
        name: str = "GRUCell",
    ) -> None:
        check_type(hidden_size, "hidden_size", int, "GRUCell")
        check_dtype(dtype, "dtype", SINGLE_DOUBLE, "GRUCell")
        self.hidden_size = hidden_size
        self.gru_unit = BasicGRUUnit(
            name, hidden_size, param_attr, bias_attr, gate_activation, activation, dtype
        )

    def call(self, inputs: Variable, states: Variable) -> tuple[Variable, Variable]:  # type: ignore[override]
        """The new state, twice: as output and as state.

        Args:
            inputs: ``(rows, width)``.
            states: the previous state.
        """
        check_variable_and_dtype(inputs, "inputs", SINGLE_DOUBLE, "GRUCell")
        check_variable_and_dtype(states, "states", SINGLE_DOUBLE, "GRUCell")
        new_hidden = self.gru_unit(inputs, states)
        return new_hidden, new_hidden

    @property
    def state_shape(self) -> list[int]:
        """``[hidden_size]``."""
        return [self.hidden_size]


class LSTMCell(RNNCell):
    """A long short-term memory: :class:`fluid.contrib.layers.BasicLSTMUnit` as a cell.

    Args:
        hidden_size: width of the states: a list of hidden state and cell, ``(rows, hidden_size)``
            each.
        param_attr: attributes of the weight.
        bias_attr: attributes of the bias.
        gate_activation: ignored, as in fluid, which always uses the sigmoid.
        activation: ignored, as in fluid, which always uses tanh.
        forget_bias: added to the forget gate before its activation.
        dtype: float32 or float64.
        name: prefix of the parameters' names.

    Raises:
        TypeError: an argument has the wrong type.

    Source: ``fluid.layers.LSTMCell``.

    See Also:
        :func:`rnn`: runs a cell over padded batches.
        :class:`GRUCell`: a cell with one state.
        :class:`RNNCell`: the base of cells of your own.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     words = fluid.data("words", [None, 10, 8])  # batch, steps, features
        ...     lstm = fluid.layers.LSTMCell(hidden_size=16)
        ...     outputs, (hidden, cell) = fluid.layers.rnn(lstm, words)
        ...     outputs.shape, hidden.shape
        ((-1, 10, 16), (-1, 16))
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        forget_bias: float = 1.0,
        dtype: str = "float32",
        name: str = "LSTMCell",
    ) -> None:
        check_type(hidden_size, "hidden_size", int, "LSTMCell")
        check_dtype(dtype, "dtype", SINGLE_DOUBLE, "LSTMCell")
        self.hidden_size = hidden_size
        self.lstm_unit = BasicLSTMUnit(
            name,
            hidden_size,
            param_attr,
            bias_attr,
            gate_activation,
            activation,
            forget_bias,
            dtype,
        )

    def call(  # type: ignore[override]
        self, inputs: Variable, states: list[Variable]
    ) -> tuple[Variable, list[Variable]]:
        """The new hidden state, and the list of new hidden state and new cell.

        Args:
            inputs: ``(rows, width)``.
            states: the previous states.
        """
        check_variable_and_dtype(inputs, "inputs", SINGLE_DOUBLE, "LSTMCell")
        check_type(states, "states", list, "LSTMCell")
        for index, state in enumerate(states):
            check_variable_and_dtype(state, f"state[{index}]", SINGLE_DOUBLE, "LSTMCell")
        new_hidden, new_cell = self.lstm_unit(inputs, *states)
        return new_hidden, [new_hidden, new_cell]

    @property
    def state_shape(self) -> list[list[int]]:
        """``[[hidden_size], [hidden_size]]``."""
        return [[self.hidden_size], [self.hidden_size]]


def rnn(
    cell: RNNCell,
    inputs: Any,
    initial_states: Any = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    is_reverse: bool = False,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """Run a cell over sequences.

    Args:
        cell: computes one step.
        inputs: a variable ``(rows, steps, ...)``, or a structure of such variables.
        initial_states: initial states of the cell; by default ``cell.get_initial_states``.
        sequence_length: ``(rows,)``: length of each row; states do not change after it. By default
            all steps count.
        time_major: whether inputs and outputs have the layout ``(steps, rows, ...)``.
        is_reverse: whether to run from the last step to the first.
        kwargs: passed to the cell.

    Returns:
        The outputs of all steps, ``(rows, steps, ...)`` each, and the states after the last one.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the cell's new states differ in structure from its old states.

    Source: ``fluid.layers.rnn``.

    See Also:
        :func:`dynamic_lstm`: sequences of different lengths.
        :func:`dynamic_gru`: sequences of different lengths.
        :func:`lstm_unit`: one step.
        :func:`gru_unit`: one step.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     words = fluid.data("words", [4, 10, 8])
        ...     lengths = fluid.data("lengths", [4], "int64")
        ...     cell = fluid.layers.GRUCell(hidden_size=16)
        ...     outputs, last = fluid.layers.rnn(cell, words, sequence_length=lengths)
        ...     outputs.shape, last.shape
        ((4, 10, 16), (4, 16))
    """
    check_type(inputs, "inputs", (Variable, list, tuple), "rnn")
    check_type(initial_states, "initial_states", (Variable, list, tuple, type(None)), "rnn")
    check_type(sequence_length, "sequence_length", (Variable, type(None)), "rnn")
    if initial_states is None:
        initial_states = cell.get_initial_states(inputs, batch_dim_idx=int(time_major))
    for state in flat(initial_states):
        state.stop_gradient = False
    if not time_major:
        inputs = mapped(batch_and_time_swapped, inputs)
    mask = None if sequence_length is None else _mask(sequence_length, inputs, initial_states)
    if is_reverse:
        inputs = mapped(_reversed, inputs)
        mask = None if mask is None else _reversed(mask)
    outputs, new_states, made = _steps(cell, inputs, initial_states, mask, kwargs)
    count = len(flat(outputs))
    outputs = packed(outputs, made[:count])
    states = packed(new_states, [var[-1] for var in made[count:]])
    if is_reverse:
        outputs = mapped(_reversed, outputs)
    return (outputs if time_major else mapped(batch_and_time_swapped, outputs)), states


def batch_and_time_swapped(x: Variable) -> Variable:
    """``(steps, rows, ...)`` of ``(rows, steps, ...)``, and the other way round."""
    return transpose(x, [1, 0, *range(2, len(x.shape))])


def _reversed(x: Variable) -> Variable:
    return reverse(x, axis=[0])


def _mask(lengths: Variable, inputs: Any, states: Any) -> Variable:
    """Mask ``(steps, rows)``: 1 for steps within a row's length, else 0."""
    steps = shape_of(flat(inputs)[0])[0]
    return transpose(sequence_mask(lengths, maxlen=steps, dtype=flat(states)[0].dtype), [1, 0])


def _steps(
    cell: RNNCell,
    inputs: Any,
    initial_states: Any,
    mask: Variable | None,
    kwargs: Mapping[str, Any],
) -> tuple[Any, Any, list[Variable]]:
    """The network: outputs and states of one step, and both stacked over all steps."""
    network = StaticRNN()
    with network.step():
        inputs = mapped(network.step_input, inputs)
        states = mapped(network.memory, initial_states)
        outputs, new_states = cell.call(inputs, mapped(lambda x: x, states), **kwargs)
        mapped(lambda *_: None, states, new_states)  # they must be arranged alike
        if mask is not None:
            choose = functools.partial(kept, step_mask=network.step_input(mask))
            new_states = mapped(choose, states, new_states)
        mapped(network.update_memory, states, new_states)
        mapped(network.step_output, outputs)
        mapped(network.step_output, new_states)
    made = network()
    return outputs, new_states, made if isinstance(made, list) else [made]
