"""``cvm``: the show and click counts in front of an embedding."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._edges import SMALL, smaller
from dpexec.engine.ops._shapes import require_same_dtype


def _infer(x: Spec, counts: Spec, *, use_cvm: bool = True) -> Spec:
    require_same_dtype(x, counts, "X and CVM")
    require(x.rank == 2, f"X {x} must be a matrix")
    require(
        counts.rank == 2 and counts.shape[1] in (2, -1) and dims_match(counts.shape[0], x.shape[0]),
        f"CVM {counts} must hold shows and clicks for each row of X {x}",
    )
    require(x.shape[1] < 0 or x.shape[1] > 2, f"X {x} must be wider than shows and clicks")
    width = x.shape[1] if use_cvm or x.shape[1] < 0 else x.shape[1] - 2
    return x.replace(shape=(x.shape[0], width))


def _inputs(r: Any) -> dict[str, Any]:
    return {"X": r.uniform(0.5, 2.0, (3, 5)), "CVM": r.uniform(0.0, 3.0, (3, 2))}


@op(
    "cvm",
    inputs="X CVM",
    outputs="Y",
    infer=_infer,
    samples=lambda r: [
        Sample(_inputs(r), {"use_cvm": True}, grad=("X",)),
        Sample(_inputs(r), {"use_cvm": False}, grad=("X",)),
        Sample({"X": r.uniform(0.0, 9.0, (1, 3)), "CVM": r.uniform(0.0, 3.0, (1, 2))}, grad=("X",)),
        smaller(Sample(_inputs(r), {"use_cvm": True}, grad=("X",)), 1e-6, "Y", SMALL),
    ],
    operand_ulps=8,
    grad_lod="own",
)
def cvm(xp: Any, x: Any, counts: Any, *, use_cvm: bool = True) -> Any:
    """``x`` with logarithms of its first two columns, shows and clicks.

    They become ``log(shows + 1)`` and ``log(clicks + 1) - log(shows + 1)``; without ``use_cvm``
    both columns are left out. Source: Paddle op ``cvm``.
    """
    if not use_cvm:
        return x[:, 2:].copy()
    y = x.copy()
    logs = xp.log1p(x[:, :2])
    y[:, 0] = logs[:, 0]
    y[:, 1] = logs[:, 1] - logs[:, 0]
    return y


@cvm.grad("X", "CVM", "Y@GRAD", outputs="X@GRAD", operand_ulps=1)
def cvm_grad(xp: Any, x: Any, counts: Any, d_y: Any, *, use_cvm: bool = True) -> Any:
    """The gradient of the copied columns; in place of shows and clicks, their counts ``CVM``.

    With these, an optimizer of Paddle's parameter server adds up the counts.
    """
    return xp.concatenate([counts, d_y[:, 2:] if use_cvm else d_y], axis=1)
