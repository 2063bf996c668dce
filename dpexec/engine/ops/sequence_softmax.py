"""``sequence_softmax``: every sequence becomes probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._costs import SOFTMAX
from dpexec.engine.ops._edges import spoiled
from dpexec.engine.ops._sequences import per_row, sequence_maxima, sequence_sums
from dpexec.engine.ops._shapes import require_float

_LOD = Lod([[0, 2, 2, 5]])


def _infer(x: Spec, lod: Spec | None) -> Spec:
    require_float(x)
    require(
        x.rank == 1 or (x.rank == 2 and x.shape[1] in (1, -1)),
        f"X {x} must have one number per row",
    )
    return x


@op(
    "sequence_softmax",
    inputs="X X@LOD",
    infer=_infer,
    attrs={"use_cudnn": False, "data_format": "AnyLayout"},
    fixed={"data_format": ""},
    samples=lambda r: [
        Sample({"X": r.normal((5, 1)), "X@LOD": _LOD}),
        Sample({"X": r.normal((5,)) * 5, "X@LOD": Lod([[0, 1, 3], [0, 2, 4, 5]])}),
        Sample({"X": r.normal((3, 1)), "X@LOD": Lod([[0, 1, 3]])}),
        Sample(
            {"X": np.log([1.0, 3.0, 1.0, 1.0, 2.0]), "X@LOD": _LOD},
            expected={"Out": np.array([0.25, 0.75, 0.25, 0.25, 0.5])},
        ),
        spoiled(
            Sample({"X": r.normal((5, 1)), "X@LOD": _LOD}),
            "X",
            100.0,
            "Out",
            "gives NaN where exponentials are infinite; dpexec gives probabilities",
        ),
    ],
    operand_ulps=2,
    grad_lod="own",
    flops=per_element("Out", SOFTMAX),
)
def sequence_softmax(xp: Any, x: Any, lod: Lod) -> Any:
    """``exp(x) / sum(exp(x))``, the sum over each sequence. Source: Paddle op ``sequence_softmax``.

    X has one number per row.
    """
    flat = x.reshape(-1)
    powers = xp.exp(flat - per_row(xp, sequence_maxima(xp, flat, lod), lod))
    powers /= per_row(xp, sequence_sums(xp, powers, lod), lod)
    return powers.reshape(x.shape)


@sequence_softmax.grad(
    "X", "X@LOD", "Out", "Out@GRAD", outputs="X@GRAD", dense=True, operand_ulps=2
)
def sequence_softmax_grad(xp: Any, x: Any, lod: Lod, out: Any, d_out: Any) -> Any:
    """``out * (d_out - sum(out * d_out))``, the sum over each sequence."""
    weighted = (out * d_out).reshape(-1)
    sums = per_row(xp, sequence_sums(xp, weighted, lod), lod).reshape(x.shape)
    return out * (d_out - sums)
