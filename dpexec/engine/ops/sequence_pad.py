"""``sequence_pad`` and ``sequence_unpad``: sequences as rows of one length, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._sequences import (
    Ints,
    offsets_spec,
    on_host,
    require_sequences,
    rows_of,
    sequence_count,
)
from dpexec.engine.ops._shapes import require_integer, require_same_dtype, same_dims

_LOD = Lod([[0, 2, 5]])


def _infer_pad(
    x: Spec, lod: Spec | None, pad: Spec, *, padded_length: int = -1
) -> tuple[Spec, Spec]:
    require_sequences(x, lod)
    require_same_dtype(x, pad, "X and PadValue")
    require(x.rank >= 2, f"X {x} must have two dimensions or more")
    require(
        pad.size in (1, -1) or same_dims(pad.shape, x.shape[1:]),
        f"PadValue {pad} must be one number, or like a row of X {x}",
    )
    known = padded_length > 0
    require(known or padded_length == -1, f"padded_length {padded_length} is not positive")
    steps = padded_length if known else 1 if lod is None else -1  # 1: what fluid declares
    count = sequence_count(lod)
    out = x.replace(shape=(count, steps, *x.shape[1:]), lod_level=0)
    return out, Spec((count,), VarType.INT64)


def _places(lengths: Ints, steps: int) -> Ints:
    """The numbers of the rows after each sequence is padded to ``steps`` rows."""
    return rows_of(np.arange(len(lengths)) * steps, lengths)


@op(
    "sequence_pad",
    inputs="X X@LOD PadValue",
    outputs="Out Length",
    infer=_infer_pad,
    checks_values=True,
    samples=lambda r: [
        Sample({"X": r.normal((5, 2)), "X@LOD": _LOD, "PadValue": r.normal((1,))}, grad=("X",)),
        Sample(
            {"X": r.normal((5, 2)), "X@LOD": Lod([[0, 2, 2, 5]]), "PadValue": r.normal((2,))},
            {"padded_length": 4},
            grad=("X",),
        ),
        Sample({"X": r.normal((5, 1, 2)), "X@LOD": _LOD, "PadValue": np.zeros(1)}, grad=("X",)),
        Sample(
            {"X": np.array([[1], [2], [3]]), "X@LOD": Lod([[0, 1, 3]]), "PadValue": np.array([9])},
            expected={"Out": np.array([[[1], [9]], [[2], [3]]]), "Length": np.array([1, 2])},
        ),
    ],
    grad_lod="own",
    flops=0,
)
def sequence_pad(
    xp: Any, x: Any, lod: Lod, pad: Any, *, padded_length: int = -1
) -> tuple[Any, Any]:
    """All sequences with ``padded_length`` rows (-1: as the longest), and their own lengths.

    Source: Paddle op ``sequence_pad``.

    Raises:
        ValueError: a sequence is longer.
    """
    lengths = lod.lengths
    longest = int(lengths.max(initial=0))
    steps = longest if padded_length < 0 else padded_length
    if longest > steps:
        raise ValueError(f"padded_length is {steps}, but a sequence has {longest} rows")
    out = xp.empty((len(lengths) * steps, *x.shape[1:]), x.dtype)
    out[...] = pad.reshape(-1)[0] if pad.size == 1 else pad
    out[xp.asarray(_places(lengths, steps))] = x
    return out.reshape(len(lengths), steps, *x.shape[1:]), xp.asarray(lengths)


@sequence_pad.grad("X", "X@LOD", "Out@GRAD", outputs="X@GRAD")
def sequence_pad_grad(xp: Any, x: Any, lod: Lod, d_out: Any) -> Any:
    """The gradient without that of the padding."""
    places = xp.asarray(_places(lod.lengths, d_out.shape[1]))
    return d_out.reshape(-1, *x.shape[1:])[places]


def _infer_unpad(
    rows: Spec | None, lod: Spec | None, x: Spec, length: Spec
) -> tuple[Spec, Spec | None]:
    require_integer(length, "Length")
    require(x.rank >= 2, f"X {x} must have two dimensions or more")
    numbers = length.shape[:1] if length.shape[1:] == (1,) else length.shape  # [N, 1]: before 1.7
    require(
        len(numbers) == 1 and dims_match(numbers[0], x.shape[0]),
        f"Length {length} must have a number for every sequence of X {x}",
    )
    out = x.replace(shape=(rows.shape[0] if rows else -1, *(x.shape[2:] or (1,))), lod_level=1)
    shared = rows and (lod is None or lod.rank == 1)
    return out, None if shared else offsets_spec(length.shape[0])


@op(
    "sequence_unpad",
    inputs="Length@ROWS? Length@ROWS@LOD? X Length",
    outputs="Out Out@LOD",
    infer=_infer_unpad,
    checks_values=True,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3, 2)), "Length": np.array([2, 3])}),
        Sample({"X": r.normal((3, 2, 1, 2)), "Length": np.array([1, 0, 2])}),
        Sample({"X": r.normal((2, 4)), "Length": np.array([4, 1])}),
        Sample(
            {"X": np.array([[[1], [9]], [[2], [3]]]), "Length": np.array([1, 2])},
            expected={"Out": np.array([[1], [2], [3]]), "Out@LOD": Lod([[0, 1, 3]])},
        ),
    ],
    flops=0,
)
def sequence_unpad(xp: Any, rows: Any, lod: Lod | None, x: Any, length: Any) -> tuple[Any, Lod]:
    """The first ``Length`` rows of every sequence, concatenated.

    The number of rows is known before the operator runs: if ``Length`` is fed, offsets with these
    lengths are fed, too; if ``sequence_pad`` made it, they are those of its input. Source: Paddle
    op ``sequence_unpad``.

    Raises:
        ValueError: a length exceeds the number of rows.
    """
    lengths, steps = on_host(length).reshape(-1), x.shape[1]
    if ((lengths < 0) | (lengths > steps)).any():
        raise ValueError(f"Length is {lengths.tolist()}, but X has {steps} rows per sequence")
    all_rows = x.reshape(-1, *(x.shape[2:] or (1,)))
    return all_rows[xp.asarray(_places(lengths, steps))], Lod.of_lengths([lengths])


@sequence_unpad.grad("X", "Out@GRAD", "Out@GRAD@LOD", outputs="X@GRAD")
def sequence_unpad_grad(xp: Any, x: Any, d_out: Any, lod: Lod) -> Any:
    """The gradient, and 0 for the rows that were left out."""
    grad = xp.zeros((x.shape[0] * x.shape[1], *d_out.shape[1:]), d_out.dtype)
    grad[xp.asarray(_places(lod.lengths, x.shape[1]))] = d_out
    return grad.reshape(x.shape)
