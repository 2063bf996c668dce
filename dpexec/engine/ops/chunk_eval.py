"""``chunk_eval``: precision and recall of chunks of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._sequences import on_host, rows_of
from dpexec.engine.ops._shapes import require_integer
from dpexec.engine.ops._tagging import places

_SCHEMES = {"plain": "I", "IOB": "BI", "IOE": "IE", "IOBES": "BIES"}
"""The places of a word in a chunk, in the order of their numbers: B begins a chunk, I is inside, E
ends it, S is a chunk of one word. The scheme ``plain`` has no places, only kinds of chunks."""


def _infer(
    found: Spec,
    _: Spec | None,
    label: Spec,
    __: Spec | None,
    length: Spec | None,
    *,
    num_chunk_types: int,
    chunk_scheme: str = "IOB",
    excluded_chunk_types: Sequence[int] = (),
) -> tuple[Spec, ...]:
    for name, spec in (("Inference", found), ("Label", label)):
        require(spec.dtype == VarType.INT64, f"{name} {spec} must hold int64")
    require(found.shape == label.shape, f"Inference {found} and Label {label} must be alike")
    if length is not None:
        require_integer(length, "SeqLength")
        require(
            found.rank >= 2 and dims_match(length.size, found.shape[0]),
            f"SeqLength {length} must have a number for each sequence of Inference {found}",
        )
    require(
        chunk_scheme in _SCHEMES,
        f"chunk_scheme must be {', '.join(_SCHEMES)}, but is {chunk_scheme!r}",
    )
    require(num_chunk_types > 0, f"num_chunk_types must be positive, but is {num_chunk_types}")
    share, count = Spec((1,)), Spec((1,), VarType.INT64)
    return share, share, share, count, count, count


def _samples(r: Any) -> list[Sample]:
    def tags(types: int, scheme: str, shape: tuple[int, ...]) -> dict[str, Any]:
        high = types * len(_SCHEMES[scheme]) + 1
        label = r.integers(0, high, shape)
        guess = np.where(r.uniform(0, 1, shape) < 0.3, r.integers(0, high, shape), label)
        return {"Inference": guess, "Label": label}

    lods = {"Inference@LOD": Lod([[0, 9, 9, 24, 40]])}
    lods["Label@LOD"] = lods["Inference@LOD"]
    found = [
        Sample(
            tags(2, scheme, (40, 1)) | lods,
            {"num_chunk_types": 2, "chunk_scheme": scheme},
        )
        for scheme in _SCHEMES
    ]
    excluding = {"num_chunk_types": 3, "chunk_scheme": "IOB", "excluded_chunk_types": [0, 2]}
    padded = {"SeqLength": np.array([9, 3, 1])}
    return [
        *found,
        Sample(tags(3, "IOB", (40, 1)) | lods, excluding),
        Sample(tags(3, "IOB", (3, 9)) | padded, excluding),
        Sample(tags(1, "plain", (3, 9)) | padded, {"num_chunk_types": 1, "chunk_scheme": "plain"}),
    ]


def _chunks(tags: Any, firsts: Any, scheme: str, types: int) -> Any:
    """The chunks of all sequences.

    Args:
        tags: tags of all words, sequence after sequence.
        firsts: whether a word is the first of its sequence.
        scheme: the places that tags distinguish, a value of ``_SCHEMES``.
        types: number of kinds of chunks.

    Returns:
        ``(chunks, 3)``: kind, first word, and the word after the last one.
    """
    kind, place = np.divmod(tags, len(scheme))
    here = np.array([*scheme])[place]
    outside = kind == types
    before, kind_before = np.roll(here, 1), np.roll(kind, 1)
    other = firsts | np.roll(outside, 1) | (kind != kind_before)
    parted = other | np.isin(here, ("B", "S")) | np.isin(before, ("E", "S"))
    begins = np.flatnonzero(parted & ~outside)
    bounds = np.append(np.flatnonzero(parted | outside | firsts), len(tags))
    return np.stack([kind[begins], begins, bounds[np.searchsorted(bounds, begins, "right")]], 1)


def _checked(tags: Any, highest: int, name: str) -> Any:
    if tags.size and (tags.min() < 0 or tags.max() > highest):
        raise ValueError(f"{name} must be tags from 0 to {highest}, but one is outside")
    return tags


@op(
    "chunk_eval",
    inputs="Inference Inference@LOD? Label Label@LOD? SeqLength?",
    outputs="Precision Recall F1-Score NumInferChunks NumLabelChunks NumCorrectChunks",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=_samples,
)
def chunk_eval(
    xp: Any,
    found: Any,
    lod: Lod | None,
    label: Any,
    label_lod: Lod | None,
    length: Any,
    *,
    num_chunk_types: int,
    chunk_scheme: str = "IOB",
    excluded_chunk_types: Sequence[int] = (),
) -> tuple[Any, ...]:
    """Precision, recall and F1 score of chunks, and their counts; each ``(1,)``.

    A chunk is right if ``Label`` has a chunk of the same kind and words. A tag is the kind times
    the number of places that ``chunk_scheme`` distinguishes, plus the place; the greatest tag is
    for words outside chunks. Source: Paddle op ``chunk_eval``.

    Raises:
        ValueError: a tag is out of range, a length is greater than the width, or labels have other
            sequences.
    """
    scheme = _SCHEMES[chunk_scheme]
    starts, lengths = places(found.shape, (lod, label_lod), length)
    rows, firsts = rows_of(starts, lengths), np.zeros(lengths.sum(), bool)
    firsts[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
    chunks = []
    for name, tags in (("Inference", found), ("Label", label)):
        checked = _checked(on_host(tags)[rows], num_chunk_types * len(scheme), name)
        all_chunks = _chunks(checked, firsts, scheme, num_chunk_types)
        chunks.append(all_chunks[~np.isin(all_chunks[:, 0], list(excluded_chunk_types))])
    right = len({*map(tuple, chunks[0].tolist())} & {*map(tuple, chunks[1].tolist())})
    inferred, labelled = map(len, chunks)
    precision = right / inferred if inferred else 0.0
    recall = right / labelled if labelled else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    shares = [xp.array([share], np.float32) for share in (precision, recall, f1)]
    return (*shares, *(xp.array([count], np.int64) for count in (inferred, labelled, right)))
