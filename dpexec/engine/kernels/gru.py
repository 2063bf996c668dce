"""Gated recurrent units over sequences: one call for all time steps."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.cache import limit_of
from dpexec.engine.kernels.calls import multiplies, product, transposed_product, with_arguments
from dpexec.engine.kernels.elementwise import ADD, TOTAL
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.implementations import implementation
from dpexec.engine.kernels.layouts import turned
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.loop import Loop, further, place, unknowns
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, kernel
from dpexec.engine.kernels.math import gate, tanh
from dpexec.engine.kernels.packing import apart, array_apart, length
from dpexec.engine.kernels.recurrent import ONCE, Walk
from dpexec.engine.kernels.shapes import clear
from dpexec.engine.ops._gru import GruCell, gru_weights, run, run_back
from dpexec.engine.ops._recurrent import Loops
from dpexec.engine.ops._steps import Steps

__all__ = ["LOOPS", "backward_gates", "is_code"]

_ONE = np.float32(1)
_Array = np.ndarray[Any, Any]


@kernel(apart=True)
def _forward_gates(
    rows: Count, size: Count, update: Floats, reset: Floats, sums: Floats, before: Floats,
    seen: Floats,
) -> None:  # fmt: skip
    """The gates of a step, and the states times the reset gate, which the candidate reads.

    Arguments: sequences, size, update and reset gates, the product of the states before that is
    added to them, states before, reset states.
    """
    for row in range(rows):
        g, two, s = row * 3 * size, row * 2 * size, row * size
        for j in range(size):
            r = gate(reset[g + j] + sums[two + size + j])
            update[g + j] = gate(update[g + j] + sums[two + j])
            reset[g + j] = r
            seen[s + j] = before[s + j] * r


@kernel(apart=True)
def _forward_states(
    rows: Count, size: Count, origin: Count, update: Floats, new: Floats, sums: Floats,
    before: Floats, state: Floats,
) -> None:  # fmt: skip
    """The candidate of a step, and the next states.

    Arguments: sequences, size, whether the update gate is the share of the state that is kept,
    update gates, candidates, the product that is added to these, states before, states.
    """
    for row in range(rows):
        g, s = row * 3 * size, row * size
        for j in range(size):
            a, u = tanh(new[g + j] + sums[s + j]), update[g + j]
            fresh = _ONE - u if origin else u
            new[g + j] = a
            kept = u if origin else _ONE - u
            state[s + j] = kept * before[s + j] + fresh * a


@kernel(apart=True)
def _backward_states(
    rows: Count, size: Count, origin: Count, gates: Floats, before: Floats, d_state: Floats,
    sums: Floats, d_before: Floats, d_update: Floats, d_new: Floats,
) -> None:  # fmt: skip
    """The gradient of candidates and update gates of a step.

    Arguments: sequences, size, whether the update gate is the share of the state that is kept,
    gates, states before, gradient of the states, two parts that later steps add to it (the second
    is overwritten with the gradient of the states before), gradients of update gates and
    candidates.
    """
    for row in range(rows):
        g, s = row * 3 * size, row * size
        for j in range(size):
            u, a = gates[g + j], gates[g + 2 * size + j]
            d = d_state[s + j] + sums[s + j] + d_before[s + j]
            moved = d * (a - before[s + j]) * u * (_ONE - u)
            fresh = _ONE - u if origin else u
            d_update[g + j] = -moved if origin else moved
            d_new[g + j] = d * fresh * (_ONE - a * a)
            d_before[s + j] = d * (_ONE - fresh)


@kernel(apart=True)
def backward_gates(
    rows: Count, size: Count, gates: Floats, before: Floats, d_seen: Floats, d_gates: Floats,
    d_before: Floats,
) -> None:  # fmt: skip
    """The gradient of the reset gates of a step.

    Arguments: sequences, size, gates, states before, gradient of the reset states, gradient of the
    gates, gradient of the states before, which is added to.
    """
    for row in range(rows):
        g, s = row * 3 * size, row * size
        for j in range(size):
            r, d = gates[g + size + j], d_seen[s + j]
            d_gates[g + size + j] = d * before[s + j] * r * (_ONE - r)
            d_before[s + j] += d * r


def _takes(unit: GruCell, gates: _Array) -> bool:
    """Whether the kernels can compute such a unit."""
    usual = (unit.gate, unit.candidate) == ("sigmoid", "tanh")
    return usual and gates.dtype == np.float32 and len(gates) > 0 and multiplies()


@functools.lru_cache(limit_of("loops of recurrent kernels"))
def _forward_loop(size: int, origin: bool) -> Loop:
    """The steps of a unit, for :func:`_forward`."""
    arrays, (counts, starts, before) = unknowns(6, 3)
    gates, of_gates, sums, more, seen, states = arrays
    of_candidate = further(of_gates, size * length(2 * size))
    update, reset, new = (place(gates, starts, 3 * size, number * size) for number in range(3))
    here, saw = (place(array, starts, size) for array in (states, seen))
    of_before, of_seen = (before, of_gates, sums), (saw, of_candidate, more)
    calls = [
        product((counts, 2 * size, size), of_before, (size, length(2 * size))),
        (_forward_gates, (counts, size, update, reset, sums, before, saw)),
        product((counts, size, size), of_seen, (size, length(size))),
        (_forward_states, (counts, size, origin, update, new, more, before, here)),
    ]
    return Loop(calls, len(arrays))


def _forward(unit: GruCell, steps: Steps, gates: _Array, first: Any) -> tuple[_Array, _Array]:
    if not _takes(unit, gates):
        return run(unit, steps, gates, first)
    size, running = len(unit.weight), steps.running
    weight = np.concatenate([array_apart(part).ravel() for part in gru_weights(unit.weight)])
    seen, states = (np.empty((len(gates), size), np.float32) for _ in range(2))
    sums = np.zeros((running, 2 * size), np.float32)
    more = np.empty((running, size), np.float32)
    state = np.zeros((running, size), np.float32) if first is None else first
    before = np.empty(len(steps.starts), np.int64)
    before[0] = address(state)
    before[1:] = address(states) + 4 * size * steps.starts[:-1]
    _forward_loop(size, unit.origin_mode).run(
        tuple(map(address, (gates, weight, sums, more, seen, states))),
        (steps.counts, steps.starts, before),
        left_out=1 if first is None else 0,
    )
    return seen, states


@functools.lru_cache(limit_of("loops of recurrent kernels"))
def _backward_loop(size: int, origin: bool) -> Loop:
    """The steps back of a unit, for :func:`_backward`."""
    arrays, (counts, starts) = unknowns(8, 2)
    gates, before, d_states, of_gates, sums, d_before, d_seen, d_gates = arrays
    of_candidate = further(of_gates, 2 * size * length(size))
    d_update, d_new = (place(d_gates, starts, 3 * size, i * size) for i in (0, 2))
    known = place(gates, starts, 3 * size), place(before, starts, size)
    d_here = place(d_states, starts, size)
    of_new, of_both = (d_new, of_candidate, d_seen), (d_update, of_gates, sums)
    calls = [
        (
            _backward_states,
            (counts, size, origin, *known, d_here, sums, d_before, d_update, d_new),
        ),
        product((counts, size, size), of_new, (3 * size, length(size))),
        (backward_gates, (counts, size, *known, d_seen, d_update, d_before)),
        product((counts, size, 2 * size), of_both, (3 * size, length(size))),
    ]
    return Loop(calls, len(arrays))


def _backward(
    unit: GruCell, steps: Steps, gates: _Array, before: _Array, d_states: _Array
) -> tuple[_Array, _Array]:
    if not _takes(unit, gates):
        return run_back(unit, steps, gates, before, d_states)
    size, running = len(unit.weight), steps.running
    parts = gru_weights(unit.weight)
    weight = np.concatenate([array_apart(part.T).ravel() for part in parts])
    d_gates = np.empty(gates.shape, np.float32)
    sums, d_before, d_seen = (np.zeros((running, size), np.float32) for _ in range(3))
    _backward_loop(size, unit.origin_mode).run(
        tuple(map(address, (gates, before, d_states, weight, sums, d_before, d_seen, d_gates))),
        (steps.counts, steps.starts),
        backwards=True,
    )
    return d_gates, d_before + sums


# ---- in code


@kernel
def _spread_weights(size: Count, both: Count, one: Count, weight: Floats, out: Floats) -> int:
    """Both matrices of a weight, with gaps. Arguments: size, lengths of rows, weight, result."""
    for i in range(size):
        for j in range(2 * size):
            out[i * both + j] = weight[i * 2 * size + j]
    start, end = size * both, 2 * size * size
    for i in range(size):
        for j in range(size):
            out[start + i * one + j] = weight[end + i * size + j]
    return 0


def _weights_apart(code: Code, weight: Value, size: int) -> Value:
    """A weight as the steps read it."""
    both, one = length(2 * size), length(size)
    if (both, one) == (2 * size, size):
        return weight
    made = code.scratch(size * (both + one))
    code.emit(_spread_weights, size, both, one, weight, made)
    return made


@kernel
def _turn_weights(size: Count, weight: Floats, out: Floats) -> int:
    """Both matrices of a weight, transposed. Arguments: size, weight, result."""
    turned(size, 2 * size, weight, out, 0)
    turned(size, size, weight, out, 2 * size * size)
    return 0


@functools.lru_cache(limit_of("loops of recurrent kernels"))
def _weight_loop(size: int) -> Loop:
    """The gradient of a weight, in one step."""
    arrays, _ = unknowns(5, 0)
    rows, before, seen, d_gates, d_weight = arrays
    d_new, d_rest = further(d_gates, 2 * size), further(d_weight, 2 * size * size)
    of_both = (size, 2 * size, rows), (before, d_gates, d_weight)
    of_new = (size, size, rows), (seen, d_new, d_rest)
    calls = [product(*of, (size, 3 * size), flipped=True) for of in (of_both, of_new)]
    return Loop(calls, len(arrays))


def is_code(x: Value, others: Sequence[Value | None], gates: str, candidate: str) -> bool:
    """Whether there is code for values and activations."""
    usual = (gates, candidate) == ("sigmoid", "tanh")
    return usual and single(x, *others) and bool(x.shape[0] > 0) and multiplies()


@lowering("gru")
def gru(
    code: Code, x: Value, lod: Value, h0: Value | None, weight: Value, bias: Value | None,
    gates: Value, seen: Value, states: Value, hidden: Value,
    *, activation: str, gate_activation: str, is_reverse: bool, origin_mode: bool,
) -> Any:  # fmt: skip
    """Gather the input in the order of steps, run all steps, scatter the states to sequences."""
    if not is_code(x, (h0, weight, bias), gate_activation, activation):
        return False
    (rows, _), size, sequences = x.shape, weight.shape[0], lod.shape[0] - 1
    walk = Walk(code, lod, rows, is_reverse)
    walk.gather(x, gates, bias)
    sums, more = code.scratch(sequences, 2 * size), code.scratch(sequences, size)
    clear(code, sums, 0.0)
    walk.follow((walk.first(h0, size), states))
    arrays = gates, _weights_apart(code, weight, size), sums, more, seen, states
    loop, first = _forward_loop(size, origin_mode), int(h0 is None)
    loop.emit(code, arrays, walk.moving, left_out=first, behind=walk.behind)
    walk.scatter(states, hidden)


@lowering("gru_grad")
def gru_grad(
    code: Code, x: Value, lod: Value, h0: Value | None, weight: Value, bias: Value | None,
    gates: Value, seen: Value, states: Value, hidden: Value, d_hidden: Value,
    dx: Value | None, d_h0: Value | None, d_weight: Value | None, d_bias: Value | None,
    *, activation: str, gate_activation: str, is_reverse: bool, origin_mode: bool,
) -> Any:  # fmt: skip
    """The steps in the opposite order; then one product for the weight over all steps."""
    if not is_code(x, (h0, weight, bias, d_hidden), gate_activation, activation):
        return False
    rows, size = x.shape[0], weight.shape[0]
    walk = Walk(code, lod, rows, is_reverse)
    before = walk.before(states, walk.first(h0, size))
    turned_weight, d_gates = code.scratch(3, size, size), code.scratch(rows, 3 * size)
    code.emit(_turn_weights, size, weight, turned_weight)
    weights = apart(code, turned_weight, 3 * size, size)
    sums, d_before, d_seen = (walk.first(None, size) for _ in range(3))
    arrays = walk.gather(d_hidden), weights, sums, d_before, d_seen, d_gates
    loop = _backward_loop(size, origin_mode)
    loop.emit(code, (gates, before, *arrays), walk.moving, backwards=True)
    if dx is not None:
        walk.scatter(d_gates, dx)
    if d_h0 is not None:
        ADD.add_to(code, d_before, sums)
        walk.spread(d_before, d_h0)
    if d_weight is not None:
        known = rows, before, seen, d_gates, d_weight
        _weight_loop(size).emit(code, known, (ONCE, walk.moving[1]))
    if d_bias is not None:
        TOTAL.emit(code, d_gates, d_bias, d_gates.shape, [False, True])


LOOPS = Loops(_forward, _backward, transposed_product)
"""Like :data:`dpexec.engine.ops._gru.ON_ARRAYS`, which is used where there are no kernels."""

implementation(
    "gru", "gru_grad", "fusion_gru", backend="host", per_operator=True
)(with_arguments(loops=LOOPS))  # fmt: skip
