"""``row_conv``: convolution of every step of a sequence with later steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._contexts import contexts, contexts_grad
from dpexec.engine.ops._shapes import require_same_dtype


def _infer(x: Spec, lod: Spec | None, weight: Spec) -> Spec:
    require_same_dtype(x, weight, "X and Filter")
    require(
        x.rank == 2 or (x.rank == 3 and lod is None),
        f"X {x} must be sequences (rows, D), or dense ones (N, T, D)",
    )
    require(
        weight.rank == 2 and dims_match(weight.shape[1], x.shape[-1]),
        f"Filter {weight} must have a row per step and the width of X {x}",
    )
    return x


def _as_rows(x: Any, lod: Lod | None) -> tuple[Any, Lod]:
    """Rows and their sequences; dense sequences all have the same length."""
    if lod:
        return x, lod
    require(x.ndim == 3, "X holds no sequences, so it must be dense ones (N, T, D)")
    return x.reshape(-1, x.shape[-1]), Lod.of_lengths([[x.shape[1]] * x.shape[0]])


@op(
    "row_conv",
    inputs="X X@LOD? Filter",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.normal((2, 5, 3)), "Filter": r.normal((3, 3))}),
        Sample({"X": r.normal((3, 2, 1)), "Filter": r.normal((4, 1))}),
        Sample({"X": r.normal((6, 2)), "X@LOD": Lod([[0, 4, 6]]), "Filter": r.normal((3, 2))}),
        Sample({"X": r.normal((6, 2)), "X@LOD": Lod([[0, 1, 6]]), "Filter": r.normal((1, 2))}),
        Sample(
            {
                "X": np.array([[1.0], [2.0], [3.0]]),
                "X@LOD": Lod([[0, 2, 2, 3]]),
                "Filter": np.array([[1.0], [10.0]]),
            },
            deviates={"*": "refuses sequences without rows; dpexec accepts them"},
            expected={"Out": np.array([[21.0], [2.0], [3.0]])},
        ),
    ],
    operand_ulps=2,
    macs=lambda call: call.size("Out") * call.shape("Filter")[0],
)
def row_conv(xp: Any, x: Any, lod: Lod | None, weight: Any) -> Any:
    """``out[t] = sum(x[t + k] * filter[k])`` over this step and later ones of the same sequence.

    Source: Paddle op ``row_conv``; Amodei and others, 2015 (Deep Speech 2).
    """
    rows, lod = _as_rows(x, lod)
    steps = contexts(xp, rows, lod, 0, len(weight))
    return xp.einsum("rkd,kd->rd", steps, weight).reshape(x.shape)


@row_conv.grad(
    "X", "X@LOD?", "Filter", "Out@GRAD", outputs="X@GRAD Filter@GRAD", dense=True, operand_ulps=2
)
def row_conv_grad(
    xp: Any, x: Any, lod: Lod | None, weight: Any, d_out: Any, *, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    """The same sums in the opposite direction."""
    rows, lod = _as_rows(x, lod)
    d_rows, d_x, d_weight = d_out.reshape(rows.shape), None, None
    if needs[0]:
        d_x = contexts_grad(xp, d_rows[:, None] * weight, lod, 0).reshape(x.shape)
    if needs[1]:
        steps = contexts(xp, rows, lod, 0, len(weight))
        d_weight = xp.einsum("rkd,rd->kd", steps, d_rows)
    return d_x, d_weight
