"""``sequence_reshape``: sequences with rows of another width."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._sequences import with_finest

_LOD = Lod([[0, 2, 2, 6]])


def _infer(x: Spec, lod: Spec | None, *, new_dim: int) -> tuple[Spec, Spec | None]:
    require(x.rank == 2, f"X {x} must have two dimensions")
    require(new_dim > 0, f"new_dim must be positive, but is {new_dim}")
    require(x.size % new_dim == 0 or x.size < 0, f"X {x} has no rows of {new_dim} numbers")
    rows = -1 if lod is None or x.size < 0 else x.size // new_dim
    return x.replace(shape=(rows, new_dim), lod_level=1), lod


@op(
    "sequence_reshape",
    inputs="X X@LOD",
    outputs="Out Out@LOD",
    infer=_infer,
    checks_values=True,
    samples=lambda r: [
        Sample({"X": r.normal((6, 2)), "X@LOD": _LOD}, {"new_dim": 4}),
        Sample({"X": r.normal((6, 2)), "X@LOD": _LOD}, {"new_dim": 1}),
        Sample({"X": r.normal((6, 2)), "X@LOD": _LOD}, {"new_dim": 2}),
        Sample(
            {"X": np.arange(8).reshape(4, 2), "X@LOD": Lod([[0, 1, 4]])},
            {"new_dim": 1},
            expected={"Out": np.arange(8).reshape(8, 1), "Out@LOD": Lod([[0, 2, 8]])},
        ),
    ],
    grad_lod="own",
    flops=0,
)
def sequence_reshape(xp: Any, x: Any, lod: Lod, *, new_dim: int) -> tuple[Any, Lod]:
    """The numbers of every sequence in rows of ``new_dim``; a view.

    Source: Paddle op ``sequence_reshape``.

    Raises:
        ValueError: the numbers of a sequence do not fill its last row.
    """
    numbers = lod.lengths * x.shape[1]
    if (numbers % new_dim).any():
        sizes = lod.lengths.tolist()
        raise ValueError(f"rows of {new_dim} numbers do not fit {sizes} rows of {x.shape[1]}")
    return x.reshape(-1, new_dim), with_finest(lod, numbers // new_dim)


@sequence_reshape.grad("X", "Out@GRAD", outputs="X@GRAD")
def sequence_reshape_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """The gradient in the shape of X; a view."""
    return d_out.reshape(x.shape)
