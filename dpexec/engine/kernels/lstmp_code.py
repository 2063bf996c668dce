"""Lowerings of LSTMs with projections; see ``lstm_code`` for those without."""

from __future__ import annotations

from typing import Any

from dpexec.engine.kernels.elementwise import TOTAL
from dpexec.engine.kernels.layouts import turn
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.lstm import backward_loop, forward_loop
from dpexec.engine.kernels.lstm_code import bias_end, is_code, peephole_grad, state_loop
from dpexec.engine.kernels.packing import apart
from dpexec.engine.kernels.products import matrix_product
from dpexec.engine.kernels.recurrent import ONCE, Walk
from dpexec.engine.kernels.shapes import clear
from dpexec.engine.ops.lstmp import projection_kind

__all__: list[str] = []


@lowering("lstmp")
def lstmp(
    code: Code, x: Value, lod: Value, h0: Value | None, c0: Value | None, weight: Value,
    proj_weight: Value, bias: Value, projection: Value, cell: Value, gates: Value, active: Value,
    hidden: Value, *, use_peepholes: bool, is_reverse: bool, cell_clip: float, proj_clip: float,
    gate_activation: str, cell_activation: str, candidate_activation: str, proj_activation: str,
) -> Any:  # fmt: skip
    """Gather the input in the order of steps, run all steps, scatter the results to sequences."""
    kinds = gate_activation, cell_activation, candidate_activation
    projects = projection_kind(proj_activation, cell_activation)
    if cell_clip or proj_clip or not is_code(x, (h0, c0, weight, proj_weight, bias)):
        return False
    rows, (size, width) = x.shape[0], proj_weight.shape
    walk = Walk(code, lod, rows, is_reverse)
    walk.gather(x, gates, bias)
    results, cells = code.scratch(rows, width), code.scratch(rows, size)
    sums = code.scratch(lod.shape[0] - 1, 4 * size)
    clear(code, sums, 0.0)
    walk.follow((walk.first(h0, width), results), (walk.first(c0, size), cells))
    peepholes, begin = bias_end(code, bias, size, use_peepholes)
    weights = apart(code, weight, width, 4 * size), apart(code, proj_weight, size, width)
    arrays = gates, weights[0], peepholes, sums, weights[1], results, cells, active, hidden
    loop, first = forward_loop(size, width, projects, kinds, begin), int(h0 is None)
    loop.emit(code, arrays, walk.moving, left_out=first, behind=walk.behind)
    walk.scatter(results, projection)
    walk.scatter(cells, cell)


@lowering("lstmp_grad")
def lstmp_grad(
    code: Code, h0: Value | None, c0: Value | None, weight: Value, proj_weight: Value,
    bias: Value, projection: Value, lod: Value, cell: Value, gates: Value, active: Value,
    hidden: Value, d_projection: Value, dx: Value | None, d_h0: Value | None, d_c0: Value | None,
    d_weight: Value | None, d_proj_weight: Value | None, d_bias: Value | None,
    *, use_peepholes: bool, is_reverse: bool, cell_clip: float, proj_clip: float,
    gate_activation: str, cell_activation: str, candidate_activation: str, proj_activation: str,
) -> Any:  # fmt: skip
    """The steps in the opposite order; then one product for each weight over all steps."""
    kinds = gate_activation, cell_activation, candidate_activation
    projects = projection_kind(proj_activation, cell_activation)
    others = h0, c0, weight, proj_weight, bias, d_projection
    if cell_clip or proj_clip or not is_code(gates, others):
        return False
    rows, (size, width) = gates.shape[0], proj_weight.shape
    walk = Walk(code, lod, rows, is_reverse)
    cells, first_cells = walk.gather(cell), walk.first(c0, size)
    walk.follow((first_cells, cells))
    turned, turned_projection = code.scratch(4 * size, width), code.scratch(width, size)
    code.emit(turn, 1, width, 4 * size, weight, turned)
    code.emit(turn, 1, size, width, proj_weight, turned_projection)
    weights = apart(code, turned, 4 * size, width), apart(code, turned_projection, width, size)
    results, d_results = walk.gather(projection), walk.gather(d_projection)
    sums, d_cell, nothing = (walk.first(None, wide) for wide in (width, size, size))
    peepholes, begin = bias_end(code, bias, size, use_peepholes)
    d_gates, d_hidden = code.scratch(rows, 4 * size), code.scratch(lod.shape[0] - 1, size)
    arrays = [gates, active, d_results, weights[0], peepholes, sums, d_cell, d_gates]
    arrays += [results, weights[1], d_hidden, nothing]
    loop = backward_loop(size, width, projects, kinds, begin)
    loop.emit(code, arrays, walk.moving, backwards=True, behind=walk.behind)
    if dx is not None:
        walk.scatter(d_gates, dx)
    _state_grads(code, walk, d_gates, weights[0], d_cell, d_h0, d_c0)
    if d_weight is not None:
        before = walk.before(results, walk.first(h0, width))
        matrix_product(code, before, d_gates, d_weight, (width, 4 * size, rows), (True, False))
    if d_proj_weight is not None:
        sizes = size, width, rows
        matrix_product(code, hidden, d_results, d_proj_weight, sizes, (True, False))
    if d_bias is not None:
        TOTAL.emit(code, d_gates, d_bias, d_gates.shape, [False, True])
    if d_bias is not None and use_peepholes:
        before = walk.before(cells, first_cells)
        code.emit(peephole_grad, rows, size, before, cells, d_gates, d_bias)


def _state_grads(
    code: Code, walk: Walk, d_gates: Value, weights: Any, d_cell: Value, d_h0: Value | None,
    d_c0: Value | None,
) -> None:  # fmt: skip
    """The gradients of the initial states."""
    if d_h0 is not None:
        d_first = code.scratch(*d_h0.shape)
        loop = state_loop(d_cell.shape[1], d_h0.shape[1])
        loop.emit(code, (d_gates, weights, d_first), (ONCE, walk.moving[1]))
        walk.spread(d_first, d_h0)
    if d_c0 is not None:
        walk.spread(d_cell, d_c0)
