"""``kron``: every element of one tensor times all of another."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import require_same_dtype

Shape = tuple[int, ...]


def _same_rank(a: Shape, b: Shape) -> tuple[Shape, Shape]:
    rank = max(len(a), len(b))
    return (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b


def _infer(x: Spec, y: Spec) -> Spec:
    require_same_dtype(x, y)
    require(x.rank and y.rank, f"X {x} and Y {y} must have dimensions")
    pairs = zip(*_same_rank(x.shape, y.shape), strict=True)
    shape = tuple(-1 if -1 in pair else pair[0] * pair[1] for pair in pairs)
    return x.replace(shape=shape, lod_level=0)


def _interleaved(x: Any, y: Any) -> tuple[Any, Any]:
    """Views whose broadcast product has the axes of X and Y in turn."""
    x_shape, y_shape = _same_rank(x.shape, y.shape)
    split_x = [size for dim in x_shape for size in (dim, 1)]
    split_y = [size for dim in y_shape for size in (1, dim)]
    return x.reshape(split_x), y.reshape(split_y)


@op(
    "kron",
    inputs="X Y",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3)), "Y": r.normal((3, 2))}),
        Sample({"X": r.normal((3,)), "Y": r.normal((2, 2, 2))}),
        Sample({"X": r.normal((2, 1, 3)), "Y": r.normal((2,))}),
        Sample(
            {"X": np.array([1, 2]), "Y": np.array([3, 4])},
            expected={"Out": np.array([3, 4, 6, 8])},
        ),
    ],
    operand_ulps=1,
)
def kron(xp: Any, x: Any, y: Any) -> Any:
    """The Kronecker product; the smaller rank is padded with dimensions of 1 in front.

    Source: Paddle op ``kron``.
    """
    a, b = _interleaved(x, y)
    made = a * b
    return made.reshape([p * q for p, q in zip(made.shape[::2], made.shape[1::2], strict=True)])


@kron.grad("X", "Y", "Out@GRAD", dense=True, operand_ulps=2)
def kron_grad(xp: Any, x: Any, y: Any, d_out: Any, *, needs: tuple[bool, bool]) -> tuple[Any, Any]:
    """For each tensor the products with the other one, summed over the other's axes."""
    a, b = _interleaved(x, y)
    grad = d_out.reshape([max(p, q) for p, q in zip(a.shape, b.shape, strict=True)])
    of_x, of_y = tuple(range(0, grad.ndim, 2)), tuple(range(1, grad.ndim, 2))
    return (
        (grad * b).sum(axis=of_y).reshape(x.shape) if needs[0] else None,
        (grad * a).sum(axis=of_x).reshape(y.shape) if needs[1] else None,
    )
