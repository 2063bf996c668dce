"""``fusion_seqpool_concat``, ``fusion_seqpool_cvm_concat``: pooled sequences side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, passes_on, require
from dpexec.engine.ops._recurrent import EMPTY
from dpexec.engine.ops._sequences import OverSequences, offsets_spec, sequence_count, sequence_sums
from dpexec.engine.ops._shapes import require_same_dtype, same_dims
from dpexec.engine.ops.cvm import cvm
from dpexec.engine.ops.sequence_pool import sequence_pool

_TYPES = ("SUM", "AVERAGE", "SQRT")
_A, _B = Lod([[0, 2, 6, 7]]), Lod([[0, 1, 4, 5]])


def _infer(
    xs: list[Spec], lods: list[Spec], *, pooltype: str = "SUM", axis: int = 1
) -> tuple[Spec, Spec | None]:
    require(xs, "input X is missing")
    require(axis == 1, f"axis can only be 1, but is {axis}")
    require(pooltype in _TYPES, f"pooltype must be {', '.join(_TYPES)}, but is {pooltype!r}")
    first = xs[0]
    for x in xs:
        require_same_dtype(first, x, "all of X")
        require(
            x.rank == 2 and same_dims(x.shape[1:], first.shape[1:]),
            f"all of X must be matrices of one width, but they are {first} and {x}",
        )
    for lod in lods:
        require(lod.rank == 1, "all of X must have one level of sequences")
        require(same_dims(lod.shape, lods[0].shape), "all of X must have as many sequences")
    count = sequence_count(lods[0] if lods else None)
    width = first.shape[1] * len(xs) if first.shape[1] >= 0 else -1
    out = first.replace(shape=(count, width))
    return out, offsets_spec(count) if lods else None


@passes_on(_infer)
def _infer_cvm(
    xs: list[Spec], lods: list[Spec], counts: Spec, *, use_cvm: bool = True, **attrs: Any
) -> tuple[Spec, Spec | None]:
    require(use_cvm, "use_cvm can only be True")
    out, offsets = _infer(xs, lods, **attrs)
    require(xs[0].shape[1] < 0 or xs[0].shape[1] > 1, f"X {xs[0]} must have shows and clicks")
    return out.replace(lod_level=0), offsets


def _pooled(
    xp: Any, xs: list[Any], lods: list[Lod], sums: OverSequences, pooltype: str
) -> list[Any]:
    """The pooled sequences of every variable.

    Raises:
        ValueError: a variable has another number of sequences than the first one.
    """
    for number, lod in enumerate(lods):
        if lod.sequences != lods[0].sequences:
            raise ValueError(
                f"all of X must have as many sequences, but X[{number}] has {lod.sequences} and "
                f"X[0] {lods[0].sequences}"
            )
    return [
        sequence_pool(xp, x, lod, sums, pooltype=pooltype)[0]
        for x, lod in zip(xs, lods, strict=True)
    ]


def _side_by_side(xp: Any, parts: list[Any]) -> tuple[Any, Lod]:
    return xp.concatenate(parts, axis=1), Lod([np.arange(len(parts[0]) + 1)])


def _inputs(r: SampleRng, width: int, *lods: Lod) -> dict[str, Any]:
    return {"X": [r.uniform(0.1, 2.0, (lod.rows, width)) for lod in lods], "X@LOD": list(lods)}


def _samples(r: SampleRng) -> list[Sample]:
    added = {"Out": "gives the next row for an empty sequence; dpexec gives 0"}
    divided = {"Out": "divides by the length of empty sequences; dpexec gives 0"}
    return [
        Sample(_inputs(r, 3, _A, _B)),
        Sample(_inputs(r, 8, _A, _B, _A), {"pooltype": "AVERAGE"}),
        Sample(_inputs(r, 16, _A, _B), {"pooltype": "SQRT"}),
        Sample(_inputs(r, 1, EMPTY), deviates=added),
        Sample(_inputs(r, 2, EMPTY, EMPTY), {"pooltype": "AVERAGE"}, deviates=divided),
    ]


@op(
    "fusion_seqpool_concat",
    inputs="X[] X@LOD[]",
    outputs="Out Out@LOD",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=_samples,
)
def fusion_seqpool_concat(
    xp: Any, xs: list[Any], lods: list[Lod], sums: OverSequences = sequence_sums,
    *, pooltype: str = "SUM",
) -> tuple[Any, Lod]:  # fmt: skip
    """``sequence_pool`` of every variable, and the results side by side; empty sequences are 0.

    Every row is a sequence of its own. Source: Paddle op ``fusion_seqpool_concat``.

    Raises:
        ValueError: the variables do not have as many sequences.
    """
    return _side_by_side(xp, _pooled(xp, xs, lods, sums, pooltype))


def _cvm_samples(r: SampleRng) -> list[Sample]:
    return [
        Sample({**_inputs(r, 3, _A, _B), "CVM": r.uniform(0.0, 3.0, (3, 2))}),
        Sample(
            {**_inputs(r, 8, _A, _B, _A), "CVM": r.uniform(0.0, 3.0, (3, 2))},
            {"pooltype": "AVERAGE"},
        ),
        Sample({**_inputs(r, 2, _B), "CVM": r.uniform(0.0, 3.0, (3, 2))}, {"pooltype": "SQRT"}),
    ]


@op(
    "fusion_seqpool_cvm_concat",
    inputs="X[] X@LOD[] CVM",
    outputs="Out Out@LOD",
    infer=_infer_cvm,
    no_grad=True,
    checks_values=True,
    samples=_cvm_samples,
)
def fusion_seqpool_cvm_concat(
    xp: Any, xs: list[Any], lods: list[Lod], counts: Any, sums: OverSequences = sequence_sums,
    *, pooltype: str = "SUM",
) -> tuple[Any, Lod]:  # fmt: skip
    """``sequence_pool`` and then ``cvm`` of every variable, and the results side by side.

    Every row is a sequence of its own. Source: Paddle op ``fusion_seqpool_cvm_concat``.

    Raises:
        ValueError: the variables do not have as many sequences.
    """
    pooled = _pooled(xp, xs, lods, sums, pooltype)
    return _side_by_side(xp, [cvm(xp, part, counts) for part in pooled])
