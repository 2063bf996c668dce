"""``lstm_unit``: one step of a long short-term memory."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._recurrent import LOGISTIC, activate, require_shape, saturated, times_slope
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
    ],
)
def lstm_unit(xp: Any, x: Any, before: Any, *, forget_bias: float = 0.0) -> tuple[Any, Any]:
    """The next cells, and what is shown of them.

    Columns of ``X`` are for input gate, forget gate, output gate and candidate; ``forget_bias`` is
    added to the forget gate's. Source: Paddle op ``lstm_unit``; Hochreiter, Schmidhuber, 1997.
    """
    taken, kept, shown, new = _activated(xp, x, forget_bias)
    cell = kept * before + taken * new
    return cell, shown * xp.tanh(cell)


@lstm_unit.grad("X", "C_prev", "C", "C@GRAD", "H@GRAD", dense=True)
def lstm_unit_grad(
    xp: Any, x: Any, before: Any, cell: Any, d_cell: Any, d_hidden: Any, *, forget_bias: float = 0.0
) -> tuple[Any, Any]:
    """Gates are computed once more: the operator does not store them."""
    taken, kept, shown, new = _activated(xp, x, forget_bias)
    active = xp.tanh(cell)
    d_all = d_cell + times_slope(d_hidden * shown, active, "tanh")
    parts = [
        times_slope(d_all * new, taken, LOGISTIC),
        times_slope(d_all * before, kept, LOGISTIC),
        times_slope(d_hidden * active, shown, LOGISTIC),
        times_slope(d_all * taken, new, "tanh"),
    ]
    return xp.concatenate(parts, axis=1), d_all * kept
