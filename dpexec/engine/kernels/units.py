"""Single steps of recurrent units for use in loops: ``gru_unit`` and ``lstm_unit``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpexec.engine.kernels.calls import Call, multiplies, product
from dpexec.engine.kernels.divided import shifted
from dpexec.engine.kernels.elementwise import ADD, TOTAL
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.gru import backward_gates
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.machine import (
    Count,
    Floats,
    Number,
    kernel,
)
from dpexec.engine.kernels.math import against, sigmoid, slope, tanh
from dpexec.engine.kernels.shapes import clear
from dpexec.engine.ops._recurrent import ACTIVATIONS

_ONE = np.float32(1)
_USUAL = ACTIVATIONS.index("sigmoid"), ACTIVATIONS.index("tanh")


@kernel(apart=True)
def _gates(
    rows: Count, size: Count, x: Floats, bias: Floats, sums: Floats, before: Floats, gates: Floats,
    seen: Floats,
) -> None:  # fmt: skip
    """Update and reset gates, and the reset states, which the candidate reads.

    Arguments: rows, size, input, bias, the product of the states that is added to the gates,
        states;
    results: gates, reset states.
    """
    for row in range(rows):
        g, two, s = row * 3 * size, row * 2 * size, row * size
        for j in range(size):
            r = sigmoid(x[g + size + j] + bias[size + j] + sums[two + size + j])
            gates[g + j] = sigmoid(x[g + j] + bias[j] + sums[two + j])
            gates[g + size + j] = r
            seen[s + j] = before[s + j] * r


@kernel(apart=True)
def _states(
    rows: Count, size: Count, origin: Count, x: Floats, bias: Floats, sums: Floats, before: Floats,
    gates: Floats, state: Floats,
) -> None:  # fmt: skip
    """Candidates, and the next states.

    Arguments: rows, size, whether the update gate is the share of the state that is kept, input,
    bias, the product of the reset states that is added to candidates, states, gates, next states.
    """
    for row in range(rows):
        g, s = row * 3 * size, row * size
        for j in range(size):
            a = tanh(x[g + 2 * size + j] + bias[2 * size + j] + sums[s + j])
            u = gates[g + j]
            rest = _ONE - u
            gates[g + 2 * size + j] = a
            fresh, kept = (rest, u) if origin else (u, rest)
            state[s + j] = kept * before[s + j] + fresh * a


@kernel(apart=True)
def _back_states(
    rows: Count, size: Count, origin: Count, gates: Floats, before: Floats, d_state: Floats,
    d_gates: Floats, d_before: Floats,
) -> None:  # fmt: skip
    """The gradient of update gates and candidates.

    Arguments: rows, size, whether the update gate is the share of the state that is kept, gates,
    states, gradient of the next states, gradient of the gates, gradient of the states.
    """
    for row in range(rows):
        g, s = row * 3 * size, row * size
        for j in range(size):
            u, a, d = gates[g + j], gates[g + 2 * size + j], d_state[s + j]
            moved = d * (a - before[s + j]) * u * (_ONE - u)
            fresh = _ONE - u if origin else u
            d_gates[g + j] = -moved if origin else moved
            d_gates[g + 2 * size + j] = d * fresh * (_ONE - a * a)
            d_before[s + j] = d * (_ONE - fresh)


def _multiply(code: Code, made: Call, parts: Mapping[Value, Any] | None = None) -> None:
    """Emit the call of a product.

    Args:
        code: takes the call.
        made: the product.
        parts: operands that are not used from their begin, with the number of skipped elements.
    """
    kernel, arguments = made
    places = {id(argument): number for number, argument in enumerate(arguments)}
    shifts = [word for v, n in (parts or {}).items() for word in (places[id(v)], 4 * n)]
    if shifts:
        code.emit(shifted, kernel.address, len(shifts) // 2, *shifts, *arguments)
    else:
        code.emit(kernel, *arguments)


def _takes(activation: int, gate_activation: int, *values: Value | None) -> bool:
    """Whether the kernels support these activations and values."""
    return (gate_activation, activation) == _USUAL and single(*values) and multiplies()


@lowering("gru_unit")
def gru_unit(
    code: Code, x: Value, before: Value, weight: Value, bias: Value | None, gates: Value,
    seen: Value, state: Value, *, activation: int, gate_activation: int, origin_mode: bool,
) -> Any:  # fmt: skip
    """Two products, each with a pass over its result."""
    if not _takes(activation, gate_activation, x, before, weight, bias):
        return False
    (rows, size), shift = before.shape, bias or _zeros(code, x.shape[1])
    sums, more = code.scratch(rows, 2 * size), code.scratch(rows, size)
    _multiply(code, product((rows, 2 * size, size), (before, weight, sums), (size, 2 * size)))
    code.emit(_gates, rows, size, x, shift, sums, before, gates, seen)
    of_candidate = product((rows, size, size), (seen, weight, more), (size, size))
    _multiply(code, of_candidate, {weight: 2 * size * size})
    code.emit(_states, rows, size, int(origin_mode), x, shift, more, before, gates, state)


def _zeros(code: Code, size: Any) -> Value:
    made = code.scratch(size)
    clear(code, made)
    return made


@lowering("gru_unit_grad")
def gru_unit_grad(
    code: Code, x: Value, before: Value, weight: Value, bias: Value | None, gates: Value,
    seen: Value, d_state: Value, dx: Value | None, d_before: Value | None,
    d_weight: Value | None, d_bias: Value | None,
    *, activation: int, gate_activation: int, origin_mode: bool,
) -> Any:  # fmt: skip
    """The step backwards; then products for the weight, and sums for the bias."""
    if not _takes(activation, gate_activation, x, before, weight, bias, d_state):
        return False
    rows, size = before.shape
    d_gates, d_before = dx or code.scratch(rows, 3 * size), d_before or code.scratch(rows, size)
    d_seen, more = code.scratch(rows, size), code.scratch(rows, size)
    known = rows, size, int(origin_mode), gates, before
    code.emit(_back_states, *known, d_state, d_gates, d_before)
    through = (rows, size, size), (d_gates, weight, d_seen), (3 * size, size)
    _multiply(code, product(*through, turned=True), {d_gates: 2 * size, weight: 2 * size * size})
    code.emit(backward_gates, rows, size, gates, before, d_seen, d_gates, d_before)
    through = (rows, size, 2 * size), (d_gates, weight, more), (3 * size, 2 * size)
    _multiply(code, product(*through, turned=True))
    ADD.add_to(code, d_before, more)
    if d_weight is not None:
        operands = (size, 2 * size, rows), (before, d_gates, d_weight), (size, 3 * size)
        _multiply(code, product(*operands, flipped=True))
        operands = (size, size, rows), (seen, d_gates, d_weight), (size, 3 * size)
        places = {d_gates: 2 * size, d_weight: 2 * size * size}
        _multiply(code, product(*operands, flipped=True), places)
    if d_bias is not None:
        TOTAL.emit(code, d_gates, d_bias, d_gates.shape, (False, True))


# ---- lstm_unit


@kernel(apart=True)
def _lstm(
    rows: Count, size: Count, forget: Number, x: Floats, before: Floats, cell: Floats,
    hidden: Floats,
) -> None:  # fmt: skip
    """A step.

    Arguments: rows, size, bias of forget gates, input, cells, next cells, outputs.
    """
    for row in range(rows):
        g, s = row * 4 * size, row * size
        for j in range(size):
            i, f = sigmoid(x[g + j]), sigmoid(x[g + size + j] + forget)
            o, a = sigmoid(x[g + 2 * size + j]), tanh(x[g + 3 * size + j])
            c = f * before[s + j] + i * a
            cell[s + j] = c
            hidden[s + j] = o * tanh(c)


@kernel(apart=True)
def _lstm_back(
    rows: Count, size: Count, forget: Number, x: Floats, before: Floats, cell: Floats,
    d_cell: Floats, d_hidden: Floats, dx: Floats, d_before: Floats,
) -> None:  # fmt: skip
    """The gradient of a step.

    Arguments: rows, size, bias of forget gates, input, cells before, next cells, gradients of next
    cells, of outputs, of the input, of cells before.
    """
    for row in range(rows):
        g, s = row * 4 * size, row * size
        for j in range(size):
            at_i, at_f, at_o = x[g + j], x[g + size + j] + forget, x[g + 2 * size + j]
            i, f, o, d = sigmoid(at_i), sigmoid(at_f), sigmoid(at_o), d_hidden[s + j]
            d_c = d_cell[s + j] + d * o * slope(cell[s + j])
            dx[g + j] = d_c * tanh(x[g + 3 * size + j]) * i * against(at_i)
            dx[g + size + j] = d_c * before[s + j] * f * against(at_f)
            dx[g + 2 * size + j] = d * tanh(cell[s + j]) * o * against(at_o)
            dx[g + 3 * size + j] = d_c * i * slope(x[g + 3 * size + j])
            d_before[s + j] = d_c * f


@lowering("lstm_unit")
def lstm_unit(
    code: Code, x: Value, before: Value, cell: Value, hidden: Value, *, forget_bias: float
) -> Any:
    """One pass."""
    if not single(x, before):
        return False
    code.emit(_lstm, *before.shape, float(forget_bias), x, before, cell, hidden)


@lowering("lstm_unit_grad")
def lstm_unit_grad(
    code: Code, x: Value, before: Value, cell: Value, d_cell: Value, d_hidden: Value,
    dx: Value | None, d_before: Value | None, *, forget_bias: float,
) -> Any:  # fmt: skip
    """One pass, which computes the gates again."""
    if not single(x, before, d_cell, d_hidden):
        return False
    dx, d_before = dx or code.scratch(*x.shape), d_before or code.scratch(*before.shape)
    given = x, before, cell, d_cell, d_hidden
    code.emit(_lstm_back, *before.shape, float(forget_bias), *given, dx, d_before)
