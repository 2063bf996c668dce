"""One step of a gated recurrent unit, and of its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpexec.ops._recurrent import activate, times_slope


def gru_weights(weight: Any) -> tuple[Any, Any]:
    """The two matrices that lie one after another in the memory of a weight.

    Args:
        weight: ``(size, 3 * size)``.

    Returns:
        Views: ``(size, 2 * size)`` of update and reset gate, ``(size, size)`` of the candidate.
    """
    size, flat = weight.shape[0], weight.reshape(-1)
    return flat[: 2 * size * size].reshape(size, -1), flat[2 * size * size :].reshape(size, -1)


@dataclass(frozen=True)
class GruCell:
    """What all steps have in common.

    Args:
        xp: NumPy, or what has its interface.
        weight: ``(size, 3 * size)``, see :func:`gru_weights`.
        gate: activation of the gates.
        candidate: activation of the candidate.
        origin_mode: the update gate says how much of the state is kept; else, how much is new.
    """

    xp: Any
    weight: Any
    gate: str
    candidate: str
    origin_mode: bool

    def forward(self, gates: Any, before: Any) -> tuple[Any, Any]:
        """Compute a step.

        Args:
            gates: ``(sequences, 3 * size)``, what update gate, reset gate and candidate get of
                the input; they are overwritten with their activations.
            before: states ``(sequences, size)``; None for zeros.

        Returns:
            What the reset gate lets the candidate see of the states, and the next states.
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
            return seen, new + update * (before - new)
        return seen, before + update * (new - before)

    def backward(self, d_state: Any, gates: Any, before: Any, d_gates: Any) -> Any:
        """Compute the gradient of a step.

        Args:
            d_state: of the next states.
            gates: activated gates.
            before: states; None for zeros.
            d_gates: is overwritten with the gradient of what the gates are activations of.

        Returns:
            The gradient of the states before.
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

    def weight_grad(self, before: Any, seen: Any, d_gates: Any) -> Any:
        """The gradient of the weight.

        Args:
            before: states before, of any number of steps.
            seen: what the candidate saw of them.
            d_gates: see :meth:`backward`.
        """
        size = self.weight.shape[0]
        grad = self.xp.empty_like(self.weight)
        of_gates, of_candidate = gru_weights(grad)
        self.xp.matmul(before.T, d_gates[:, : 2 * size], out=of_gates)
        self.xp.matmul(seen.T, d_gates[:, 2 * size :], out=of_candidate)
        return grad
