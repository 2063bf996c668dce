"""``bmm`` and ``addmm``: plain products of matrices."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, dims_match, merge_dim, op, require
from dpexec.engine.ops._elementwise import unbroadcast
from dpexec.engine.ops._shapes import require_same_dtype


def _infer_bmm(x: Spec, y: Spec) -> Spec:
    require_same_dtype(x, y)
    require(x.rank == y.rank == 3, f"X {x} and Y {y} must be stacks of matrices: 3 dimensions")
    require(dims_match(x.shape[0], y.shape[0]), f"X {x} and Y {y} must have one batch size")
    require(dims_match(x.shape[2], y.shape[1]), f"X {x} must be as wide as Y {y} is high")
    return x.replace(shape=(merge_dim(x.shape[0], y.shape[0]), x.shape[1], y.shape[2]))


@op(
    "bmm",
    inputs="X Y",
    infer=_infer_bmm,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3, 4)), "Y": r.normal((2, 4, 5))}),
        Sample({"X": r.normal((3, 1, 2)), "Y": r.normal((3, 2, 1))}),
        Sample({"X": r.normal((1, 2, 6)), "Y": r.normal((1, 6, 2))}),
    ],
    operand_ulps=2,
    capturable=True,
    macs=lambda call: call.size("Out") * call.shape("X")[-1],
)
def bmm(xp: Any, x: Any, y: Any) -> Any:
    """``x @ y`` for each pair of matrices ``(N, m, k)`` and ``(N, k, n)``.

    Source: Paddle op ``bmm``.
    """
    return xp.matmul(x, y)


@bmm.grad("X", "Y", "Out@GRAD", dense=True, operand_ulps=2)
def bmm_grad(xp: Any, x: Any, y: Any, d_out: Any, *, needs: tuple[bool, bool]) -> tuple[Any, Any]:
    """``d_out @ y.T`` and ``x.T @ d_out``, matrix by matrix."""
    return (
        xp.matmul(d_out, y.swapaxes(1, 2)) if needs[0] else None,
        xp.matmul(x.swapaxes(1, 2), d_out) if needs[1] else None,
    )


def _infer_addmm(added: Spec, x: Spec, y: Spec) -> Spec:
    require_same_dtype(x, y)
    require_same_dtype(added, x, "Input and X")
    require(x.rank == y.rank == 2, f"X {x} and Y {y} must be matrices")
    require(dims_match(x.shape[1], y.shape[0]), f"X {x} must be as wide as Y {y} is high")
    made = (x.shape[0], y.shape[1])
    require(
        added.rank == 2
        and all(a in (1, -1) or dims_match(a, b) for a, b in zip(added.shape, made, strict=True)),
        f"Input {added} cannot be broadcast to the product {list(made)} of X {x} and Y {y}",
    )
    return x.replace(shape=made, lod_level=added.lod_level)


@op(
    "addmm",
    inputs="Input X Y",
    infer=_infer_addmm,
    attrs={"use_mkldnn": False},
    samples=lambda r: [
        Sample({"Input": r.normal((2, 4)), "X": r.normal((2, 3)), "Y": r.normal((3, 4))}),
        Sample(
            {"Input": r.normal((1, 4)), "X": r.normal((2, 3)), "Y": r.normal((3, 4))},
            {"Alpha": 0.5, "Beta": -2.0},
        ),
        Sample(
            {"Input": r.normal((2, 1)), "X": r.normal((2, 3)), "Y": r.normal((3, 4))},
            {"Alpha": 2.0},
        ),
        Sample({"Input": r.normal((1, 1)), "X": r.normal((2, 2)), "Y": r.normal((2, 3))}),
    ],
    operand_ulps=2,
    grad_lod="own",
    macs=lambda call: call.size("Out") * call.shape("X")[-1],
)
def addmm(xp: Any, added: Any, x: Any, y: Any, *, Alpha: float = 1.0, Beta: float = 1.0) -> Any:
    """``Beta * Input + Alpha * (x @ y)``, with ``Input`` broadcast to the product.

    Source: Paddle op ``addmm``.
    """
    kind = x.dtype.type
    return kind(Alpha) * xp.matmul(x, y) + kind(Beta) * added


@addmm.grad("Input", "X", "Y", "Out@GRAD", dense=True, operand_ulps=2)
def addmm_grad(
    xp: Any,
    added: Any,
    x: Any,
    y: Any,
    d_out: Any,
    *,
    Alpha: float = 1.0,
    Beta: float = 1.0,
    needs: tuple[bool, bool, bool],
) -> tuple[Any, Any, Any]:
    """The gradient summed over repeated elements, and the gradients of a matrix product."""
    kind = d_out.dtype.type
    return (
        kind(Beta) * unbroadcast(xp, d_out, added, d_out, -1) if needs[0] else None,
        kind(Alpha) * xp.matmul(d_out, y.T) if needs[1] else None,
        kind(Alpha) * xp.matmul(x.T, d_out) if needs[2] else None,
    )
