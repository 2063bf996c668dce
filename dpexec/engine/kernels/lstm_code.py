"""Lowerings of LSTMs: their time steps, and the operations before and after them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.cache import limit_of
from dpexec.engine.kernels.calls import multiplies, product
from dpexec.engine.kernels.elementwise import TOTAL
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.layouts import turn
from dpexec.engine.kernels.loop import Loop, unknowns
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.lstm import backward_loop, forward_loop
from dpexec.engine.kernels.machine import Count, Floats, kernel
from dpexec.engine.kernels.packing import apart, length
from dpexec.engine.kernels.products import matrix_product
from dpexec.engine.kernels.recurrent import ONCE, Walk
from dpexec.engine.kernels.shapes import clear

__all__ = ["bias_end", "is_code", "peephole_grad", "state_loop"]

_ZERO = np.float32(0)


@kernel
def peephole_grad(
    rows: Count, size: Count, before: Floats, cells: Floats, d_gates: Floats, out: Floats,
) -> int:  # fmt: skip
    """The gradient of peepholes.

    Arguments: rows, size, cells before, cells, gradient of the gates, gradient of the bias, whose
    last part, for the peepholes, is overwritten.
    """
    for j in range(4 * size, 7 * size):
        out[j] = _ZERO
    for row in range(rows):
        s, g = row * size, row * 4 * size
        for j in range(size):
            out[4 * size + j] += before[s + j] * d_gates[g + size + j]
            out[5 * size + j] += before[s + j] * d_gates[g + 2 * size + j]
            out[6 * size + j] += cells[s + j] * d_gates[g + 3 * size + j]
    return 0


@functools.lru_cache(limit_of("loops of recurrent kernels"))
def state_loop(size: int, width: int) -> Loop:
    """The gradient of the initial results, in one step.

    Args:
        size: number of cells.
        width: width of the results.
    """
    arrays, (counts,) = unknowns(3, 1)
    d_gates, weight, d_first = arrays
    calls = [
        product((counts, width, 4 * size), (d_gates, weight, d_first), (4 * size, length(width)))
    ]
    return Loop(calls, len(arrays))


def is_code(x: Value, others: Sequence[Value | None]) -> bool:
    """Whether there is code for values."""
    return single(x, *others) and bool(x.shape[0] > 0) and multiplies()


def bias_end(code: Code, bias: Value, size: int, use_peepholes: bool) -> tuple[Value, int]:
    """The array with the peepholes, and their position in it."""
    if use_peepholes:
        return bias, 4 * size
    nothing = code.scratch(3 * size)
    clear(code, nothing, 0.0)
    return nothing, 0


@lowering("lstm")
def lstm(
    code: Code, x: Value, lod: Value, h0: Value | None, c0: Value | None, weight: Value,
    bias: Value, hidden: Value, cell: Value, gates: Value, active: Value,
    *, use_peepholes: bool, is_reverse: bool, gate_activation: str, cell_activation: str,
    candidate_activation: str,
) -> Any:  # fmt: skip
    """Gather the input in the order of steps, run all steps, scatter the results to sequences."""
    kinds = gate_activation, cell_activation, candidate_activation
    if not is_code(x, (h0, c0, weight, bias)):
        return False
    rows, size, sequences = x.shape[0], weight.shape[0], lod.shape[0] - 1
    walk = Walk(code, lod, rows, is_reverse)
    walk.gather(x, gates, bias)
    states, cells = code.scratch(rows, size), code.scratch(rows, size)
    sums = code.scratch(sequences, 4 * size)
    clear(code, sums, 0.0)
    walk.follow((walk.first(h0, size), states), (walk.first(c0, size), cells))
    peepholes, begin = bias_end(code, bias, size, use_peepholes)
    weights = apart(code, weight, size, 4 * size)
    arrays = gates, weights, peepholes, sums, weight, states, cells, active, states  # no projection
    loop, first = forward_loop(size, size, None, kinds, begin), int(h0 is None)
    loop.emit(code, arrays, walk.moving, left_out=first, behind=walk.behind)
    walk.scatter(states, hidden)
    walk.scatter(cells, cell)


@lowering("lstm_grad")
def lstm_grad(
    code: Code, x: Value, lod: Value, h0: Value | None, c0: Value | None, weight: Value,
    bias: Value, hidden: Value, cell: Value, gates: Value, active: Value, d_hidden: Value,
    dx: Value | None, d_h0: Value | None, d_c0: Value | None, d_weight: Value | None,
    d_bias: Value | None,
    *, use_peepholes: bool, is_reverse: bool, gate_activation: str, cell_activation: str,
    candidate_activation: str,
) -> Any:  # fmt: skip
    """The steps in the opposite order; then one product for the weight over all steps."""
    kinds = gate_activation, cell_activation, candidate_activation
    if not is_code(x, (h0, c0, weight, bias, d_hidden)):
        return False
    rows, size = x.shape[0], weight.shape[0]
    walk = Walk(code, lod, rows, is_reverse)
    cells, first_cells = walk.gather(cell), walk.first(c0, size)
    walk.follow((first_cells, cells))
    turned_weight, d_gates = code.scratch(4 * size, size), code.scratch(rows, 4 * size)
    code.emit(turn, 1, size, 4 * size, weight, turned_weight)
    turned_weights = apart(code, turned_weight, 4 * size, size)
    sums, d_cell = walk.first(None, size), walk.first(None, size)
    peepholes, begin = bias_end(code, bias, size, use_peepholes)
    known = walk.gather(d_hidden), turned_weights, peepholes, sums, d_cell, d_gates
    arrays = gates, active, *known, *[weight] * 4  # there is no projection
    loop = backward_loop(size, size, None, kinds, begin)
    loop.emit(code, arrays, walk.moving, backwards=True, behind=walk.behind)
    if dx is not None:
        walk.scatter(d_gates, dx)
    if d_h0 is not None:
        d_first = code.scratch(lod.shape[0] - 1, size)
        state_loop(size, size).emit(
            code, (d_gates, turned_weights, d_first), (ONCE, walk.moving[1])
        )
        walk.spread(d_first, d_h0)
    if d_c0 is not None:
        walk.spread(d_cell, d_c0)
    if d_weight is not None:
        before = walk.before(walk.gather(hidden), walk.first(h0, size))
        sizes = size, 4 * size, rows
        matrix_product(code, before, d_gates, d_weight, sizes, (True, False))
    if d_bias is not None:
        TOTAL.emit(code, d_gates, d_bias, d_gates.shape, [False, True])
    if d_bias is not None and use_peepholes:
        before = walk.before(cells, first_cells)
        code.emit(peephole_grad, rows, size, before, cells, d_gates, d_bias)
