"""LSTMs over sequences: one call for all time steps, one pass over memory per step."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dpexec.engine.core.cache import limit_of
from dpexec.engine.kernels.calls import multiplies, product, transposed_product, with_arguments
from dpexec.engine.kernels.generate import compiled
from dpexec.engine.kernels.implementations import implementation
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.loop import Loop, further, place, unknowns
from dpexec.engine.kernels.machine import Kernel
from dpexec.engine.kernels.packing import array_apart, length
from dpexec.engine.ops._lstm import Activations, LstmCell, Projection, run, run_back
from dpexec.engine.ops._recurrent import LOGISTIC, Loops, unbounded
from dpexec.engine.ops._steps import Steps

__all__ = ["LOOPS", "backward_loop", "forward_loop"]

_Array = np.ndarray[Any, Any]


_FORWARD = """\
def {name}(
    rows: Count, size: Count, new: Floats, taken: Floats, kept: Floats, shown: Floats,
    sums: Floats, before: Floats, peepholes: Floats, cell: Floats, active: Floats, hidden: Floats,
):
    for row in range(rows):
        g, s = row * 4 * size, row * size
        for j in range(size):
            c = before[s + j]
            a = new[g + j] + sums[g + j]
            a = {candidate}
            i = taken[g + j] + sums[g + size + j] + c * peepholes[j]
            i = {taken}
            f = kept[g + j] + sums[g + 2 * size + j] + c * peepholes[size + j]
            f = {kept}
            c = a * i + c * f
            o = shown[g + j] + sums[g + 3 * size + j] + c * peepholes[2 * size + j]
            o = {shown}
            t = {state}
            new[g + j] = a
            taken[g + j] = i
            kept[g + j] = f
            shown[g + j] = o
            cell[s + j] = c
            active[s + j] = t
            hidden[s + j] = o * t
"""
"""A step.

Arguments: sequences, size, the four gates, the product of the state before that is added to them,
cells before, peepholes; results: cells, their activations, outputs.
"""

_BACKWARD = """\
def {name}(
    rows: Count, size: Count, gates: Floats, before: Floats, active: Floats, peepholes: Floats,
    d_result: Floats, sums: Floats, d_cell: Floats, d_new: Floats, d_taken: Floats,
    d_kept: Floats, d_shown: Floats,
):
    for row in range(rows):
        g, s = row * 4 * size, row * size
        for j in range(size):
            a, i = gates[g + j], gates[g + size + j]
            f, o = gates[g + 2 * size + j], gates[g + 3 * size + j]
            t, d = active[s + j], d_result[s + j] + sums[s + j]
            d_o = d * t * {shown}
            d_c = d_cell[s + j] + d * o * {state} + d_o * peepholes[2 * size + j]
            d_i = d_c * a * {taken}
            d_f = d_c * before[s + j] * {kept}
            d_new[g + j] = d_c * i * {candidate}
            d_taken[g + j] = d_i
            d_kept[g + j] = d_f
            d_shown[g + j] = d_o
            d_cell[s + j] = d_c * f + d_i * peepholes[j] + d_f * peepholes[size + j]
"""
"""The gradient of a step.

Arguments: sequences, size, gates, cells before, activations of cells, peepholes, gradient of the
outputs, the gradient from later steps that is added to it, gradient of the cells, gradients of the
four gates.
"""

_PROJECT = """\
def {name}(rows: Count, width: Count, result: Floats):
    for i in range(rows * width):
        y = result[i]
        result[i] = {shown}
"""
"""Apply the activation of projections to a step's projected outputs.

Arguments: sequences, width of projections, projections, which are overwritten.
"""

_PROJECT_BACK = """\
def {name}(rows: Count, width: Count, result: Floats, sums: Floats, d_result: Floats):
    for i in range(rows * width):
        y = result[i]
        d_result[i] = (d_result[i] + sums[i]) * {shown}
"""
"""The gradient of a step's projected outputs before their activation.

