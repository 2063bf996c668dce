"""``lstm_unit``: one step of a long short-term memory."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._costs import LSTM_CELL
from dpexec.engine.ops._edges import STATES, smaller
from dpexec.engine.ops._recurrent import (
    LOGISTIC,
    activate,
    gate_and_slope,
    require_shape,
    saturated,
    tanh_slope,
)
from dpexec.engine.ops._shapes import require_float


def _infer(x: Spec, before: Spec) -> tuple[Spec, Spec]:
    require_float(x, "X")
    require(before.rank == 2, f"C_prev {before} must be (batch, size)")
    require_shape("X", x, (before.shape[0], 4 * before.shape[1]), before)
    out = before.replace(shape=(x.shape[0], before.shape[1]), lod_level=0)
    return out, out


def _activated(xp: Any, x: Any, forget_bias: float) -> tuple[Any, Any, Any, Any]:
    """Input gate, forget gate, output gate and candidate."""
    size = x.shape[1] // 4
    gates = x.copy()
    gates[:, size : 2 * size] += forget_bias
    activate(xp, gates[:, : 3 * size], LOGISTIC)
    activate(xp, gates[:, 3 * size :], "tanh")
    taken, kept, shown, new = (gates[:, i * size : (i + 1) * size] for i in range(4))
    return taken, kept, shown, new


@op(
    "lstm_unit",
    inputs="X C_prev",
    outputs="C H",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.normal((3, 8)), "C_prev": r.normal((3, 2))}),
        Sample({"X": r.normal((1, 12)), "C_prev": r.normal((1, 3))}, {"forget_bias": 0.5}),
        Sample({"X": r.normal((5, 4)), "C_prev": r.normal((5, 1))}, {"forget_bias": -1.0}),
        saturated(r, Sample({"X": r.normal((9, 8)), "C_prev": r.normal((9, 2))}), "X", "C_prev"),
        smaller(Sample({"X": r.normal((3, 8)), "C_prev": r.normal((3, 2))}), 1e-13, "C H", STATES),
    ],
    operand_ulps=4,
    flops=per_element("C", LSTM_CELL),
)
def lstm_unit(xp: Any, x: Any, before: Any, *, forget_bias: float = 0.0) -> tuple[Any, Any]:
    """The next cells, and the hidden states.

    Columns of ``X`` are for input gate, forget gate, output gate and candidate; ``forget_bias`` is
    added to those of the forget gate. Source: Paddle op ``lstm_unit``; Hochreiter, Schmidhuber,
    1997.
    """
    taken, kept, shown, new = _activated(xp, x, forget_bias)
    cell = kept * before + taken * new
    return cell, shown * xp.tanh(cell)


@lstm_unit.grad("X", "C_prev", "C", "C@GRAD", "H@GRAD", dense=True, operand_ulps=4)
def lstm_unit_grad(
    xp: Any, x: Any, before: Any, cell: Any, d_cell: Any, d_hidden: Any, *, forget_bias: float = 0.0
) -> tuple[Any, Any]:
    """Gates are computed once more: the operator does not store them."""
    size, gradient = x.shape[1] // 4, x.copy()
    into = [gradient[:, i * size : (i + 1) * size] for i in range(4)]
    into[1][...] += x.dtype.type(forget_bias)
    gates = gradient[:, : 3 * size]
    opened = gate_and_slope(xp, gates)
    taken, kept, shown = (opened[:, i * size : (i + 1) * size] for i in range(3))
    new = into[3]
    d_all = d_cell + d_hidden * shown * tanh_slope(xp, cell)
    into[0][...] *= d_all * xp.tanh(new)
    into[1][...] *= d_all * before
    into[2][...] *= d_hidden * xp.tanh(cell)
    into[3][...] = d_all * taken * tanh_slope(xp, new)
    return gradient, d_all * kept
