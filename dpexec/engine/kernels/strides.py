"""Strides of arrays, and merging of dimensions that are contiguous in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["OUTER", "groups", "merged", "regular", "strides"]

OUTER = 3
"""The number of loops around the innermost one."""


def merged(shape: Sequence[int], *strides: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """Merge dimensions as far as possible; at least one is left.

    Args:
        shape: the dimensions.
        strides: the strides of every array.
    """
    sizes: list[int] = []
    found: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        joins = bool(sizes) and all(
            steps[-1] == steps_of[axis] * size
            for steps, steps_of in zip(found, strides, strict=True)
        )
        if joins:
            sizes[-1] *= size
        else:
            sizes.append(size)
        for steps, steps_of in zip(found, strides, strict=True):
            if joins:
                steps[-1] = steps_of[axis]
            else:
                steps.append(steps_of[axis])
    return (sizes, found) if sizes else ([1], [[1] for _ in strides])


def strides(shape: Sequence[int], like: Sequence[int] = ()) -> list[int]:
    """The strides of an array; 0 along dimensions in which ``like`` broadcasts it."""
    found = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    repeated = [size == 1 and other != 1 for size, other in zip(shape, like or shape, strict=True)]
    return [0 if again else step for step, again in zip(found, repeated, strict=True)]


def regular(shapes: Sequence[Sequence[int]], out: Sequence[int]) -> bool:
    """Whether the kernels support the broadcast of these shapes to that of the result."""
    kept = [[a == b for a, b in zip(shape, out, strict=True)] for shape in shapes]
    sizes, _ = merged(out, strides(out), *(strides(shape, out) for shape in shapes))
    return len(sizes) <= OUTER + 1 and all(len(groups(out, k)) <= 4 for k in kept)


def groups(shape: Sequence[int], kept: Sequence[bool]) -> list[int]:
    """Sizes of merged dimensions: kept and reduced ones alternate."""
    found, keeps = [1], True
    for size, keep in zip(shape, kept, strict=True):
        if size == 1:
            continue
        if keep != keeps:
            found.append(1)
            keeps = keep
        found[-1] *= size
    return found
