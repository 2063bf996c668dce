"""The loss of predictions at the cells of a grid, and its gradient (``yolov3_loss``).

Arguments that most kernels have:

- ``images, objects, anchors, classes, height, width``: sizes; ``anchors`` are those of the mask.
- ``step, pixel``: how far apart in memory two channels of the grid are, and two cells. A cell has
  ``5 + classes`` channels for each anchor.
- ``boxes, labels, scored, scores, matches``: of the objects; ``scored``: whether they have scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Constant, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Number, Words, kernel
from dpexec.engine.kernels.math import exp, exp_bounded, log, log1p, sigmoid
from dpexec.engine.ops.yolov3_loss import TINY, smoothed

__all__: list[str] = []

_F = np.float32
_ZERO, _HALF, _ONE, _TWO = _F(0), _F(0.5), _F(1), _F(2)
_FAR = _F(1 << 30)
_LEAST = _F(TINY)


@inline
def _is_object(boxes: Any, at: int) -> Any:
    """Whether a box is not padding."""
    return boxes[at + 2] > _LEAST and boxes[at + 3] > _LEAST


@inline
def _overlap(
    left: Any, top: Any, right: Any, bottom: Any, x0: Any, y0: Any, x1: Any, y1: Any
) -> Any:
    """Intersection over union of two boxes."""
    across, down = min(right, x1) - max(left, x0), min(bottom, y1) - max(top, y0)
    shared = max(across, _ZERO) * max(down, _ZERO)
    covered = (right - left) * (bottom - top) + (x1 - x0) * (y1 - y0) - shared
    return shared / (_ONE if covered == _ZERO else covered)


@inline
def _cross_entropy(x: Any, wanted: Any) -> Any:
    """The cross entropy of the sigmoid of ``x``."""
    return max(x, _ZERO) - x * wanted + log1p(exp_bounded(-abs(x)))


@inline
def _inside(at: Any, size: int) -> Any:
    """The cell of a position; negative ones count from the end, as in NumPy."""
    place = np.int64(at)
    return place + size if place < 0 else place


@kernel
def _match(
    images: Count, objects: Count, known: Count, classes: Count, height: Count, width: Count,
    boxes: Floats, labels: Words, priors: Floats, masked: Words, matches: Words,
) -> int:  # fmt: skip
    """The anchor of the mask for every object, -1 for none; refuses labels and cells out of range.

    Further arguments: number of all anchors; halves of their widths and heights relative to the
    image, and which of the mask they are.
    """
    for i in range(images * objects):
        matches[i] = -1
        if not _is_object(boxes, 4 * i):
            continue
        w, h = boxes[4 * i + 2] * _HALF, boxes[4 * i + 3] * _HALF
        best, chosen = -_ONE, 0
        for anchor in range(known):
            x, y = priors[2 * anchor], priors[2 * anchor + 1]
            near = _overlap(-w, -h, w, h, -x, -y, x, y)
            if near > best:
                best, chosen = near, anchor
        if masked[chosen] < 0:
            continue
        matches[i] = masked[chosen]
        column, row = boxes[4 * i] * _F(width), boxes[4 * i + 1] * _F(height)
        if not (abs(column) < _FAR and abs(row) < _FAR):
            return 1
        across, down = np.int64(column), np.int64(row)
        if across < -width or across >= width or down < -height or down >= height:
            return 1
        if labels[i] < -classes or labels[i] >= classes:
            return 1
    return 0


@kernel
def _near(
    images: Count, objects: Count, anchors: Count, classes: Count, height: Count, width: Count,
    step: Count, pixel: Count, x: Floats, boxes: Floats, shapes: Floats, scale: Number,
    shift: Number, limit: Number, ends: Floats, mask: Floats,
) -> int:  # fmt: skip
    """-1 where a predicted box overlaps an object by more than the limit, 0 elsewhere.

    Further arguments: sizes of anchors relative to the image; factor and shift of positions in a
    cell; the limit; memory for four numbers of every object; the result.
    """
    rows, cells = _F(height), height * width
    for image in range(images):
        found = 0
        for i in range(image * objects, (image + 1) * objects):
            if _is_object(boxes, 4 * i):
                w, h = boxes[4 * i + 2] * _HALF, boxes[4 * i + 3] * _HALF
                ends[found], ends[objects + found] = boxes[4 * i] - w, boxes[4 * i + 1] - h
                ends[2 * objects + found] = boxes[4 * i] + w
                ends[3 * objects + found] = boxes[4 * i + 1] + h
                found += 1
        for anchor in range(anchors):
            first = image * anchors + anchor
            for cell in range(cells):
                at = first * (5 + classes) * step + cell * pixel
                if step == 1:  # channels last: a cell has the channels of all anchors
                    at = (image * cells + cell) * pixel + anchor * (5 + classes)
                across = (sigmoid(x[at]) * scale - shift + _F(cell % width)) / rows
                down = (sigmoid(x[at + step]) * scale - shift + _F(cell // width)) / rows
                w = exp(x[at + 2 * step]) * shapes[2 * anchor] * _HALF
                h = exp(x[at + 3 * step]) * shapes[2 * anchor + 1] * _HALF
                left, top, right, bottom = across - w, down - h, across + w, down + h
                hits = 1 if limit < _ZERO else 0
                for i in range(found):
                    shared = _overlap(
                        left, top, right, bottom, ends[i], ends[objects + i], ends[2 * objects + i],
                        ends[3 * objects + i],
                    )  # fmt: skip
                    hits += 1 if shared > limit else 0
                mask[first * cells + cell] = -_ONE if hits else _ZERO
    return 0


@inline
def _cell_of(boxes: Any, i: int, height: int, width: int) -> Any:
    """The number of the cell with the centre of an object."""
    row, column = boxes[4 * i + 1] * _F(height), boxes[4 * i] * _F(width)
    return _inside(row, height) * width + _inside(column, width)


@inline
def _first(image: int, anchor: int, cell: int, sizes: Any, step: int, pixel: int) -> Any:
    """Where the channels of an anchor in a cell begin."""
    anchors, channels, cells = sizes
    if step == 1:
        return (image * cells + cell) * pixel + anchor * channels
    return (image * anchors + anchor) * channels * step + cell * pixel


@inline
def _within(boxes: Any, i: int, size: int, height: int, width: int) -> Any:
    """The position of an object in its cell; like Paddle, it treats the image as square."""
    whole = _F(np.int64(boxes[4 * i + size] * _F(height if size else width)))
    return boxes[4 * i + size] * _F(height) - whole


@kernel
def _loss(
    images: Count, objects: Count, anchors: Count, classes: Count, height: Count, width: Count,
    step: Count, pixel: Count, x: Floats, boxes: Floats, labels: Words, scored: Count,
    scores: Floats, matches: Words, sizes: Floats, off: Number, on: Number, mask: Floats,
    out: Floats,
) -> int:  # fmt: skip
    """The losses of images; writes the scores of objects into the mask.

    Further arguments: pixels of the image divided by the sizes of the anchors; what classes should
    be, a wrong one and the right one; the mask; losses.
    """
    cells, channels = height * width, 5 + classes
    grid = anchors, channels, cells
    for image in range(images):
        total = 0.0
        for i in range(image * objects, (image + 1) * objects):
            if matches[i] >= 0:
                at = (image * anchors + matches[i]) * cells + _cell_of(boxes, i, height, width)
                mask[at] = scores[i] if scored else _ONE
        for anchor in range(anchors):
            for cell in range(cells):
                sure = mask[(image * anchors + anchor) * cells + cell]
                z = x[_first(image, anchor, cell, grid, step, pixel) + 4 * step]
                if sure > _ZERO:
                    total += _cross_entropy(z, _ONE) * sure
                elif not sure < _ZERO:
                    total += _cross_entropy(z, _ZERO)
        for i in range(image * objects, (image + 1) * objects):
            anchor = matches[i]
            if anchor < 0:
                continue
            cell = _cell_of(boxes, i, height, width)
            at = _first(image, anchor, cell, grid, step, pixel)
            score = scores[i] if scored else _ONE
            weight = (_TWO - boxes[4 * i + 2] * boxes[4 * i + 3]) * score
            loss = _ZERO
            for k in range(2):
                loss += _cross_entropy(x[at + k * step], _within(boxes, i, k, height, width))
            for k in range(2):
                size = log(boxes[4 * i + 2 + k] * sizes[2 * anchor + k])
                loss += abs(x[at + (2 + k) * step] - size)
            chosen = labels[i] + classes if labels[i] < 0 else labels[i]
            guessed = _ZERO
            for k in range(classes):
                wanted = on if k == chosen else off
                guessed += _cross_entropy(x[at + (5 + k) * step], wanted)
            total += loss * weight + guessed * score
        out[image] = _F(total)
    return 0


@kernel
def _loss_grad(
    images: Count, objects: Count, anchors: Count, classes: Count, height: Count, width: Count,
    step: Count, pixel: Count, x: Floats, boxes: Floats, labels: Words, scored: Count,
    scores: Floats, matches: Words, sizes: Floats, off: Number, on: Number, mask: Floats,
    flow: Floats, dx: Floats,
) -> int:  # fmt: skip
    """The gradient of the grid. Arguments: as for the losses, whose gradient is the last but one.

    Objects in one cell add up.
    """
    cells, channels = height * width, 5 + classes
    grid = anchors, channels, cells
    for i in range(images * anchors * channels * cells):
        dx[i] = _ZERO
    for image in range(images):
        share = flow[image]
        for anchor in range(anchors):
            for cell in range(cells):
                sure = mask[(image * anchors + anchor) * cells + cell]
                at = _first(image, anchor, cell, grid, step, pixel) + 4 * step
                if sure > _ZERO:
                    dx[at] = (sigmoid(x[at]) - _ONE) * sure * share
                elif not sure < _ZERO:
                    dx[at] = sigmoid(x[at]) * share
        for i in range(image * objects, (image + 1) * objects):
            anchor = matches[i]
            if anchor < 0:
                continue
            cell = _cell_of(boxes, i, height, width)
            at = _first(image, anchor, cell, grid, step, pixel)
            score = scores[i] if scored else _ONE
            weight = (_TWO - boxes[4 * i + 2] * boxes[4 * i + 3]) * score
            for k in range(2):
                inside = _within(boxes, i, k, height, width)
                dx[at + k * step] += (sigmoid(x[at + k * step]) - inside) * weight * share
            for k in range(2):
                size = log(boxes[4 * i + 2 + k] * sizes[2 * anchor + k])
                way = weight if x[at + (2 + k) * step] > size else -weight
                dx[at + (2 + k) * step] += way * share
            chosen = labels[i] + classes if labels[i] < 0 else labels[i]
            for k in range(classes):
                wanted = on if k == chosen else off
                guessed = sigmoid(x[at + (5 + k) * step]) - wanted
                dx[at + (5 + k) * step] += guessed * score * share
    return 0


def _grid(x: Value, boxes: Value, mask: Sequence[int], class_num: int) -> list[Any]:
    """The first arguments of kernels: sizes, and how far apart channels and cells are."""
    height, width = x.shape[2:]
    last = x.channels_last or height * width == 1
    apart = (1, x.shape[1]) if last else (height * width, 1)
    return [x.shape[0], boxes.shape[1], len(mask), class_num, height, width, *apart]


def _objects(
    boxes: Value, labels: Value, scores: Value | None, matches: Value, given: np.ndarray[Any, Any],
    pixels: int, class_num: int, smooth: bool,
) -> list[Any]:  # fmt: skip
    """The arguments about objects; ``given`` are the sizes of the mask's anchors in pixels."""
    rest = smoothed(class_num, smooth)
    sizes = Constant((np.float32(pixels) / given).astype(np.float32))
    marks = [labels, int(scores is not None), scores or boxes, matches]
    return [boxes, *marks, sizes, float(rest), float(1 - rest)]


