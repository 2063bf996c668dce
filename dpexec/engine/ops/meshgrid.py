"""``meshgrid`` and ``unbind``: one tensor per axis, one tensor per slice."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import GradContext, GradOp, Sample, Spec, op, require
from dpexec.engine.ops._shapes import require_axis, require_same_dtype


def _infer_meshgrid(vectors: list[Spec]) -> tuple[list[Spec]]:
    for vector in vectors:
        require(vector.rank == 1, f"X {vector} must be a vector")
        require_same_dtype(vectors[0], vector, "all inputs")
    shape = tuple(vector.shape[0] for vector in vectors)
    return ([vector.replace(shape=shape, lod_level=0) for vector in vectors],)


@op(
    "meshgrid",
    inputs="X[]",
    outputs="Out[]",
    infer=_infer_meshgrid,
    samples=lambda r: [
        Sample({"X": [r.normal((2,)), r.normal((3,))]}),
        Sample({"X": [r.normal((2,)), r.normal((3,)), r.normal((4,))]}),
        Sample({"X": [r.normal((3,)), r.normal((1,))]}),
    ],
)
def meshgrid(xp: Any, vectors: list[Any]) -> Any:
    """Vector ``k`` laid along axis ``k`` and repeated along all others.

    Source: Paddle op ``meshgrid``.
    """
    return ([grid.copy() for grid in xp.meshgrid(*vectors, indexing="ij")],)


@meshgrid.grad("X[]", "Out@GRAD[]", outputs="X@GRAD[]", dense=True)
def meshgrid_grad(
    xp: Any, vectors: list[Any], d_out: list[Any], *, needs: tuple[list[bool]] = ([],)
) -> Any:
    """Each gradient summed over the axes along which the vector was repeated."""
    grads = []
    for number, (grad, wanted) in enumerate(zip(d_out, needs[0], strict=True)):
        others = tuple(axis for axis in range(grad.ndim) if axis != number)
        grads.append(grad.sum(axis=others) if wanted else None)
    return (grads,)


def _infer_unbind(x: Spec, *, axis: int = 0) -> tuple[list[Spec]]:
    at = require_axis(axis, x)
    require(x.shape[at] > 0, f"dimension {axis} of X {x} must be known: it is taken apart")
    shape = (*x.shape[:at], *x.shape[at + 1 :]) or (1,)
    return ([x.replace(shape=shape)] * x.shape[at],)


@op(
    "unbind",
    inputs="X",
    outputs="Out[]",
    infer=_infer_unbind,
    samples=lambda r: [
        Sample({"X": r.normal((3, 2))}),
        Sample({"X": r.normal((2, 3, 4))}, {"axis": 1}),
        Sample({"X": r.normal((2, 2))}, {"axis": -1}),
    ],
)
def unbind(xp: Any, x: Any, *, axis: int = 0) -> Any:
    """The slices of ``x`` along an axis, without that axis; views. Source: Paddle op ``unbind``."""
    slices = xp.moveaxis(x, axis, 0)
    return ([part.reshape(part.shape or (1,)) for part in slices],)


@unbind.grad_maker
def unbind_grad(context: GradContext) -> list[GradOp]:
    """The gradients of the slices, stacked again."""
    inputs, outputs = {"X": context.output_grads["Out"]}, {"Y": context.input_grads["X"]}
    return [GradOp("stack", inputs, outputs, {"axis": context.op.attr("axis")})]
