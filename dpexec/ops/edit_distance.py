"""``edit_distance``: insertions, deletions and replacements between sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.core.dtypes import VarType
from dpexec.ir.opdef import Sample, Spec, dims_match, op, require


def _infer(
    hyps: Spec, refs: Spec, hyps_length: Spec | None, refs_length: Spec | None
) -> tuple[Spec, Spec]:
    for name, spec in (("Hyps", hyps), ("Refs", refs)):
        require(
            spec.dtype == VarType.INT64 and spec.rank == 2,
            f"{name} {spec} must be int64 sequences (N, T)",
        )
    require(
        hyps_length is not None and refs_length is not None,
        "HypsLength and RefsLength are missing: sequences without them (LoD) are not supported",
    )
    for name, length in (("HypsLength", hyps_length), ("RefsLength", refs_length)):
        require(
            dims_match(length.size, hyps.shape[0]),  # type: ignore[union-attr]
            f"{name} {length} must have a number for each sequence of Hyps {hyps}",
        )
    require(
        dims_match(hyps.shape[0], refs.shape[0]), f"Hyps {hyps} and Refs {refs} must go in pairs"
    )
    return Spec((1,), VarType.INT64), Spec((hyps.shape[0], 1))


def distance(a: Any, b: Any) -> int:
    """The edit distance of two vectors (Levenshtein, 1966; rows by Wagner, Fischer, 1974)."""
    steps = np.arange(len(b) + 1)
    row = steps.copy()
    for token in a:
        best = np.empty_like(row)
        best[0] = row[0] + 1
        np.minimum(row[1:] + 1, row[:-1] + (b != token), out=best[1:])
        row = np.minimum.accumulate(best - steps) + steps  # insertions, from the left
    return int(row[-1])


@op(
    "edit_distance",
    inputs="Hyps Refs HypsLength? RefsLength?",
    outputs="SequenceNum Out",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=lambda r: [
        Sample(
            {
                "Hyps": r.integers(0, 4, (3, 5)),
                "Refs": r.integers(0, 4, (3, 6)),
                "HypsLength": np.array([5, 2, 3]),
                "RefsLength": np.array([6, 6, 1]),
            },
            {"normalized": True},
        ),
        Sample(
            {
                "Hyps": r.integers(0, 3, (4, 7)),
                "Refs": r.integers(0, 3, (4, 4)),
                "HypsLength": np.array([7, 1, 4, 6]),
                "RefsLength": np.array([4, 4, 2, 3]),
            },
            {"normalized": False},
        ),
        Sample(
            {
                "Hyps": np.array([[1, 2, 3, 0]]),
                "Refs": np.array([[1, 3, 3, 3]]),
                "HypsLength": np.array([3]),
                "RefsLength": np.array([4]),
            },
            expected={"SequenceNum": np.array([1]), "Out": np.array([[2.0]])},
        ),
    ],
)
def edit_distance(
    xp: Any,
    hyps: Any,
    refs: Any,
    hyps_length: Any,
    refs_length: Any,
    *,
    normalized: bool = False,
) -> tuple[Any, Any]:
    """How many changes make each hypothesis its reference, float32 ``(N, 1)``, and N.

    ``normalized`` by the lengths of the references. Source: Paddle op ``edit_distance``.

    Raises:
        ValueError: a reference is empty and ``normalized`` is set.
    """
    arrays = (hyps, refs, hyps_length.reshape(-1), refs_length.reshape(-1))
    host = [array if isinstance(array, np.ndarray) else array.get() for array in arrays]
    pairs = zip(*host, strict=True)
    found = np.array([distance(a[:m], b[:n]) for a, b, m, n in pairs], dtype=np.float32)
    if normalized:
        if not host[3].all():
            raise ValueError("normalized is set, but there is a reference of length 0")
        found /= host[3]
    return xp.array([len(found)], dtype=np.int64), xp.asarray(found.astype(np.float32)[:, None])
