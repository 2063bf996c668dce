"""``crop`` and ``crop_tensor``: a section of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import require_numbers

Ints = Sequence[int]


def _check(x: Spec, shape: Ints, offsets: Ints | None) -> None:
    require(len(shape) == x.rank, f"shape {list(shape)} must have a number per dimension of X {x}")
    if offsets is None:
        return
    require(
        len(offsets) == x.rank and min(offsets, default=0) >= 0,
        f"offsets {list(offsets)} must be a number, not negative, per dimension of X {x}",
    )
    require(
        all(n < 0 or size < 0 or a + n <= size
            for a, n, size in zip(offsets, shape, x.shape, strict=True)),
        f"shape {list(shape)} and offsets {list(offsets)} lead beyond X {x}",
    )  # fmt: skip


def _cut(x: Any, offsets: Ints, shape: Ints) -> Any:
    ends = [a + n for a, n in zip(offsets, shape, strict=True)]
    if any(end > size or a < 0 for a, end, size in zip(offsets, ends, x.shape, strict=True)):
        raise ValueError(
            f"offsets {list(offsets)} and shape {list(shape)} lead beyond X {list(x.shape)}"
        )
    return x[tuple(slice(a, end) for a, end in zip(offsets, ends, strict=True))]


def _put_back(xp: Any, x: Any, offsets: Ints, d_out: Any) -> Any:
    grad = xp.zeros(x.shape, dtype=d_out.dtype)
    _cut(grad, offsets, d_out.shape)[...] = d_out
    return grad


def _ints(tensor: Any) -> list[int]:
    return [int(number) for number in tensor.reshape(-1)]


def _sizes(x: Ints, shape: Ints) -> tuple[int, ...]:
    """The shape of the section; -1 for rows stands for all of them."""
    return tuple(x[0] if axis == 0 and size == -1 else size for axis, size in enumerate(shape))


def _infer_crop(
    x: Spec, like: Spec | None, start: Spec | None, *, shape: Ints = (), offsets: Ints = ()
) -> Spec:
    made = _sizes(x.shape, shape) if like is None else like.shape
    require(
        all(size >= 0 for size in shape[1:]),
        f"shape {list(shape)}: only the first number may be -1, which takes all rows of X {x}",
    )
    _check(x, made, None if start is not None else (offsets or [0] * x.rank))
    return x.replace(shape=made, lod_level=0)


@op(
    "crop",
    inputs="X Y? Offsets?",
    infer=_infer_crop,
    checks_values=True,
    samples=lambda r: [
        Sample({"X": r.normal((4, 5))}, {"shape": [2, 3], "offsets": [1, 2]}),
        Sample(
            {"X": r.normal((3, 4, 2)), "Y": r.normal((2, 2, 2))},
            {"offsets": [1, 0, 0]},
            grad=("X",),
        ),
        Sample({"X": r.normal((4, 5)), "Offsets": np.array([2, 1], np.int32)}, {"shape": [2, 3]}),
        Sample({"X": r.normal((4, 5))}, {"shape": [-1, 3], "offsets": [0, 1]}),
    ],
    host_inputs="Offsets",
)
def crop(xp: Any, x: Any, like: Any, start: Any, *, shape: Ints = (), offsets: Ints = ()) -> Any:
    """The section of ``x`` from ``offsets`` on, with the shape ``shape`` or that of ``Y``.

    If ``shape`` begins with -1, the section has all rows. ``Offsets`` replaces the attribute.
    Source: Paddle op ``crop``.

    Raises:
        ValueError: the section leads beyond ``x``.
    """
    begin = _ints(start) if start is not None else list(offsets) or [0] * x.ndim
    return _cut(x, begin, _sizes(x.shape, shape) if like is None else like.shape).copy()


@crop.grad("X", "Offsets?", "Out@GRAD", outputs="X@GRAD", dense=True, checks_values=True)
def crop_grad(xp: Any, x: Any, start: Any, d_out: Any, *, offsets: Ints = ()) -> Any:
    """The gradient in its place, zeros around it."""
    begin = _ints(start) if start is not None else list(offsets) or [0] * x.ndim
    return _put_back(xp, x, begin, d_out)


def _infer_tensor(
    x: Spec,
    size: Spec | None,
    start: Spec | None,
    sizes: list[Spec],
    starts: list[Spec],
    *,
    shape: Ints = (),
    offsets: Ints = (),
) -> Spec:
    require_numbers(sizes, "ShapeTensor")
    require_numbers(starts, "OffsetsTensor")
    if size is not None and not sizes:
        return x.replace(shape=(-1,) * x.rank, lod_level=0)
    begin = None if start is not None or starts else offsets or [0] * x.rank
    made = [n if n > 0 else -1 for n in shape]
    _check(x, made, begin)
    if begin is not None and not sizes:
        rest = [-1 if n < 0 else n - a for n, a in zip(x.shape, begin, strict=True)]
        made = [left if n < 0 else n for n, left in zip(made, rest, strict=True)]
    return x.replace(shape=tuple(made), lod_level=0)


def _begin(x: Any, start: Any, starts: list[Any], offsets: Ints) -> list[int]:
    if starts:
        return [_ints(part)[0] for part in starts]
    return _ints(start) if start is not None else list(offsets) or [0] * x.ndim


@op(
    "crop_tensor",
    inputs="X Shape? Offsets? ShapeTensor?[] OffsetsTensor?[]",
    infer=_infer_tensor,
    checks_values=True,
    samples=lambda r: [
        Sample({"X": r.normal((4, 5))}, {"shape": [2, 3], "offsets": [1, 2]}),
        Sample({"X": r.normal((4, 5))}, {"shape": [2, -1], "offsets": [1, 2]}),
        Sample(
            {
                "X": r.normal((4, 5)),
                "Shape": np.array([3, 2], np.int32),
                "Offsets": np.array([1, 1], np.int32),
            },
            {"shape": []},
        ),
        Sample(
            {
                "X": r.normal((4, 5)),
                "ShapeTensor": [np.array([2], np.int32), np.array([4], np.int32)],
                "OffsetsTensor": [np.array([0], np.int32), np.array([1], np.int32)],
            },
            {"shape": [0, 4], "offsets": [-1, 1]},
        ),
    ],
    host_inputs="Shape Offsets ShapeTensor OffsetsTensor",
)
def crop_tensor(
    xp: Any,
    x: Any,
    size: Any,
    start: Any,
    sizes: list[Any],
    starts: list[Any],
    *,
    shape: Ints = (),
    offsets: Ints = (),
) -> Any:
    """The section of ``x`` that begins at ``offsets``; -1 in ``shape`` extends to the end.

    The variables replace the attributes. Source: Paddle op ``crop_tensor``.

    Raises:
        ValueError: the section leads beyond ``x``.
    """
    begin = _begin(x, start, starts, offsets)
    if sizes:
        wanted = [_ints(part)[0] for part in sizes]
    else:
        wanted = _ints(size) if size is not None else list(shape)
    left = [n - a for n, a in zip(x.shape, begin, strict=True)]
    return _cut(
        x, begin, [rest if n == -1 else n for n, rest in zip(wanted, left, strict=True)]
    ).copy()


@crop_tensor.grad(
    "X Offsets? OffsetsTensor?[] Out@GRAD",
    outputs="X@GRAD",
    dense=True,
    checks_values=True,
)
def crop_tensor_grad(
    xp: Any, x: Any, start: Any, starts: list[Any], d_out: Any, *, offsets: Ints = ()
) -> Any:
    """The gradient in its place, zeros around it."""
    return _put_back(xp, x, _begin(x, start, starts, offsets), d_out)
