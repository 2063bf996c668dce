"""``fusion_transpose_flatten_concat``: the layout changes in detection heads, in one operator."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._shapes import product


def _infer(
    x: Sequence[Spec],
    *,
    trans_axis: Sequence[int] = (),
    flatten_axis: int = 1,
    concat_axis: int = 1,
) -> Spec:
    require(concat_axis in (0, 1), f"concat_axis must be 0 or 1, but is {concat_axis}")
    found = []
    for spec in x:
        require(
            sorted(trans_axis) == list(range(spec.rank)),
            f"trans_axis {list(trans_axis)} must have each axis of X {spec} once",
        )
        require(
            0 <= flatten_axis <= spec.rank,
            f"flatten_axis {flatten_axis} must lie between 0 and the {spec.rank} axes of X {spec}",
        )
        require(spec.dtype == x[0].dtype, f"X {spec} must have the data type of {x[0]}")
        dims = [spec.shape[axis] for axis in trans_axis]
        found.append([product(dims[:flatten_axis]), product(dims[flatten_axis:])])
    kept = 1 - concat_axis
    require(
        all(dims_match(dims[kept], found[0][kept]) for dims in found),
        f"as matrices, X have the shapes {found}, which cannot be joined along {concat_axis}",
    )
    sizes = [dims[concat_axis] for dims in found]
    shape = list(found[0])
    shape[kept] = max(dims[kept] for dims in found)
    shape[concat_axis] = -1 if min(sizes) < 0 else sum(sizes)
    return Spec(tuple(shape), x[0].dtype)


def _samples(r: SampleRng) -> list[Sample]:
    return [
        Sample(
            {"X": [r.normal((2, 3, 4, 5)), r.normal((2, 6, 2, 2))]},
            {"trans_axis": [0, 2, 3, 1], "flatten_axis": 1, "concat_axis": 1},
        ),
        Sample(
            {"X": [r.normal((2, 3, 4)), r.normal((2, 5, 4))]},
            {"trans_axis": [1, 0, 2], "flatten_axis": 2, "concat_axis": 0},
        ),
        Sample(
            {"X": [r.normal((3, 2))]}, {"trans_axis": [1, 0], "flatten_axis": 0, "concat_axis": 1}
        ),
    ]


@op(
    "fusion_transpose_flatten_concat",
    inputs="X[]",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def fusion_transpose_flatten_concat(
    xp: Any,
    x: list[Any],
    *,
    trans_axis: Sequence[int] = (),
    flatten_axis: int = 1,
    concat_axis: int = 1,
) -> Any:
    """Tensors transposed, flattened to matrices, and concatenated.

    The first ``flatten_axis`` axes are rows. It occurs in models that Paddle optimized for GPUs;
    Paddle has no kernel of it for CPUs. Source: Paddle op ``fusion_transpose_flatten_concat``.
    """
    parts = []
    for array in x:
        laid = array.transpose(tuple(trans_axis))
        parts.append(laid.reshape(prod(laid.shape[:flatten_axis]), prod(laid.shape[flatten_axis:])))
    return xp.concatenate(parts, axis=concat_axis)