Arguments: as for the projection; the gradient from later steps that is added; the gradient of the
projections, which is overwritten.
"""

Kinds = tuple[str, str, str]
"""Activations of gates, of cells and of candidates."""

_FUNCTIONS = {
    "sigmoid": "gate({0})",
    LOGISTIC: "sigmoid({0})",
    "tanh": "tanh({0})",
    "relu": "max({0}, zero)",
    "identity": "{0}",
}
_SLOPES = {
    "sigmoid": "{0} * (one - {0})",
    LOGISTIC: "{0} * (one - {0})",
    "tanh": "(one - {0} * {0})",
    "relu": "(one if {0} > zero else zero)",
    "identity": "one",
}


@functools.cache
def _step(forward: bool, kinds: Kinds) -> Kernel:
    """The kernel of a step, or of its gradient."""
    gate, state, candidate = ((_FUNCTIONS if forward else _SLOPES)[kind] for kind in kinds)
    name = "_".join(["lstm" if forward else "lstm_back", *kinds])
    source = (_FORWARD if forward else _BACKWARD).format(
        name=name,
        candidate=candidate.format("a"),
        taken=gate.format("i"),
        kept=gate.format("f"),
        shown=gate.format("o"),
        state=state.format("c" if forward else "t"),
    )
    return compiled(name, source, apart=True)


@functools.cache
def _projection(forward: bool, kind: str) -> Kernel:
    """The kernel of a projection's activation, or of its gradient."""
    name = f"lstm_project_{kind}" if forward else f"lstm_project_back_{kind}"
    shown = (_FUNCTIONS if forward else _SLOPES)[unbounded(kind)].format("y")
    source = (_PROJECT if forward else _PROJECT_BACK).format(name=name, shown=shown)
    return compiled(name, source, apart=True)


def _takes(unit: LstmCell, gates: _Array, projection: Projection | None) -> bool:
    """Whether the kernels can compute such a memory."""
    bounds = unit.clip + (0 if projection is None else projection.clip)
    return bounds == 0 and gates.dtype == np.float32 and len(gates) > 0 and multiplies()


def _peepholes(unit: LstmCell, size: int) -> _Array:
    given = unit.peepholes
    return np.zeros(3 * size, np.float32) if given is None else np.ascontiguousarray(given)


def _quarters(gates: _Array, row: _Array, size: int) -> list[_Array]:
    return [place(gates, row, 4 * size, number * size) for number in range(4)]


def _previous(first: _Array, states: _Array, starts: _Array) -> _Array:
    """Address of the states before each step, as a vector of coefficients."""
    found = np.empty(len(starts), np.int64)
    found[0] = address(first)
    found[1:] = address(states) + states.strides[0] * starts[:-1]
    return found


@functools.lru_cache(limit_of("loops of recurrent kernels"))
def forward_loop(size: int, width: int, projects: str | None, kinds: Kinds, first: int = 0) -> Loop:
    """The steps of an LSTM, for :func:`_all_steps`.

    Args:
        size: number of cells.
        width: width of the results.
        projects: activation of projections; None: there are none, results are the outputs.
        kinds: activations.
        first: position of the peepholes in their array.
    """
    arrays, (counts, starts, results, before) = unknowns(9, 4)
    gates, weight, bias, sums, projection, result, *made = arrays
    peepholes = further(bias, first)
    calls = [
        product((counts, 4 * size, width), (results, weight, sums), (width, length(4 * size))),
        (
            _step(True, kinds),
            (
                *(counts, size, *_quarters(gates, starts, size), sums, before, peepholes),
                *(place(array, starts, size) for array in made),
            ),
        ),
    ]
    if projects is not None:
        hidden, here = place(made[-1], starts, size), place(result, starts, width)
        calls += [
            product((counts, width, size), (hidden, projection, here), (size, length(width))),
        ]
        if projects != "identity":
            calls.append((_projection(True, projects), (counts, width, here)))
    return Loop(calls, len(arrays))


def _form(
    unit: LstmCell, size: int, projection: Projection | None
) -> tuple[int, int, str | None, Kinds]:
    """The properties of an LSTM on which its loops depend."""
    kinds = unit.gate, unit.state, unit.candidate
    if projection is None:
        return size, size, None, kinds
    return size, projection.weight.shape[1], projection.kind, kinds


