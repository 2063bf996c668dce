"""``sequence_enumerate`` and ``sequence_erase``: sequences of ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._contexts import contexts
from dpexec.engine.ops._sequences import Ints, on_host, with_finest
from dpexec.engine.ops._shapes import require_integer

_LOD = Lod([[0, 3, 3, 5]])


def _ids(dtype: str = "int64") -> Ints:
    return np.array([[1], [2], [3], [4], [2]], dtype)


def _require_ids(x: Spec) -> None:
    require_integer(x, "X")
    require(x.rank == 2 and x.shape[1] in (1, -1), f"X {x} must be a column of ids")


def _infer_enumerate(x: Spec, lod: Spec | None, *, win_size: int) -> Spec:
    _require_ids(x)
    require(win_size > 1, f"win_size must be 2 or more, but is {win_size}")
    return x.replace(shape=(x.shape[0], win_size))


@op(
    "sequence_enumerate",
    inputs="X X@LOD",
    infer=_infer_enumerate,
    no_grad=True,
    samples=lambda r: [
        Sample(
            {"X": _ids(), "X@LOD": _LOD},
            {"win_size": 2, "pad_value": 9},
            expected={"Out": np.array([[1, 2], [2, 3], [3, 9], [4, 2], [2, 9]])},
        ),
        Sample({"X": _ids("int32"), "X@LOD": _LOD}, {"win_size": 4}),
        Sample({"X": _ids(), "X@LOD": Lod([[0, 5]])}, {"win_size": 3, "pad_value": -1}),
    ],
)
def sequence_enumerate(xp: Any, x: Any, lod: Lod, *, win_size: int, pad_value: int = 0) -> Any:
    """For every id, ``win_size`` ids of its sequence, beginning with itself.

    ``pad_value`` replaces ids beyond the end. Source: Paddle op ``sequence_enumerate``.
    """
    return contexts(xp, x, lod, 0, win_size, outside=pad_value).reshape(len(x), win_size)


def _infer_erase(x: Spec, lod: Spec | None) -> tuple[Spec, Spec | None]:
    _require_ids(x)
    return (x if lod is None else x.replace(shape=(-1, *x.shape[1:]))), lod


@op(
    "sequence_erase",
    inputs="X X@LOD",
    outputs="Out Out@LOD",
    infer=_infer_erase,
    no_grad=True,
    samples=lambda r: [
        Sample(
            {"X": _ids(), "X@LOD": _LOD},
            {"tokens": [2, 3]},
            expected={"Out": np.array([[1], [4]]), "Out@LOD": Lod([[0, 1, 1, 2]])},
        ),
        Sample({"X": _ids("int32"), "X@LOD": _LOD}, {"tokens": [1, 2, 3]}),
        Sample({"X": _ids(), "X@LOD": Lod([[0, 1, 2], [0, 3, 5]])}, {"tokens": [7, 4]}),
        Sample({"X": _ids(), "X@LOD": _LOD}, {"tokens": []}),
    ],
)
def sequence_erase(xp: Any, x: Any, lod: Lod, *, tokens: Sequence[int]) -> tuple[Any, Lod]:
    """The ids that are not among ``tokens``. Source: Paddle op ``sequence_erase``."""
    kept = ~np.isin(on_host(x), np.array(tokens, np.int64))
    before = np.concatenate([[0], np.cumsum(kept)])
    return x[xp.asarray(kept)], with_finest(lod, np.diff(before[lod.offsets]))
