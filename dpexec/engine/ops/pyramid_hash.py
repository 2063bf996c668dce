"""``pyramid_hash``: embeddings of word n-grams, composed of pieces selected by hashes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, is_float
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.random import rand_r
from dpexec.engine.ir.opdef import (
    GradContext,
    GradOp,
    Sample,
    SampleRng,
    Spec,
    dims_match,
    op,
    require,
)
from dpexec.engine.ops._hashes import murmur3, xxh32
from dpexec.engine.ops._rows import added_rows
from dpexec.engine.ops._sequences import Ints, offsets_spec, on_host, sequence_count

_MAGIC = 17070416
_HEADER = 32
_ATTRS = {"lr": 0.0, "distribute_update_vars": ""}


def _infer(
    x: Spec, lod: Spec | None, weight: Spec, white: Spec, black: Spec,
    *, num_emb: int = 0, space_len: int = 0, pyramid_layer: int = 2, rand_len: int = 0,
    drop_out_percent: float = 0.0, white_list_len: int = 0, black_list_len: int = 0, seed: int = 0,
) -> tuple[Spec, Spec, Spec, Spec | None]:  # fmt: skip
    require(
        x.rank == 2 and dims_match(x.shape[1], 1) and x.dtype == VarType.INT32,
        f"X {x} must be int32 (rows, 1)",
    )
    require(lod is None or lod.rank == 1, "X must have one level of sequences")
    require(
        is_float(weight.dtype) or weight.dtype == VarType.INT8, f"W {weight} must be float or int8"
    )
    require(
        rand_len > 0 and num_emb >= 0 and num_emb % rand_len == 0,
        f"num_emb={num_emb} must be a multiple of rand_len={rand_len}, which must be positive",
    )
    require(space_len > 0, f"space_len must be positive, but is {space_len}")
    require(pyramid_layer >= 2, f"pyramid_layer must be 2 or more, but is {pyramid_layer}")
    require(drop_out_percent >= 0, f"drop_out_percent must not be below 0: {drop_out_percent}")
    require(seed >= 0, f"seed must not be below 0, but is {seed}")
    lists = {"WhiteList": (white, white_list_len), "BlackList": (black, black_list_len)}
    sizes = {"W": (weight, space_len + rand_len)} | {n: p for n, p in lists.items() if p[1]}
    for name, (spec, rows) in sizes.items():
        require(
            spec.rank == 2 and dims_match(spec.shape[0], rows) and dims_match(spec.shape[1], 1),
            f"{name} {spec} must be ({rows}, 1)",
        )
    count = -1 if x.shape[0] < 0 else x.shape[0] * pyramid_layer
    out = weight.replace(shape=(-1, num_emb), lod_level=x.lod_level)
    dropped = x.replace(shape=(count, 1), lod_level=0)
    copied = x.replace(dtype=VarType.FP32, lod_level=0)
    return out, dropped, copied, None if lod is None else offsets_spec(sequence_count(lod))


# ---- terms: all runs of words that begin and end in one sequence


@dataclass(frozen=True)
class Terms:
    """Terms: runs of two words or more, sequence after sequence, the shortest first in each.

    Args:
        words: all words, as the bits of float32 numbers, ``(rows,)``.
        starts: the first word of every term.
        lengths: the number of words of every term.
        owners: the sequence of every term.
    """

    words: Ints
    starts: Ints
    lengths: Ints
    owners: Ints

    def groups(self, chosen: Ints) -> list[tuple[Ints, Ints]]:
        """Groups of equally long chosen terms, with their words, a row for each term."""
        lengths = self.lengths[chosen]
        found = []
        for length in np.unique(lengths):
            terms = chosen[lengths == length]
            found.append((terms, self.words[self.starts[terms][:, None] + np.arange(length)]))
        return found


def terms_of(numbers: Ints, lod: Lod, layers: int) -> Terms:
    """The terms of up to ``layers`` words.

    Args:
        numbers: numbers of the words, float32 ``(rows,)``.
        lod: offsets of the sentences.
        layers: the most words of a term.
    """
    found = [
        (first + step, length, owner)
        for owner, (first, end) in enumerate(lod.spans())
        for length in range(2, min(layers, end - first) + 1)
        for step in range(end - first - length + 1)
    ]
    starts, lengths, owners = np.array(found, np.int64).reshape(-1, 3).T
    return Terms(np.ascontiguousarray(numbers, np.float32).view(np.uint32), starts, lengths, owners)


class _Filter:
    """A set of terms, as bits that hashes choose (Bloom, 1970), in the memory of a parameter.

    Args:
        stored: float32; its bytes are a magic number, the numbers of bits, of pairs of hashes and
            of terms (64 bits each), and the bits.
        name: name of the slot.

    Raises:
        ValueError: it does not begin with the magic number, or has fewer bits than it states.
    """

    def __init__(self, stored: Ints, name: str) -> None:
        data = np.ascontiguousarray(stored, np.float32).view(np.uint8)
        if len(data) < _HEADER or int(data[:8].view(np.uint64)[0]) != _MAGIC:
            raise ValueError(f"{name} holds no filter: it does not begin with {_MAGIC}")
        self._size, self._hashes = (int(n) for n in data[8:24].view(np.uint64))
        self._bits = data[_HEADER:]
        if not 0 < self._size <= 8 * len(self._bits):
            raise ValueError(
                f"{name} is too short: its filter has {self._size} bits, but there are "
                f"{8 * len(self._bits)}"
            )

    def holds(self, words: Ints) -> Ints:
        """Whether each row of words is in the set."""
        found = np.ones(len(words), bool)
        for seed in range(self._hashes):
            for half in murmur3(np, words, seed):
                bit = (half % np.uint64(self._size)).astype(np.int64)
                found &= (self._bits[bit >> 3] >> (7 - (bit & 7)).astype(np.uint8)) & 1 == 1
        return found


def _allowed(terms: Terms, white: _Filter | None, black: _Filter | None) -> Ints:
    """The terms that are in the white list, and not in the black list."""
    allowed = np.ones(len(terms.starts), bool)
    for number, words in terms.groups(np.arange(len(allowed))):
        if white is not None:
            allowed[number] &= white.holds(words)
        if black is not None:
            allowed[number] &= ~black.holds(words)
    return np.flatnonzero(allowed)


def _places(terms: Terms, kept: Ints, num_emb: int, rand_len: int, space_len: int) -> Ints:
    """The positions of the numbers in every kept term's embedding, ``(kept, num_emb)``."""
    places, row = np.empty((len(kept), num_emb), np.int64), np.empty(len(terms.starts), np.int64)
    row[kept] = np.arange(len(kept))
    for number, words in terms.groups(kept):
        for first in range(0, num_emb, rand_len):
            place = xxh32(np, words, first) % np.uint32(space_len)
            places[row[number], first : first + rand_len] = place[:, None] + np.arange(rand_len)
    return places


