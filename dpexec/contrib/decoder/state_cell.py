"""The states of a decoder: their initial values, and their updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from dpexec import layers
from dpexec.engine.ir.variable import Variable

__all__ = ["Decoder", "InitState", "StateCell", "StateHolder"]


class InitState:
    """The initial value of a hidden state.

    Args:
        init: the value, one row per sequence; None for a constant.
        shape: shape of the constant, with -1 for the number of sequences; required without
            ``init``.
        value: the constant.
        init_boot: a variable with one row per sequence; required without ``init``.
        need_reorder: whether to sort rows as :class:`~dpexec.layers.DynamicRNN` sorts sequences;
            needed with several sequences.
        dtype: element type of the constant.

    Raises:
        ValueError: ``init`` is not given, nor are ``init_boot`` and ``shape``.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.contrib.decoder import InitState
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     source = fluid.data("source", [None, 8])
        ...     state = InitState(init_boot=source, shape=[-1, 16], value=0.0)
        ...     print(state.value.shape)  # as many rows as source
        (-1, 16)
    """

    def __init__(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        init_boot: Variable | None = None,
        need_reorder: bool = False,
        dtype: Any = "float32",
    ) -> None:
        if init is None:
            if init_boot is None or shape is None:
                raise ValueError("InitState needs init, or else init_boot, for its rows, and shape")
            init = layers.fill_constant_batch_size_like(init_boot, shape, dtype, value)
        self._value = init
        self._need_reorder = need_reorder

    @property
    def value(self) -> Variable:
        """The variable."""
        return self._value

    @property
    def need_reorder(self) -> bool:
        """Whether its rows are sorted by the lengths of sequences."""
        return self._need_reorder


class StateHolder(Protocol):
    """Carries a state from one step of a decoder to the next."""

    def get_state(self) -> Variable:
        """The value from the previous step."""

    def update_state(self, state: Variable) -> None:
        """Set the value for the next step.

        Args:
            state: the new value.
        """


class Decoder(Protocol):
    """A decoder, which runs the steps."""

    def _hold(self, init: InitState) -> StateHolder:
        """Keep a state, inside of the block of a step."""


class StateCell:
    """Named hidden states, and the computation of their next values from a step's inputs.

    Args:
        inputs: inputs of a step by name; the values may be None until :meth:`compute_state`.
        states: initial value of each state by name.
        out_state: name of the state that a decoder computes scores from.
        name: ignored; accepted for compatibility.

    Raises:
        ValueError: a state is no :class:`InitState`, or ``out_state`` is none of them.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.contrib.decoder import InitState, StateCell
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     context = fluid.data("context", [None, 8])
        ...     cell = StateCell({"x": None}, {"h": InitState(context)}, out_state="h")
        >>> @cell.state_updater
        ... def update(cell):
        ...     both = [cell.get_state("h"), cell.get_input("x")]
        ...     cell.set_state("h", fluid.layers.fc(both, 8, act="tanh"))

    Source: ``fluid.contrib.decoder.StateCell``.
    """

    def __init__(
        self,
        inputs: Mapping[str, Variable | None],
        states: Mapping[str, InitState],
        out_state: str,
        name: str | None = None,
    ) -> None:
        for state, init in states.items():
            if not isinstance(init, InitState):
                raise ValueError(f"state {state} must be an InitState, not {type(init).__name__}")
        if out_state not in states:
            raise ValueError(f"out_state {out_state!r} must be one of {', '.join(states)}")
        self._inputs = dict(inputs)
        self._initial = dict(states)
        self._out_state = out_state
        self._states: dict[str, Variable] = {}
        self._holders: dict[str, StateHolder] = {}
        self._update: Callable[[StateCell], Any] | None = None
        self._decoder: Decoder | None = None

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs."""
        return list(self._inputs)

    @property
    def state_names(self) -> list[str]:
        """Names of the states."""
        return list(self._initial)

    def state_updater(self, updater: Callable[[StateCell], Any]) -> Callable[[StateCell], Any]:
        """Set the function that computes the new states; usable as a decorator.

        Args:
            updater: called with the cell; reads its inputs and states, and sets states.

        Returns:
            ``updater``.
        """
        self._update = updater
        return updater

    def get_state(self, state_name: str) -> Variable:
        """The current value of a state.

        Args:
            state_name: a key of the ``states`` that the cell was made with.

        Raises:
            ValueError: there is no such state, or the cell is not in the block of a decoder.
        """
        states = self._current()
        if state_name not in states:
            raise ValueError(f"Unknown state {state_name}: there are {', '.join(states)}")
        return states[state_name]

    def set_state(self, state_name: str, state_value: Variable) -> None:
        """Change a state.

        Args:
            state_name: a key of the ``states`` that the cell was made with.
            state_value: the new value.
        """
        self.get_state(state_name)
        self._states[state_name] = state_value

    def get_input(self, input_name: str) -> Variable:
        """An input of the step.

        Args:
            input_name: a key of the ``inputs`` that the cell was made with.

        Raises:
            ValueError: there is no such input, or it has no value yet.
        """
        value = self._inputs.get(input_name)
        if value is None:
            raise ValueError(f"Invalid input {input_name}: compute_state did not give it a value")
        return value

    def compute_state(self, inputs: Mapping[str, Variable]) -> None:
        """Compute the new states with the function set by :meth:`state_updater`.

        Args:
            inputs: the step's inputs by name.

        Raises:
            ValueError: an unknown name, or there is no updater.
        """
        self._current()
        for name, value in inputs.items():
            if name not in self._inputs:
                raise ValueError(f"Unknown input {name}: there are {', '.join(self._inputs)}")
            self._inputs[name] = value
        if self._update is None:
            raise ValueError("StateCell has no updater: use its decorator state_updater")
        self._update(self)

    def update_states(self) -> None:
        """Pass the current states on to the next step."""
        states = self._current()
        for name, holder in self._holders.items():
            holder.update_state(states[name])

    def out_state(self) -> Variable:
        """The state that scores are computed from."""
        return self.get_state(self._out_state)

    # ---- decoders

    def _enter(self, decoder: Decoder) -> None:
        """Attach the cell to a decoder."""
        if self._decoder is not None:
            raise ValueError("StateCell has entered a decoder already; make one for each decoder")
        self._decoder = decoder

    def _current(self) -> dict[str, Variable]:
        """The states in the current step; created on first access."""
        if self._decoder is None:
            raise ValueError("StateCell belongs to no decoder: give it to one, and use its block")
        if not self._states:
            for name, init in self._initial.items():
                self._holders[name] = self._decoder._hold(init)
                self._states[name] = self._holders[name].get_state()
        return self._states
