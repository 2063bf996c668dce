"""``edit_distance``: insertions, deletions and replacements between sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, merge_dim, op, require
from dpexec.engine.ops._sequences import offsets_or_lengths, on_host, sequence_count


def _infer(
    hyps: Spec,
    hyps_lod: Spec | None,
    refs: Spec,
    refs_lod: Spec | None,
    hyps_length: Spec | None,
    refs_length: Spec | None,
) -> tuple[Spec, Spec]:
    for name, spec in (("Hyps", hyps), ("Refs", refs)):
        require(
            spec.dtype == VarType.INT64 and spec.rank == 2,
            f"{name} {spec} must be int64 sequences: (rows, 1), or (N, T) with lengths",
        )
    if hyps_length is None or refs_length is None:
        require(hyps_length is refs_length, "HypsLength and RefsLength must come together")
        for name, spec in (("Hyps", hyps), ("Refs", refs)):
            require(spec.shape[1] in (1, -1), f"{name} {spec} must be (rows, 1) without lengths")
        counts = sequence_count(hyps_lod), sequence_count(refs_lod)
    else:
        counts = hyps.shape[0], refs.shape[0]
        for name, length in (("HypsLength", hyps_length), ("RefsLength", refs_length)):
            require(
                dims_match(length.size, hyps.shape[0]),
                f"{name} {length} must have a number for each sequence of Hyps {hyps}",
            )
    require(dims_match(*counts), f"Hyps {hyps} and Refs {refs} must go in pairs")
    return Spec((1,), VarType.INT64), Spec((merge_dim(*counts), 1))


def _sequences(name: str, tokens: Any, lod: Lod | None, length: Any) -> list[np.ndarray[Any, Any]]:
    """The sequences of a tensor with offsets, or of a padded one."""
    host = tokens if isinstance(tokens, np.ndarray) else tokens.get()
    if length is None:
        lod = offsets_or_lengths(lod, name, f"{name}Length")
        return [host[begin:end, 0] for begin, end in lod.spans()]
    return [row[:size] for row, size in zip(host, on_host(length), strict=True)]


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
    inputs="Hyps Hyps@LOD? Refs Refs@LOD? HypsLength? RefsLength?",
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
                "Hyps": r.integers(0, 3, (9, 1)),
                "Hyps@LOD": Lod([[0, 4, 4, 9]]),
                "Refs": r.integers(0, 3, (8, 1)),
                "Refs@LOD": Lod([[0, 3, 4, 8]]),
            },
            {"normalized": True},
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
    hyps_lod: Lod | None,
    refs: Any,
    refs_lod: Lod | None,
    hyps_length: Any,
    refs_length: Any,
    *,
    normalized: bool = False,
) -> tuple[Any, Any]:
    """The number of changes from each hypothesis to its reference, float32 ``(N, 1)``, and N.

    Inputs are tensors with sequences, ``(rows, 1)``, or padded ones, ``(N, T)`` with lengths. With
    ``normalized`` the numbers are divided by the lengths of the references. Source: Paddle op
    ``edit_distance``.

    Raises:
        ValueError: a reference is empty and ``normalized`` is set.
    """
    pairs = zip(
        _sequences("Hyps", hyps, hyps_lod, hyps_length),
        _sequences("Refs", refs, refs_lod, refs_length),
        strict=True,
    )
    found, sizes = [], []
    for a, b in pairs:
        found.append(distance(a, b))
        sizes.append(len(b))
    distances = np.array(found, np.float32)
    if normalized:
        if 0 in sizes:
            raise ValueError("normalized is set, but there is a reference of length 0")
        distances /= np.array(sizes, np.float32)
    return xp.array([len(found)], dtype=np.int64), xp.asarray(distances[:, None])
