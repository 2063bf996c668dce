"""A decoder for training, which gets one right word per step."""

from __future__ import annotations

from collections.abc import Iterator

from dpexec import layers
from dpexec.contrib.decoder.state_cell import InitState, StateCell
from dpexec.engine.ir.undo import whole_block
from dpexec.engine.ir.variable import Variable

__all__ = ["TrainingDecoder"]


class TrainingDecoder:
    """Steps through known sequences, with the states of a cell.

    Args:
        state_cell: the :class:`StateCell` that computes a step from its inputs and states.
        name: ignored; accepted for compatibility.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.contrib.decoder import InitState, StateCell, TrainingDecoder
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     words = fluid.data("words", [None, 4], lod_level=1)
        ...     context = fluid.data("context", [None, 8])
        ...     h = InitState(context, need_reorder=True)
        ...     cell = StateCell({"x": None}, {"h": h}, out_state="h")
        ...     @cell.state_updater
        ...     def update(cell):
        ...         both = [cell.get_state("h"), cell.get_input("x")]
        ...         cell.set_state("h", fluid.layers.fc(both, 8, act="tanh"))
        ...     decoder = TrainingDecoder(cell)
        ...     with decoder.block():
        ...         decoder.state_cell.compute_state({"x": decoder.step_input(words)})
        ...         score = fluid.layers.fc(cell.get_state("h"), 10, act="softmax")
        ...         decoder.state_cell.update_states()
        ...         decoder.output(score)
        ...     decoder().shape
        (-1, 10)

    Source: ``fluid.contrib.decoder.TrainingDecoder``.
    """

    def __init__(self, state_cell: StateCell, name: str | None = None) -> None:
        self._rnn = layers.DynamicRNN()
        self._cell = state_cell
        self._cell._enter(self)
        self._status = "before"

    @whole_block
    def block(self) -> Iterator[None]:
        """The layers created in this ``with`` block are a step.

        Raises:
            ValueError: called a second time.
        """
        if self._status != "before":
            raise ValueError("decoder.block() can only be invoked once")
        self._status = "inside"
        with self._rnn.block():
            yield
        self._status = "after"

    @property
    def state_cell(self) -> StateCell:
        """The states; available inside the block."""
        self._require_inside("state_cell")
        return self._cell

    @property
    def dynamic_rnn(self) -> layers.DynamicRNN:
        """The net that runs the steps."""
        return self._rnn

    def step_input(self, x: Variable) -> Variable:
        """An input with a row for every step.

        Args:
            x: a tensor with sequences.

        Returns:
            The rows of a step.
        """
        self._require_inside("step_input")
        return self._rnn.step_input(x)

    def static_input(self, x: Variable) -> Variable:
        """An input that every step sees as a whole.

        Args:
            x: one row or sequence for each sequence.

        Returns:
            The rows or sequences of unfinished sequences.
        """
        self._require_inside("static_input")
        return self._rnn.static_input(x)

    def output(self, *outputs: Variable) -> None:
        """Mark the decoder's outputs of every step.

        Args:
            outputs: variables of the block.
        """
        self._require_inside("output")
        self._rnn.output(*outputs)

    def __call__(self) -> Variable | list[Variable]:
        """The outputs as sequences; a list if there are several.

        Raises:
            ValueError: the block is not complete.
        """
        if self._status != "after":
            raise ValueError("Output of training decoder can only be visited outside the block.")
        return self._rnn()

    def _hold(self, init: InitState) -> _Memory:
        return _Memory(self._rnn, init)

    def _require_inside(self, method: str) -> None:
        if self._status != "inside":
            raise ValueError(f"{method} should be invoked inside block of TrainingDecoder object.")


class _Memory:
    """A state that is a memory of the net."""

    def __init__(self, rnn: layers.DynamicRNN, init: InitState) -> None:
        self._rnn = rnn
        self._memory = rnn.memory(init=init.value, need_reorder=init.need_reorder)

    def get_state(self) -> Variable:
        """The value from the previous step."""
        return self._memory

    def update_state(self, state: Variable) -> None:
        """Set the value for the next step."""
        self._rnn.update_memory(self._memory, state)
