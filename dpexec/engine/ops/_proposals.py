"""Boxes in pixels: what operators that propose and label regions of images share.

A box is ``(x0, y0, x1, y1)`` and holds both of its corners, so it is ``x1 - x0 + 1`` wide. All of
this runs on the host: what it decides depends on the values, and it is little work.
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
    """Refuse what does not hold height, width and scale of images."""
    require(
        spec.rank == 2 and dims_match(spec.shape[1], 3),
        f"ImInfo {spec} must be (images, 3): height, width and scale",
    )


def same_sequences(**lods: Lod) -> list[tuple[int, int]]:
    """First row, and the one after the last, of every image.

    Args:
        lods: offsets by slot.

    Raises:
        ValueError: they are not those of the same images.
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
    """Rows of images one after another on the device of ``xp``, and where each image begins."""
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
    """What moves boxes to their targets: shifts in units of the size, and logarithms of factors.

    Args:
        boxes: ``(boxes, 4)``.
        targets: alike.
        weights: what each of the four is divided by.

    Source: Girshick et al., 2014, Rich feature hierarchies, appendix C.
    """
    size, target = sizes(boxes), sizes(targets)
    shift = targets[:, :2] + 0.5 * target - (boxes[:, :2] + 0.5 * size)
    found = np.concatenate([shift / size, np.log(target / size)], axis=1)
    return found if weights is None else found / np.asarray(weights, found.dtype)


def moved(xp: Any, boxes: Any, change: Any, limit: float | None = None) -> Any:
    """Boxes after what :func:`deltas` describes.

    Args:
        xp: ``numpy`` or ``cupy``.
        boxes: ``(boxes, 4)``, or anything that broadcasts with ``change``.
        change: ``(..., 4)``.
        limit: of the logarithms of factors.
    """
    size = boxes[..., 2:] - boxes[..., :2] + 1
    factor = change[..., 2:] if limit is None else xp.minimum(change[..., 2:], limit)
    center = change[..., :2] * size + (boxes[..., :2] + size / 2)
    half = xp.exp(factor) * size / 2
    return xp.concatenate([center - half, center + half - 1], axis=-1)


def clipped(boxes: Boxes, height: float, width: float) -> Boxes:
    """Boxes without what lies outside of an image."""
    last = np.array([width, height, width, height], boxes.dtype) - 1
    return np.maximum(np.minimum(boxes, last), 0)


class Picker:
    """Takes some of many: at random, or always the first ones.

    Args:
        rng: stream of the operator.
        at_random: whether to.
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
