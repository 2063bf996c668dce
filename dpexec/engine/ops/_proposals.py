"""Boxes in pixels: shared by operators that propose and label regions of images.

A box ``(x0, y0, x1, y1)`` includes both corners, so it is ``x1 - x0 + 1`` wide. Everything runs on
the host, as decisions depend on the values and the work is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.core.random import RandomStream
from dpexec.engine.ir.opdef import Spec, dims_match, require
from dpexec.engine.ops._sequences import Ints

Boxes = np.ndarray[Any, Any]


def require_image_info(spec: Spec) -> None:
    """Check that a variable holds height, width and scale of images."""
    require(
        spec.rank == 2 and dims_match(spec.shape[1], 3),
        f"ImInfo {spec} must be (images, 3): height, width and scale",
    )


def same_sequences(**lods: Lod) -> list[tuple[int, int]]:
    """First row, and one behind the last row, of every image.

    Args:
        lods: offsets by slot.

    Raises:
        ValueError: the slots have different numbers of rows for an image.
    """
    (first, lod), *others = lods.items()
    for name, other in others:
        if not np.array_equal(lod.offsets, other.offsets):
            raise ValueError(
                f"{name} must have as many rows for each image as {first}, {lod.lengths.tolist()}, "
                f"but has {other.lengths.tolist()}"
            )
    return lod.spans()


def joined(xp: Any, parts: Sequence[Any]) -> tuple[Any, Lod]:
    """Concatenated rows of images on the device of ``xp``, and the offsets of the images."""
    return xp.asarray(np.concatenate(parts)), Lod.of_lengths([[len(part) for part in parts]])


def sizes(boxes: Boxes) -> Boxes:
    """Widths and heights, ``(boxes, 2)``."""
    return boxes[:, 2:] - boxes[:, :2] + 1


def overlaps(boxes: Boxes, others: Boxes) -> Boxes:
    """Intersection over union of each of ``boxes`` with each of ``others``."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    common = np.maximum(high - low + 1, 0).prod(axis=2)
    union = sizes(boxes).prod(axis=1)[:, None] + sizes(others).prod(axis=1) - common
    return np.divide(common, union, out=np.zeros_like(common), where=common != 0)


def deltas(boxes: Boxes, targets: Boxes, weights: Sequence[float] | None = None) -> Boxes:
    """The changes from boxes to targets: shifts relative to the size, and logarithms of factors.

    Args:
        boxes: ``(boxes, 4)``.
        targets: ``(boxes, 4)``.
        weights: divisors of the four numbers.

    Source: Girshick et al., 2014, Rich feature hierarchies, appendix C.
    """
    size, target = sizes(boxes), sizes(targets)
    shift = targets[:, :2] + 0.5 * target - (boxes[:, :2] + 0.5 * size)
    found = np.concatenate([shift / size, np.log(target / size)], axis=1)
    return found if weights is None else found / np.asarray(weights, found.dtype)


def moved(xp: Any, boxes: Any, change: Any, limit: float | None = None) -> Any:
    """Boxes after the changes that :func:`deltas` describes.

    Args:
        xp: ``numpy`` or ``cupy``.
        boxes: ``(boxes, 4)``, or anything that broadcasts with ``change``.
        change: ``(..., 4)``.
        limit: the largest logarithm of a factor.
    """
    size = boxes[..., 2:] - boxes[..., :2] + 1
    factor = change[..., 2:] if limit is None else xp.minimum(change[..., 2:], limit)
    center = change[..., :2] * size + (boxes[..., :2] + size / 2)
    half = xp.exp(factor) * size / 2
    return xp.concatenate([center - half, center + half - 1], axis=-1)


def clipped(boxes: Boxes, height: float, width: float) -> Boxes:
    """Boxes clipped to an image."""
    last = np.array([width, height, width, height], boxes.dtype) - 1
    return np.maximum(np.minimum(boxes, last), 0)


class Picker:
    """Picks some of many candidates: at random, or the first ones.

    Args:
        rng: random stream of the operator.
        at_random: whether to pick at random.
    """

    def __init__(self, rng: RandomStream, at_random: bool) -> None:
        seed = (rng.integer(), rng.first_sample)
        self._generator = np.random.default_rng(seed) if at_random else None

    def pick(self, candidates: Ints, count: int) -> Ints:
        """At most ``count`` of ``candidates``, in their order."""
        if len(candidates) <= count:
            return candidates
        if self._generator is None:
            return candidates[:count]
        return np.sort(self._generator.choice(candidates, count, replace=False))
