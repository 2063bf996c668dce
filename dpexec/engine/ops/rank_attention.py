"""``rank_attention``: products with parameters selected by two ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.ranges import require_between
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._rows import added_rows
from dpexec.engine.ops._shapes import require_same_dtype


def _infer(x: Spec, offsets: Spec, parameters: Spec, *, MaxRank: int = 3) -> Spec:
    require_same_dtype(x, parameters, "X and RankParam")
    require(MaxRank > 0, f"MaxRank must be positive, but is {MaxRank}")
    require(
        offsets.rank == 2
        and offsets.dtype == VarType.INT32
        and dims_match(offsets.shape[1], 1 + 2 * MaxRank)
        and dims_match(offsets.shape[0], x.shape[0]),
        f"RankOffset {offsets} must be int32 with {1 + 2 * MaxRank} columns, and the rows of X {x}",
    )
    require(
        x.rank == parameters.rank == 2
        and (x.shape[1] < 0 or dims_match(parameters.shape[0], MaxRank**2 * x.shape[1])),
        f"RankParam {parameters} must have {MaxRank**2} rows for each column of X {x}",
    )
    return x.replace(shape=(x.shape[0], parameters.shape[1]))


def _seen(xp: Any, x: Any, offsets: Any, MaxRank: int) -> list[tuple[Any, Any]]:
    """For every rank, the selected rows of X (0 for none), and the blocks that multiply them."""
    own, found = offsets[:, 0] - 1, []
    for position in range(MaxRank):
        other, row = offsets[:, 2 * position + 1] - 1, offsets[:, 2 * position + 2]
        there = (own >= 0) & (other >= 0)
        require_between(xp, xp.where(there, own, 0), 0, MaxRank - 1, _beyond("a rank", MaxRank))
        require_between(xp, xp.where(there, other, 0), 0, MaxRank - 1, _beyond("a rank", MaxRank))
        require_between(xp, xp.where(there, row, 0), 0, len(x) - 1, _beyond("a row", len(x)))
        rows = x[xp.where(there, row, 0)] * there[:, None].astype(x.dtype)
        found.append((rows, xp.where(there, own * MaxRank + other, 0)))
    return found


def _beyond(what: str, count: int) -> str:
    return f"RankOffset: expected {what} of {count}, counted from 0, but got {{}}"


def _inputs(r: SampleRng, rows: int, width: int, ranks: int) -> dict[str, Any]:
    """Rows in groups; each selects the rows of its group, by their rank."""
    offsets = np.zeros((rows, 1 + 2 * ranks), np.int32)
    for first in range(0, rows, ranks):
        group = range(first, min(first + ranks, rows))
        for rank, row in enumerate(group):
            offsets[row, 0] = rank + 1
            for other, seen in enumerate(group):
                offsets[row, 2 * other + 1 : 2 * other + 3] = other + 1, seen
    offsets[-1, 0] = 0
    return {
        "X": r.normal((rows, width)),
        "RankOffset": offsets,
        "RankParam": r.normal((ranks * ranks * width, 3)),
    }


def _samples(r: SampleRng) -> list[Sample]:
    why = {"*": "has the operator on GPUs only; dpexec has it on CPUs, too"}
    one = {
        "X": np.array([[1.0], [2.0]]),
        "RankOffset": np.array([[2, 1, 1, 2, 0], [1, 1, 1, 0, 0]], np.int32),
        "RankParam": np.array([[1.0], [10.0], [100.0], [1000.0]]),
    }
    return [
        Sample(_inputs(r, 7, 2, 3), grad=("RankParam",), deviates=why),
        Sample(_inputs(r, 4, 5, 2), {"MaxRank": 2}, ("RankParam",), deviates=why),
        Sample(
            one,
            {"MaxRank": 2},
            ("RankParam",),
            expected={"Out": np.array([[1200.0], [2.0]])},
            deviates=why,
        ),
    ]


@op(
    "rank_attention",
    inputs="X RankOffset RankParam",
    infer=_infer,
    checks_values=True,
    samples=_samples,
)
def rank_attention(xp: Any, x: Any, offsets: Any, parameters: Any, *, MaxRank: int = 3) -> Any:
    """For each row, the sum of selected rows of ``X``, each times a block of ``RankParam``.

    A row of ``RankOffset`` has the row's own rank, then for every selected row its rank and its
    number. Ranks are counted from 1; 0 means none. The block of two ranks is number
    ``(own - 1) * MaxRank + other - 1``; it has as many rows as X has columns. Paddle has this
    operator on GPUs only, so it was not compared with Paddle. Source: Paddle op ``rank_attention``.

    Raises:
        ValueError: a rank is above ``MaxRank``, or there is no such row.
    """
    blocks = parameters.reshape(MaxRank * MaxRank, x.shape[1], -1)
    parts = [
        xp.matmul(rows[:, None], blocks[chosen])[:, 0]
        for rows, chosen in _seen(xp, x, offsets, MaxRank)
    ]
    return sum(parts[1:], start=parts[0])


@rank_attention.grad(
    "X", "RankOffset", "RankParam", "Out@GRAD",
    outputs="RankParam@GRAD",
    infer=lambda x, offsets, parameters, d_out: parameters,
)  # fmt: skip
def rank_attention_grad(
    xp: Any, x: Any, offsets: Any, parameters: Any, d_out: Any, *, MaxRank: int = 3
) -> Any:
    """For every block, selected rows times the gradient; X has no gradient, as in Paddle."""
    seen = _seen(xp, x, offsets, MaxRank)
    values = xp.concatenate([rows[:, :, None] * d_out[:, None] for rows, _ in seen])
    chosen = xp.concatenate([blocks for _, blocks in seen])
    shape = MaxRank * MaxRank, x.shape[1], d_out.shape[1]
    return added_rows(xp, chosen, values, shape).reshape(parameters.shape)