def _rows_of(terms: Terms, kept: Ints, lod: Lod) -> tuple[Ints, Lod]:
    """The row of every kept term, and the sequences of rows; none is empty."""
    counts = np.bincount(terms.owners[kept], minlength=lod.sequences)
    rows = Lod.of_lengths([np.maximum(counts, 1)])
    within = np.arange(len(kept)) - (np.cumsum(counts) - counts)[terms.owners[kept]]
    return rows.offsets[:-1][terms.owners[kept]] + within, rows


# ---- the operator


def _inputs(r: SampleRng) -> dict[str, Any]:
    lists = dict.fromkeys(("WhiteList", "BlackList"), np.zeros((1, 1), np.float32))
    return {
        "X": r.integers(0, 9, (_LOD.rows, 1)).astype(np.int32),
        "X@LOD": _LOD,
        "W": r.normal((40, 1)),
        **lists,
    }


_LOD = Lod([[0, 4, 5, 6, 11]])
_SIZES = {"num_emb": 8, "space_len": 36, "rand_len": 4}


def _samples(r: SampleRng) -> list[Sample]:
    """Samples without filters, whose bytes do not survive a conversion to another type."""
    lists = {"white_list_len": 1, "black_list_len": 1, "use_filter": False}
    trained = {"is_training": 1, "drop_out_percent": 0.4}
    return [
        Sample(_inputs(r), {**_SIZES, "drop_out_percent": 0.5}, ()),
        Sample(_inputs(r), {**_SIZES, **trained, "pyramid_layer": 4, "seed": 3}, ()),
        Sample(_inputs(r), {**_SIZES, **trained, **lists, "pyramid_layer": 9, "seed": 2024}, ()),
        Sample(_inputs(r), {**_SIZES, **lists, "drop_out_percent": 0.25}, ()),
    ]