def _all_steps(
    unit: LstmCell,
    steps: Steps,
    gates: _Array,
    weight: _Array,
    states: tuple[Any, Any],
    projection: Projection | None = None,
) -> tuple[_Array, _Array, _Array, _Array]:
    if not _takes(unit, gates, projection):
        return run(unit, steps, gates, weight, states, projection)
    size, running = gates.shape[1] // 4, steps.running
    hidden, cells, active = (np.empty((len(gates), size), np.float32) for _ in range(3))
    sums, weight = np.zeros((running, 4 * size), np.float32), array_apart(weight)
    result, projects = hidden, weight
    if projection is not None:
        result = np.empty((len(gates), len(weight)), np.float32)
        projects = array_apart(projection.weight)
    h0, c0 = (steps.first(np, state) for state in states)
    nothing, peepholes = np.zeros((running, size), np.float32), _peepholes(unit, size)
    results = _previous(nothing if h0 is None else h0, result, steps.starts)
    before = _previous(nothing if c0 is None else c0, cells, steps.starts)
    arrays = gates, weight, peepholes, sums, projects, result, cells, active, hidden
    forward_loop(*_form(unit, size, projection)).run(
        tuple(map(address, arrays)),
        (steps.counts, steps.starts, results, before),
        left_out=1 if h0 is None else 0,
    )
    return result, hidden, cells, active


@functools.lru_cache(limit_of("loops of recurrent kernels"))
def backward_loop(
    size: int, width: int, projects: str | None, kinds: Kinds, first: int = 0
) -> Loop:
    """The steps back of an LSTM, for :func:`_all_steps_back`; arguments as for the steps."""
    arrays, (counts, starts, before) = unknowns(12, 3)
    gates, active, d_results, weight, bias, sums, d_cell, d_gates, *projected = arrays
    peepholes = further(bias, first)
    results, projection, d_hidden, nothing = projected
    d_here, d_result = place(d_gates, starts, 4 * size), place(d_results, starts, width)
    calls, d_output, later = [], d_result, sums
    if projects is not None:
        here = place(results, starts, width)
        calls = [
            (_projection(False, projects), (counts, width, here, sums, d_result)),
            product((counts, size, width), (d_result, projection, d_hidden), (width, length(size))),
        ]
        d_output, later = d_hidden, nothing
    calls += [
        (
            _step(False, kinds),
            (
                *(counts, size, place(gates, starts, 4 * size), before),
                *(place(active, starts, size), peepholes, d_output),
                *(later, d_cell, *_quarters(d_gates, starts, size)),
            ),
        ),
        product((counts, width, 4 * size), (d_here, weight, sums), (4 * size, length(width))),
    ]
    return Loop(calls, len(arrays))


def _all_steps_back(
    unit: LstmCell,
    steps: Steps,
    kept: Activations,
    weight: _Array,
    d_results: _Array,
    projection: Projection | None = None,
) -> tuple[_Array, _Array]:
    if not _takes(unit, kept.gates, projection):
        return run_back(unit, steps, kept, weight, d_results, projection)
    size, running = kept.cells.shape[1], steps.running
    d_gates = np.empty(kept.gates.shape, np.float32)
    d_cell, nothing = (np.zeros((running, size), np.float32) for _ in range(2))
    sums = np.zeros((running, len(weight)), np.float32)
    turned, peepholes = array_apart(weight.T), _peepholes(unit, size)
    first = nothing if kept.first[1] is None else kept.first[1]
    before = _previous(first, kept.cells, steps.starts)
    arrays = [kept.gates, kept.active, d_results, turned, peepholes, sums, d_cell, d_gates]
    projects = weight if projection is None else array_apart(projection.weight.T)
    arrays += [kept.results, projects, np.empty_like(nothing), nothing]
    backward_loop(*_form(unit, size, projection)).run(
        tuple(map(address, arrays)),
        (steps.counts, steps.starts, before),
        backwards=True,
    )
    return d_gates, d_cell


LOOPS = Loops(_all_steps, _all_steps_back, transposed_product)
"""Like :data:`dpexec.engine.ops._lstm.ON_ARRAYS`, which is used where there are no kernels."""

implementation(
    "lstm", "lstm_grad", "lstmp", "lstmp_grad", "fusion_lstm", "fused_embedding_fc_lstm",
    backend="host", per_operator=True,
)(with_arguments(loops=LOOPS))  # fmt: skip