@lowering("yolov3_loss", layout="own")
def yolov3_loss(
    code: Code, x: Value, boxes: Value, labels: Value, scores: Value | None, loss: Value,
    mask: Value | None, matches: Value | None, *, class_num: int, anchors: Sequence[int],
    anchor_mask: Sequence[int], downsample_ratio: int, ignore_thresh: float,
    use_label_smooth: bool, scale_x_y: float,
) -> Any:  # fmt: skip
    """One pass over objects and anchors, one over cells and objects, one for the losses."""
    if not single(x, boxes, scores):
        return False
    boxes = code.laid(boxes, False)
    images, objects, own, classes, height, width, *apart = _grid(x, boxes, anchor_mask, class_num)
    shapes = np.array(anchors, np.float32).reshape(-1, 2)
    pixels = downsample_ratio * height
    known = np.full(len(shapes), -1, np.int32)
    known[list(anchor_mask)] = np.arange(own)
    mask = mask or code.scratch(images, own, height, width)
    matches = matches or code.scratch(images, objects, dtype=np.int32)
    sizes = images, objects, own, classes, height, width, *apart
    priors = Constant(shapes / np.float32(2 * pixels))
    code.emit(
        _match, images, objects, len(shapes), classes, height, width, boxes, labels, priors,
        Constant(known), matches,
    )  # fmt: skip
    mine = shapes[list(anchor_mask)]
    code.emit(
        _near, *sizes, x, boxes, Constant(mine / np.float32(pixels)), float(scale_x_y),
        0.5 * (scale_x_y - 1), float(ignore_thresh), code.scratch(4, objects), mask,
    )  # fmt: skip
    about = _objects(boxes, labels, scores, matches, mine, pixels, class_num, use_label_smooth)
    code.emit(_loss, *sizes, x, *about, mask, loss)


@lowering("yolov3_loss_grad", layout="own")
def yolov3_loss_grad(
    code: Code, x: Value, boxes: Value, labels: Value, scores: Value | None, d_loss: Value,
    mask: Value, matches: Value, dx: Value, *, class_num: int, anchors: Sequence[int],
    anchor_mask: Sequence[int], downsample_ratio: int, use_label_smooth: bool,
) -> Any:  # fmt: skip
    """One pass over the cells, one over the objects."""
    if not single(x, boxes, scores, d_loss):
        return False
    dx.channels_last = x.channels_last
    boxes, mask = code.laid(boxes, False), code.laid(mask, False)
    mine = np.array(anchors, np.float32).reshape(-1, 2)[list(anchor_mask)]
    pixels = downsample_ratio * x.shape[2]
    about = _objects(boxes, labels, scores, matches, mine, pixels, class_num, use_label_smooth)
    sizes = _grid(x, boxes, anchor_mask, class_num)
    code.emit(_loss_grad, *sizes, x, *about, mask, d_loss, dx)
