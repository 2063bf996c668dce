"""``lod_reset``: the same rows, divided into other sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._sequences import offsets_spec, on_host
from dpexec.engine.ops._shapes import require_integer

_LOD = Lod([[0, 2, 5]])


def _infer(
    x: Spec,
    x_lod: Spec | None,
    y: Spec | None,
    y_lod: Spec | None,
    *,
    target_lod: Sequence[int] = (),
    append: bool = False,
) -> tuple[Spec, Spec]:
    if y is not None:
        made = y_lod or _values(y)
        level = max(y.lod_level, 1)
    else:
        require(len(target_lod) > 1, "either Y or target_lod must be given")
        made = offsets_spec(len(target_lod) - 1)
        level = max(x.lod_level + 1 if append else 1, 1)
    if append and x_lod is not None and y_lod is None:
        made = x_lod.replace(shape=(*x_lod.shape, *made.shape))
    return x.replace(lod_level=level), made


def _values(y: Spec) -> Spec:
    """The spec of offsets that are given by the numbers of a vector."""
    if y.rank == 1:
        require_integer(y, "Y, which has no sequences,")
        return offsets_spec(y.shape[0] - 1)
    return offsets_spec(-1)


def _sample(
    r: Any, y: Any = None, y_lod: Lod | None = None, x_lod: Lod | None = _LOD, **attrs: Any
) -> Sample:
    inputs = {"X": r.normal((5, 2)), "X@LOD": x_lod, "Y": y, "Y@LOD": y_lod}
    return Sample({slot: v for slot, v in inputs.items() if v is not None}, attrs, grad=("X",))


@op(
    "lod_reset",
    inputs="X X@LOD? Y? Y@LOD?",
    outputs="Out Out@LOD",
    infer=_infer,
    checks_values=True,
    samples=lambda r: [
        _sample(r, target_lod=[0, 1, 5]),
        _sample(r, x_lod=None, target_lod=[0, 4, 4, 5]),
        _sample(r, np.zeros((5, 1)), Lod([[0, 1, 2], [0, 4, 5]])),
        _sample(r, np.array([0, 3, 5], "int32")),
        _sample(r, target_lod=[0, 1, 1, 3, 4, 5], append=True),
        _sample(r, np.zeros((5, 1)), Lod([[0, 4, 5]]), append=True),
    ],
    grad_lod="own",
)
def lod_reset(
    xp: Any,
    x: Any,
    x_lod: Lod | None,
    y: Any,
    y_lod: Lod | None,
    *,
    target_lod: Sequence[int] = (),
    append: bool = False,
) -> tuple[Any, Lod]:
    """The rows of X with new sequences: those of Y, or with the numbers of Y as offsets.

    Without Y, ``target_lod`` has the offsets. With ``append``, offsets that are numbers become a
    finer level below the existing ones, while sequences of Y replace them. Source: Paddle op
    ``lod_reset``.

    Raises:
        EnforceNotMet: the numbers are not valid offsets of these rows.
    """
    made = y_lod or Lod([target_lod if y is None else on_host(y)])
    if append and x_lod and y_lod is None:
        made = Lod([*x_lod.levels, *made.levels])
    made.check(len(x))
    return x, made


@lod_reset.grad("X", "Out@GRAD", outputs="X@GRAD")
def lod_reset_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """The gradient, unchanged."""
    return d_out
