"""A long short-term memory: one step, the loop over all of them, and their gradients."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ops._recurrent import Loops, activate, times_slope, unbounded
from dpexec.engine.ops._steps import Steps


@dataclass(frozen=True)
class LstmCell:
    """The parameters that all steps share.

    Args:
        xp: NumPy, or a module with its interface.
        peepholes: ``(3 * size,)``, weights of the cell in the input gate, the forget gate and the
            output gate; None without peepholes.
        gate: activation of the gates.
        state: activation of the cell, for the output.
        candidate: activation of the candidate.
        clip: the cell is clipped to plus and minus this; 0 for no bounds.
    """

    xp: Any
    peepholes: Any
    gate: str
    state: str
    candidate: str
    clip: float = 0.0

    def forward(self, gates: Any, before: Any) -> tuple[Any, Any, Any]:
        """Compute a step.

        Args:
            gates: ``(sequences, 4 * size)``, candidate, input gate, forget gate and output gate
                before activation; overwritten with their activations.
            before: the cells, ``(sequences, size)``; None for zeros.

        Returns:
            Cells, their activations, outputs; each ``(sequences, size)``.
        """
        size = gates.shape[1] // 4
        new, taken, kept, shown = (gates[:, i * size : (i + 1) * size] for i in range(4))
        if self.peepholes is not None and before is not None:
            taken += before * self.peepholes[:size]
            kept += before * self.peepholes[size : 2 * size]
        activate(self.xp, new, self.candidate)
        both = gates[:, size : (4 if self.peepholes is None else 3) * size]
        activate(self.xp, both, self.gate)
        cell = new * taken
        if before is not None:
            cell += before * kept
        if self.clip > 0:
            self.xp.clip(cell, -self.clip, self.clip, out=cell)
        if self.peepholes is not None:
            shown += cell * self.peepholes[2 * size :]
            activate(self.xp, shown, self.gate)
        active = activate(self.xp, cell.copy(), self.state)
        return cell, active, active * shown

    def backward(
        self, d_hidden: Any, d_cell: Any, values: tuple[Any, Any, Any, Any], d_gates: Any
    ) -> Any:
        """Compute the gradient of a step.

        Args:
            d_hidden: gradient of the outputs.
            d_cell: gradient of the cells, from later steps; it is overwritten.
            values: gates, cells before the step (None for zeros), cells and their activations.
            d_gates: overwritten with the gradient of the gates before activation.

        Returns:
            The gradient of the cells before the step.
        """
        gates, before, cell, active = values
        size = cell.shape[1]
        new, taken, kept, shown = (gates[:, i * size : (i + 1) * size] for i in range(4))
        d_new, d_taken, d_kept, d_shown = (d_gates[:, i * size : (i + 1) * size] for i in range(4))
        self.xp.multiply(d_hidden, active, out=d_shown)
        times_slope(d_shown, shown, self.gate)
        d_cell += times_slope(d_hidden * shown, active, self.state)
        if self.peepholes is not None:
            d_cell += d_shown * self.peepholes[2 * size :]
        if self.clip > 0:
            d_cell *= self.xp.abs(cell) < self.clip
        self.xp.multiply(d_cell, taken, out=d_new)
        times_slope(d_new, new, self.candidate)
        self.xp.multiply(d_cell, new, out=d_taken)
        d_kept[...] = 0 if before is None else d_cell * before
        times_slope(d_gates[:, size : 3 * size], gates[:, size : 3 * size], self.gate)
        d_cell *= kept
        if self.peepholes is not None:
            d_cell += d_taken * self.peepholes[:size]
            d_cell += d_kept * self.peepholes[size : 2 * size]
        return d_cell


def cell_of(
    xp: Any, bias: Any, use_peepholes: bool, kinds: tuple[str, str, str], clip: float = 0.0
) -> LstmCell:
    """A cell with the peepholes from the last columns of a bias.

    Args:
        xp: NumPy, or a module with its interface.
        bias: ``(1, 7 * size)``, or ``(1, 4 * size)`` without peepholes.
        use_peepholes: whether the cell has peepholes.
        kinds: activations of gates, state and candidate.
        clip: bounds of the cell.
    """
    peepholes = bias[0, bias.shape[1] // 7 * 4 :] if use_peepholes else None
    return LstmCell(xp, peepholes, *kinds, clip)


@dataclass(frozen=True)
class Projection:
    """The projection of the outputs that the next step gets: a product, activated and clipped.

    Args:
        xp: NumPy, or a module with its interface.
        weight: ``(size, projected)``.
        kind: the activation.
        clip: results are clipped to plus and minus this; 0 for no bounds.
    """

    xp: Any
    weight: Any
    kind: str
    clip: float

    def forward(self, hidden: Any) -> Any:
        """The projected outputs."""
        out = activate(self.xp, hidden @ self.weight, unbounded(self.kind))
        return self.xp.clip(out, -self.clip, self.clip) if self.clip > 0 else out

    def backward(self, d_out: Any, out: Any) -> Any:
        """The gradient of the outputs; ``d_out`` is overwritten."""
        if self.clip > 0:
            d_out *= self.xp.abs(out) < self.clip
        return times_slope(d_out, out, self.kind) @ self.weight.T


def run(
    unit: LstmCell,
    steps: Steps,
    gates: Any,
    weight: Any,
    states: tuple[Any, Any],
    projection: Projection | None = None,
) -> tuple[Any, Any, Any, Any]:
    """Go through all steps.

    Args:
        unit: computes a step.
        steps: the steps.
        gates: ``(rows of steps, 4 * size)``, the input's contributions; overwritten with the
            activated gates.
        weight: multiplied with the previous result and added to the gates.
        states: result and cells before the first step, or None for zeros.
        projection: computes results from outputs; None: results are the outputs.

    Returns:
        Results, outputs, cells, and activations of cells, for all rows of the steps.
    """
    xp, size = unit.xp, gates.shape[1] // 4
    hidden, cells, active = (xp.empty((len(gates), size), gates.dtype) for _ in range(3))
    results = hidden
    if projection is not None:
        results = xp.empty((len(gates), len(weight)), gates.dtype)
    result, cell = (steps.first(xp, state) for state in states)
    for begin, end in steps.spans:
        count, here = end - begin, slice(begin, end)
        if result is not None:
            gates[here] += result[:count] @ weight
        made = unit.forward(gates[here], None if cell is None else cell[:count])
        cells[here], active[here], hidden[here] = made
        if projection is not None:
            results[here] = projection.forward(hidden[here])
        result, cell = results[here], cells[here]
    return results, hidden, cells, active


@dataclass(frozen=True)
class Activations:
    """The values that the forward pass keeps for the gradient, for all rows of the steps.

    Args:
        results: the results of :func:`run`.
        gates: activated gates.
        cells: the cells.
        active: their activations.
        first: states of nonempty sequences before the first step; each may be None.
    """

    results: Any
    gates: Any
    cells: Any
    active: Any
    first: tuple[Any, Any]


def run_back(
    unit: LstmCell,
    steps: Steps,
    kept: Activations,
    weight: Any,
    d_results: Any,
    projection: Projection | None = None,
) -> tuple[Any, Any]:
    """Go through all steps in the opposite order.

    Args:
        unit: computes a step.
        steps: the steps.
        kept: values kept by the forward pass.
        weight: as for :func:`run`.
        d_results: gradient of the results; overwritten with the gradient of the projection before
            activation.
        projection: as for :func:`run`.

    Returns:
        The gradients of the gates before activation, and of the cells before the first step.
    """
    d_gates = unit.xp.empty_like(kept.gates)
    d_cell = unit.xp.zeros((steps.running, kept.cells.shape[1]), d_gates.dtype)
    for step in range(len(steps.spans) - 1, -1, -1):
        begin, end = steps.spans[step]
        count, here = end - begin, slice(begin, end)
        if step:
            previous = slice(steps.spans[step - 1][0], steps.spans[step - 1][0] + count)
            before = kept.cells[previous]
        else:
            before = kept.first[1]
        d_hidden = d_results[here]
        if projection is not None:
            d_hidden = projection.backward(d_hidden, kept.results[here])
        values = kept.gates[here], before, kept.cells[here], kept.active[here]
        unit.backward(d_hidden, d_cell[:count], values, d_gates[here])
        if step:
            d_results[previous] += d_gates[here] @ weight.T
    return d_gates, d_cell


ON_ARRAYS = Loops(run, run_back)


def bias_grad(unit: LstmCell, steps: Steps, kept: Activations, d_gates: Any) -> Any:
    """The gradient of the bias, whose last columns are the peepholes.

    Args:
        unit: computes a step.
        steps: the steps.
        kept: values kept by the forward pass.
        d_gates: the result of :func:`run_back`.
    """
    total = d_gates.sum(axis=0)
    if unit.peepholes is not None:
        before = steps.before(unit.xp, kept.cells, kept.first[1])
        seen = unit.xp.concatenate([before, before, kept.cells], axis=1)
        seen *= d_gates[:, kept.cells.shape[1] :]
        total = unit.xp.concatenate([total, seen.sum(axis=0)])
    return total[None]
