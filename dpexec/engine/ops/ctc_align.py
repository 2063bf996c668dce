"""``ctc_align``: class per time step to tags: removes repetitions and blanks."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._sequences import offsets_or_lengths, on_host
from dpexec.engine.ops._shapes import require_integer


def _infer(x: Spec, lod: Spec | None, length: Spec | None) -> tuple[Spec, Spec | None, Any]:
    require_integer(x, "Input")
    require(x.rank == 2, f"Input {x} must be (rows, 1), or (batch, T) with lengths")
    if length is None:
        require(dims_match(x.shape[1], 1), f"Input {x} must be (rows, 1)")
        return x.replace(shape=(-1, 1), lod_level=0), lod, None
    require_integer(length, "InputLength")
    require(
        dims_match(length.size, x.shape[0]),
        f"InputLength {length} must have a number for each sequence of Input {x}",
    )
    none = Spec((), VarType.INT64, VarType.RAW)
    return x.replace(lod_level=0), none, length.replace(shape=(x.shape[0], 1), lod_level=0)


def _samples(r: Any) -> list[Sample]:
    lod = {"Input@LOD": Lod([[0, 4, 8]])}
    classes = np.array([[0], [2], [1], [0], [0], [3], [3], [0]])
    padded = {"Input": r.integers(0, 3, (4, 6)), "InputLength": np.array([[6], [2], [0], [5]])}
    return [
        Sample(
            {"Input": classes, **lod},
            expected={"Output": np.array([[2], [1], [3]]), "Output@LOD": Lod([[0, 2, 3]])},
        ),
        Sample({"Input": classes, **lod}, {"merge_repeated": False, "blank": 2}),
        Sample({"Input": r.integers(0, 3, (8, 1)).astype(np.int32), **lod}, {"blank": 1}),
        Sample(padded, {"padding_value": -1}),
        Sample(padded, {"merge_repeated": False, "blank": 2}),
    ]


def _kept(classes: Any, firsts: Any, blank: int, merge_repeated: bool) -> Any:
    """Whether each step is kept; ``firsts`` tells whether it begins a sequence."""
    kept = classes != blank
    if merge_repeated:
        kept &= firsts | (classes != np.roll(classes, 1))
    return kept


@op(
    "ctc_align",
    inputs="Input Input@LOD? InputLength?",
    outputs="Output Output@LOD OutputLength?",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def ctc_align(
    xp: Any,
    x: Any,
    lod: Lod | None,
    length: Any,
    *,
    blank: int = 0,
    merge_repeated: bool = True,
    padding_value: int = 0,
) -> tuple[Any, Lod, Any]:
    """The sequences without blanks, and without repetitions if ``merge_repeated``.

    For tensors with sequences, ``(rows, 1)``; if nothing is left at all, the result is ``[[-1]]``,
    a row outside all sequences. For padded tensors, ``(batch, T)`` with ``InputLength``, the rest
    of a row is ``padding_value``, and ``OutputLength`` ``(batch, 1)`` has the new lengths.
    Source: Paddle op ``ctc_align``.
    """
    host = x if isinstance(x, np.ndarray) else x.get()
    if length is None:
        lod = offsets_or_lengths(lod, "Input", "InputLength")
        classes, firsts = host.reshape(-1), np.zeros(len(host), bool)
        firsts[lod.offsets[:-1][lod.lengths > 0]] = True
        kept = _kept(classes, firsts, blank, merge_repeated)
        left = classes[kept] if kept.any() else np.array([-1], classes.dtype)
        offsets = np.append(0, np.cumsum(kept))[lod.offsets]
        return xp.asarray(left[:, None]), Lod([offsets]), None
    lengths, steps = on_host(length), np.arange(host.shape[1])
    firsts = np.broadcast_to(steps == 0, host.shape)
    kept = _kept(host.ravel(), firsts.ravel(), blank, merge_repeated).reshape(host.shape)
    kept &= steps < lengths[:, None]
    counts = kept.sum(axis=1)
    out = np.full(host.shape, padding_value, host.dtype)
    out[steps < counts[:, None]] = host[kept]
    return xp.asarray(out), Lod(), xp.asarray(counts.astype(lengths.dtype)[:, None])
