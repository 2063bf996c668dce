"""``partial_concat`` and ``partial_sum``: some columns of matrices, side by side or added up."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import require_same_dtype, same_dims


def _columns(width: int, start: int, length: int) -> slice:
    """Which columns take part."""
    first = start % width
    return slice(first, width if length < 0 else first + length)


def _count(parts: list[Spec], start: int, length: int) -> int:
    """The number of columns that take part; checks that they exist."""
    first = parts[0]
    for part in parts:
        require_same_dtype(first, part, "all inputs")
        require(
            part.rank == 2 and same_dims(part.shape, first.shape),
            f"X must be matrices of one shape, but has {first} and {part}",
        )
    width = first.shape[1]
    if width < 0:
        return length
    require(-width <= start < width, f"start_index {start} must be a column of X {first}")
    found = _columns(width, start, length)
    require(found.stop <= width, f"X {first} has no {length} columns from {start % width} on")
    return found.stop - found.start


def _infer_concat(parts: list[Spec], *, start_index: int = 0, length: int = -1) -> Spec:
    count = _count(parts, start_index, length)
    width = -1 if count < 0 else count * len(parts)
    return parts[0].replace(shape=(parts[0].shape[0], width))


def _infer_sum(parts: list[Spec], *, start_index: int = 0, length: int = -1) -> Spec:
    require(start_index >= 0, f"start_index must not be negative here, but is {start_index}")
    count = _count(parts, start_index, length)
    return parts[0].replace(shape=(parts[0].shape[0], count))


def _samples(r: Any, last: int) -> list[Sample]:
    parts = {"X": [r.normal((3, 5)) for _ in range(3)]}
    return [
        Sample(parts),
        Sample(parts, {"start_index": 1, "length": 2}),
        Sample({"X": parts["X"][:2]}, {"start_index": last}),
    ]


def _spread(
    xp: Any, parts: list[Any], grads: list[Any], columns: slice, wanted: list[bool]
) -> tuple[list[Any]]:
    """Gradients of the columns that took part, 0 for the others."""
    made: list[Any] = []
    for part, d_part, needed in zip(parts, grads, wanted, strict=True):
        made.append(xp.zeros_like(part) if needed else None)
        if needed:
            made[-1][:, columns] = d_part
    return (made,)


@op(
    "partial_concat",
    inputs="X[]",
    infer=_infer_concat,
    samples=lambda r: _samples(r, -2),
    grad_lod="own",
)
def partial_concat(xp: Any, parts: list[Any], *, start_index: int = 0, length: int = -1) -> Any:
    """``length`` columns from ``start_index`` on of every matrix, side by side.

    A negative length takes all that follow. Source: Paddle op ``partial_concat``.
    """
    columns = _columns(parts[0].shape[1], start_index, length)
    return xp.concatenate([part[:, columns] for part in parts], axis=1)


@partial_concat.grad("X[]", "Out@GRAD", outputs="X@GRAD[]")
def partial_concat_grad(
    xp: Any,
    parts: list[Any],
    d_out: Any,
    *,
    start_index: int = 0,
    length: int = -1,
    needs: tuple[list[bool]] = ([],),
) -> Any:
    """Every matrix gets its columns of the gradient."""
    columns = _columns(parts[0].shape[1], start_index, length)
    return _spread(xp, parts, xp.split(d_out, len(parts), axis=1), columns, needs[0])


@op(
    "partial_sum",
    inputs="X[]",
    infer=_infer_sum,
    attrs={"use_mkldnn": False},
    samples=lambda r: _samples(r, 3),
    grad_lod="own",
)
def partial_sum(xp: Any, parts: list[Any], *, start_index: int = 0, length: int = -1) -> Any:
    """``length`` columns from ``start_index`` on of every matrix, added up.

    A negative length takes all that follow. Source: Paddle op ``partial_sum``.
    """
    columns = _columns(parts[0].shape[1], start_index, length)
    total = parts[0][:, columns].copy()
    for part in parts[1:]:
        total += part[:, columns]
    return total


@partial_sum.grad("X[]", "Out@GRAD", outputs="X@GRAD[]")
def partial_sum_grad(
    xp: Any,
    parts: list[Any],
    d_out: Any,
    *,
    start_index: int = 0,
    length: int = -1,
    needs: tuple[list[bool]] = ([],),
) -> Any:
    """Every matrix gets the whole gradient in the columns that were added."""
    columns = _columns(parts[0].shape[1], start_index, length)
    return _spread(xp, parts, [d_out] * len(parts), columns, needs[0])
