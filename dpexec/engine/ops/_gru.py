"""A gated recurrent unit: one step, the loop over all of them, and their gradients."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ops._recurrent import Loops, activate, times_slope
from dpexec.engine.ops._steps import Steps


def gru_weights(weight: Any) -> tuple[Any, Any]:
    """The two matrices that are stored one after another in a weight.

    Args:
        weight: ``(size, 3 * size)``.

    Returns:
        Views: ``(size, 2 * size)`` of update and reset gate, ``(size, size)`` of the candidate.
    """
    size, flat = weight.shape[0], weight.reshape(-1)
    return flat[: 2 * size * size].reshape(size, -1), flat[2 * size * size :].reshape(size, -1)


@dataclass(frozen=True)
class GruCell:
    """The parameters that all steps share.

    Args:
        xp: NumPy, or a module with its interface.
        weight: ``(size, 3 * size)``, see :func:`gru_weights`.
        gate: activation of the gates.
        candidate: activation of the candidate.
        origin_mode: True if the update gate is the share of the old state, else of the new one.
    """

    xp: Any
    weight: Any
    gate: str
    candidate: str
    origin_mode: bool

    def forward(self, gates: Any, before: Any) -> tuple[Any, Any]:
        """Compute a step.

        Args:
            gates: ``(sequences, 3 * size)``, the input's contributions to update gate, reset gate
                and candidate; overwritten with their activations.
            before: states ``(sequences, size)``; None for zeros.

        Returns:
            The states multiplied by the reset gate, and the next states.
        """
        size = self.weight.shape[0]
        of_gates, of_candidate = gru_weights(self.weight)
        both, new = gates[:, : 2 * size], gates[:, 2 * size :]
        if before is not None:
            both += before @ of_gates
        activate(self.xp, both, self.gate)
        update, reset = both[:, :size], both[:, size:]
        if before is None:
            activate(self.xp, new, self.candidate)
            seen = self.xp.zeros_like(update)
            return seen, (1 - update) * new if self.origin_mode else update * new
        seen = before * reset
        new += seen @ of_candidate
        activate(self.xp, new, self.candidate)
        if self.origin_mode:
            return seen, (1 - update) * new + update * before
        return seen, (1 - update) * before + update * new

    def backward(self, d_state: Any, gates: Any, before: Any, d_gates: Any) -> Any:
        """Compute the gradient of a step.

        Args:
            d_state: gradient of the next states.
            gates: activated gates.
            before: states before the step; None for zeros.
            d_gates: overwritten with the gradient of the gates before activation.

        Returns:
            The gradient of the states before the step.
        """
        size = self.weight.shape[0]
        of_gates, of_candidate = gru_weights(self.weight)
        update, reset, new = (gates[:, i * size : (i + 1) * size] for i in range(3))
        known = 0 if before is None else before
        fresh, kept = (1 - update, update) if self.origin_mode else (update, 1 - update)
        d_gates[:, :size] = d_state * (known - new if self.origin_mode else new - known)
        d_new = d_gates[:, 2 * size :]
        self.xp.multiply(d_state, fresh, out=d_new)
        times_slope(d_new, new, self.candidate)
        d_seen = d_new @ of_candidate.T
        d_gates[:, size : 2 * size] = d_seen * known
        both = d_gates[:, : 2 * size]
        times_slope(both, gates[:, : 2 * size], self.gate)
        d_before = d_state * kept
        d_before += d_seen * reset
        d_before += both @ of_gates.T
        return d_before


def run(unit: GruCell, steps: Steps, gates: Any, first: Any) -> tuple[Any, Any]:
    """Go through all steps.

    Args:
        unit: computes a step.
        steps: the steps.
        gates: ``(rows of steps, 3 * size)``, the input's contributions; overwritten with the
            activated gates.
        first: states of nonempty sequences before the first step; None for zeros.

    Returns:
        For all rows of the steps: the states before multiplied by the reset gate, and the states.
    """
    xp, size = unit.xp, len(unit.weight)
    seen, states = (xp.empty((len(gates), size), gates.dtype) for _ in range(2))
    state = first
    for begin, end in steps.spans:
        before = None if state is None else state[: end - begin]
        seen[begin:end], states[begin:end] = unit.forward(gates[begin:end], before)
        state = states[begin:end]
    return seen, states


def run_back(
    unit: GruCell, steps: Steps, gates: Any, before: Any, d_states: Any
) -> tuple[Any, Any]:
    """Go through all steps in the opposite order.

    Args:
        unit: computes a step.
        steps: the steps.
        gates: activated gates.
        before: states before each step.
        d_states: gradient of the states; it is overwritten.

    Returns:
        The gradients of the gates before activation, and of the states before the first step.
    """
    d_gates, d_first = unit.xp.empty_like(gates), before[:0]
    for step in range(len(steps.spans) - 1, -1, -1):
        here = slice(*steps.spans[step])
        d_first = unit.backward(d_states[here], gates[here], before[here], d_gates[here])
        if step:
            start = steps.spans[step - 1][0]
            d_states[start : start + len(d_first)] += d_first
    return d_gates, d_first


ON_ARRAYS = Loops(run, run_back)


def weight_grad(unit: GruCell, before: Any, seen: Any, d_gates: Any, loops: Loops) -> Any:
    """The gradient of the weight.

    Args:
        unit: the cell.
        before: states before each step, of any number of steps.
        seen: these states multiplied by the reset gate.
        d_gates: see :func:`run_back`.
        loops: computes the matrix products.
    """
    grad, size = unit.xp.empty_like(unit.weight), len(unit.weight)
    of_gates, of_candidate = gru_weights(grad)
    of_gates[...] = loops.products(before, d_gates[:, : 2 * size])
    of_candidate[...] = loops.products(seen, d_gates[:, 2 * size :])
    return grad