@op(
    "pyramid_hash",
    inputs="X X@LOD W WhiteList BlackList",
    outputs="Out DropPos X_Temp_Out Out@LOD",
    infer=_infer,
    attrs=_ATTRS,
    checks_values=True,
    samples=_samples,
)
def pyramid_hash(
    xp: Any, x: Any, lod: Lod, weight: Any, white: Any, black: Any,
    *, num_emb: int = 0, space_len: int = 0, pyramid_layer: int = 2, rand_len: int = 0,
    drop_out_percent: float = 0.0, is_training: int = 0, use_filter: bool = True,
    white_list_len: int = 0, black_list_len: int = 0, seed: int = 0,
) -> tuple[Any, Any, Any, Lod]:  # fmt: skip
    """A row for every run of 2 to ``pyramid_layer`` words of a sequence; zeros if there is none.

    A row consists of pieces of ``rand_len`` numbers of ``W``, at positions given by XXH32 hashes of
    the words. With ``use_filter`` a run counts only if it is in WhiteList and not in BlackList.
    Both are Bloom filters stored in float32 numbers; one with the length 0 is ignored. In training,
    runs are dropped, the same ones in every call with a ``seed``; else rows are multiplied by
    ``drop_out_percent``. ``DropPos`` is 1 for every run with a row, and ``X_Temp_Out`` is X as
    float32. Source: Paddle op ``pyramid_hash``.

    Raises:
        ValueError: a list holds no filter.
    """
    numbers = on_host(x).astype(np.float32)
    terms = terms_of(numbers, lod, pyramid_layer)
    lists = {"WhiteList": (white, white_list_len), "BlackList": (black, black_list_len)}
    filters = [
        _Filter(on_host(stored), name) if use_filter and length else None
        for name, (stored, length) in lists.items()
    ]
    kept = _allowed(terms, *filters)
    if is_training:
        drawn = rand_r(seed, len(kept)).astype(np.float32) / np.float32(2**31 - 1)
        kept = kept[drawn >= np.float32(drop_out_percent)]
    rows, offsets = _rows_of(terms, kept, lod)
    out = xp.zeros((offsets.rows, num_emb), weight.dtype)
    places = _places(terms, kept, num_emb, rand_len, space_len)
    out[xp.asarray(rows)] = weight.reshape(-1)[xp.asarray(places)]
    if not is_training and weight.dtype.kind == "f":
        out *= weight.dtype.type(drop_out_percent)
    positions = np.zeros((len(numbers) * pyramid_layer, 1), np.int32)
    positions[kept] = 1
    return out, xp.asarray(positions), xp.asarray(numbers.reshape(x.shape)), offsets


def _grad_samples(r: SampleRng) -> list[Sample]:
    """Three texts; the first has no run of words that was kept."""
    found = []
    for layers, lr in ((2, 0.5), (4, 0.1), (3, 0.0)):
        inputs, attrs = _inputs(r), {**_SIZES, "pyramid_layer": layers, "lr": lr}
        terms = terms_of(inputs["X"].ravel().astype(np.float32), _LOD, layers)
        positions = np.zeros((_LOD.rows * layers, 1), np.int32)
        positions[: len(terms.starts), 0] = (terms.owners > 0) & (
            r.uniform(0, 1, terms.starts.shape) > 0.3
        )
        _, rows = _rows_of(terms, np.flatnonzero(positions), _LOD)
        del inputs["WhiteList"], inputs["BlackList"]
        inputs |= {"DropPos": positions, "X_Temp_Out": inputs["X"].astype(np.float64)}
        inputs["Out@GRAD"] = r.normal((rows.rows, 8))
        why = {
            "*": (
                "needs offsets of DropPos that do not match its rows; dpexec needs offsets that "
                "match"
            )
        }
        found.append(Sample(inputs, attrs, (), deviates=why))
    return found


@op(
    "pyramid_hash_grad",
    inputs="X X@LOD W DropPos X_Temp_Out Out@GRAD",
    outputs="X@GRAD W",
    infer=lambda x, lod, weight, *_: (x, weight),
    attrs=pyramid_hash.attrs,
    inplace={"W": "W"},
    no_grad=True,
    samples=_grad_samples,
)
def pyramid_hash_grad(
    xp: Any, x: Any, lod: Lod, weight: Any, positions: Any, numbers: Any, d_out: Any,
    *, num_emb: int = 0, space_len: int = 0, pyramid_layer: int = 2, rand_len: int = 0,
    lr: float = 0.0,
) -> tuple[Any, Any]:  # fmt: skip
    """``W`` less ``lr`` times its gradient: the operator is its own optimizer, as in Paddle.

    Words have no gradient; it is 0. Source: Paddle op ``pyramid_hash_grad``.
    """
    terms = terms_of(on_host(numbers), lod, pyramid_layer)
    kept = np.flatnonzero(on_host(positions)[: len(terms.starts)])
    rows, _ = _rows_of(terms, kept, lod)
    places = xp.asarray(_places(terms, kept, num_emb, rand_len, space_len).reshape(-1))
    values = d_out[xp.asarray(rows)].reshape(-1, 1)
    weight -= weight.dtype.type(lr) * added_rows(xp, places, values, weight.shape)
    return xp.zeros_like(x), weight


@pyramid_hash.grad_maker
def make_pyramid_hash_grad(context: GradContext) -> list[GradOp]:
    """The gradient operator is made if X has a gradient; it overwrites W."""
    forward = context.op
    if not any(context.input_grads["X"]):
        return []
    inputs = {slot: forward.inputs[slot] for slot in ("X", "W")}
    inputs |= {slot: forward.output(slot) for slot in ("DropPos", "X_Temp_Out")}
    inputs["Out@GRAD"] = context.output_grads["Out"]
    outputs = {"X@GRAD": context.input_grads["X"], "W": forward.inputs["W"]}
    return [GradOp("pyramid_hash_grad", inputs, outputs, forward.plain_attrs())]
