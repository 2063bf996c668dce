"""Detection heads: prior boxes, codes of boxes, grids of boxes, overlaps, suppression."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpexec.onnx.exporting.builder import Builder, Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.control_flow import branches
from dpexec.onnx.exporting.refusals import need
from dpexec.onnx.exporting.sequences import Rows


@exports("prior_box", "density_prior_box", "anchor_generator", without="open sizes")
def prior_boxes(c: Call) -> None:
    """Constants of the model: the boxes depend on the sizes of images alone."""
    slots = [slot.name for slot in c.op.definition.inputs]
    shapes = [(1, *c.shape(slot)[1:]) for slot in slots]
    need(all(min(s) > 0 for s in shapes), "the sizes of its images are open: " + str(shapes))
    inputs = [np.zeros(s, c.dtype(slots[0])) for s in shapes]
    made = c.op.definition(np, *inputs, **c.op.definition.kernel_attrs(c.op.attrs))
    for slot, array in zip(c.op.definition.outputs, made, strict=True):
        c.set(slot.name, c.g.constant(array), lengths=())


def _sides(c: Call, boxes: Value, extra: float, slot: str) -> tuple[Value, Value]:
    """Left tops and widths and heights of boxes, ``(..., 2)`` each."""
    g = c.g
    low, high = (g.Slice(boxes, [2 * k], [2 * k + 2], [-1]) for k in (0, 1))
    size = g.Sub(high, low)
    return low, g.Add(size, c.number(extra, slot)) if extra else size


@exports("box_coder")
def box_coder(c: Call) -> None:
    """Arithmetic of centres and sizes."""
    g, extra = c.g, 0.0 if c.attr("box_normalized") else 1.0
    low, sizes = _sides(c, c["PriorBox"], extra, "PriorBox")
    half = c.number(0.5, "PriorBox")
    middles = g.Add(low, g.Mul(sizes, half))
    factors = c.get("PriorBoxVar")
    if factors is None and c.attr("variance"):
        factors = c.number(c.attr("variance"), "PriorBox")
    if c.attr("code_type") == "encode_center_size":
        target = c["TargetBox"]
        _, target_sizes = _sides(c, target, extra, "PriorBox")
        begin, end = (g.Slice(target, [2 * k], [2 * k + 2], [1]) for k in (0, 1))
        centres = g.Unsqueeze(g.Mul(g.Add(begin, end), half), [1])
        ways = g.Div(g.Sub(centres, middles), sizes)
        ratios = g.Log(g.Abs(g.Div(g.Unsqueeze(target_sizes, [1]), sizes)))
        code = g.Concat(ways, ratios, axis=-1)
        c.set("OutputBox", code if factors is None else g.Div(code, factors))
        return
    if c.attr("axis") == 1:
        sizes, middles = g.Unsqueeze(sizes, [1]), g.Unsqueeze(middles, [1])
        if c.get("PriorBoxVar") is not None:
            factors = g.Unsqueeze(factors, [1])
    scaled = c["TargetBox"] if factors is None else g.Mul(c["TargetBox"], factors)
    ways, ratios = (g.Slice(scaled, [2 * k], [2 * k + 2], [-1]) for k in (0, 1))
    found = g.Add(g.Mul(ways, sizes), middles)
    halves = g.Mul(g.Mul(g.Exp(ratios), sizes), half)
    high = g.Add(found, halves)
    high = g.Sub(high, c.number(extra, "PriorBox")) if extra else high
    c.set("OutputBox", g.Concat(g.Sub(found, halves), high, axis=-1))


@exports("yolo_box", without="open sizes")
def yolo_box(c: Call) -> None:
    """Arithmetic of the grid."""
    g, (rows, columns), classes = c.g, c.shape("X")[2:], c.attr("class_num")
    need(min(rows, columns) > 0, f"the size of its grid is open: {c.spec('X')}")
    anchors = np.array(c.attr("anchors"), float).reshape(1, -1, 2, 1, 1)
    count = anchors.shape[1]
    grid = g.reshape(c["X"], -1, count, 5 + classes, rows, columns)
    ways, ratios, sure, scores = g.Split(grid, [2, 2, 1, classes], axis=2, outputs=4)
    scale = c.attr("scale_x_y")
    scale = 1.0 if scale is None else scale
    moved = g.Sub(g.Mul(g.Sigmoid(ways), c.number(scale)), c.number(0.5 * (scale - 1)))
    cells = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)))
    middles = g.Div(g.Add(moved, c.number(cells)), c.number(rows))
    shapes = g.Mul(g.Exp(ratios), c.number(anchors / (c.attr("downsample_ratio") * rows)))
    sizes = g.cast(g.Slice(c["ImgSize"], [1], [-3], [1], [-1]), c.dtype("X"))
    pixels = g.Unsqueeze(sizes, [1, 3, 4])
    middles = g.Mul(middles, pixels)
    halves = g.Mul(g.Mul(shapes, pixels), c.number(0.5))
    low, high = g.Sub(middles, halves), g.Add(middles, halves)
    if c.attr("clip_bbox") in (None, True):
        low = g.Max(low, c.number(0.0))
        high = g.Min(high, g.Sub(pixels, c.number(1.0)))
    sure = g.Sigmoid(sure)
    sure = g.Where(g.Less(sure, c.number(c.attr("conf_thresh"))), c.number(0.0), sure)
    there = g.cast(g.Greater(sure, c.number(0.0)), c.dtype("X"))
    boxes = g.Mul(g.Concat(low, high, axis=2), there)
    for slot, value, width in (
        ("Boxes", boxes, 4),
        ("Scores", g.Mul(g.Sigmoid(scores), sure), classes),
    ):
        turned = g.Transpose(value, perm=[0, 1, 3, 4, 2])
        c.set(slot, g.reshape(turned, -1, count * rows * columns, width))


@exports("iou_similarity")
def iou_similarity(c: Call) -> None:
    """Shared area by covered area of all pairs."""
    g, extra = c.g, 0.0 if c.attr("box_normalized") in (None, True) else 1.0
    one, other = g.Unsqueeze(c["X"], [1]), g.Unsqueeze(c["Y"], [0])
    corners = [g.Split(each, [2, 2], axis=2, outputs=2) for each in (one, other)]
    low = g.Max(corners[0][0], corners[1][0])
    high = g.Min(corners[0][1], corners[1][1])
    plus = c.number(extra)
    shared = g.reduce("ReduceProd", g.Max(g.Add(g.Sub(high, low), plus), c.number(0.0)), [2])
    areas = [g.reduce("ReduceProd", g.Add(g.Sub(end, begin), plus), [2]) for begin, end in corners]
    covered = g.Sub(g.Add(areas[0], areas[1]), shared)
    some = g.Greater(shared, c.number(0.0))
    c.set("Out", g.Where(some, g.Div(shared, covered), c.number(0.0)))


@exports("box_clip")
def box_clip(c: Call) -> None:
    """``Min`` and ``Max`` with the sizes of the images."""
    g, rank = c.g, c.rank("Input")
    info = c["ImInfo"]
    size = g.Slice(info, [1], [-4], [1], [-1])
    size = g.Div(size, g.Slice(info, [2], [3], [1]))
    limit = g.Sub(g.Floor(g.Add(size, c.number(0.5, "ImInfo"))), c.number(1.0, "ImInfo"))
    limit = g.Gather(g.Concat(limit, limit, axis=1), Rows(g, c.sequences("Input")).owners)
    limit = g.Unsqueeze(limit, list(range(1, rank - 1))) if rank > 2 else limit
    c.set("Output", g.Min(g.Max(c["Input"], c.number(0.0, "Input")), limit))


@exports(
    "multiclass_nms", "multiclass_nms2",
    without="polygons, boxes of their own for each class, nms_eta below 1",
)  # fmt: skip
def multiclass_nms(c: Call) -> None:
    """``NonMaxSuppression``, then the best of all classes, class by class."""
    g = c.g
    need(c.rank("Scores") == 3 and c.shape("BBoxes")[2] == 4, "its boxes belong to classes")
    need(c.attr("nms_eta") in (None, 1.0), "its threshold changes (nms_eta)")
    need(c.attr("nms_top_k") and c.attr("keep_top_k"), "it keeps no boxes")
    need(c.dtype("Scores") == np.float32, f"its scores are {c.dtype('Scores')}")
    selected = _suppressed(c)
    values, keys, shape = _best(c, selected)
    boxes = g.Squeeze(g.Slice(shape, [2], [3]), [0])
    found = g.Greater(values, c.number(-np.inf, "Scores"))
    index = g.NonZero(found)
    image = g.Squeeze(g.Slice(index, [0], [1], [0]), [0])
    flat = g.GatherND(keys, g.Transpose(index, perm=[1, 0]))
    divisor = g.Max(boxes, np.array(1, np.int64))
    label, box = g.Div(flat, divisor), g.Mod(flat, divisor)
    score = g.GatherND(values, g.Transpose(index, perm=[1, 0]))
    place = g.Concat(g.Unsqueeze(image, [1]), g.Unsqueeze(box, [1]), axis=1)
    columns = [
        g.Unsqueeze(g.cast(label, c.dtype("Scores")), [1]), g.Unsqueeze(score, [1]),
        g.GatherND(c["BBoxes"], place),
    ]  # fmt: skip
    rows = g.Concat(*columns, axis=1)
    lengths = g.reduce("ReduceSum", g.cast(found, np.int64), [1])
    if c.op.type == "multiclass_nms2":
        number = g.Add(g.Mul(image, boxes), box)
        c.set("Index", g.cast(g.Unsqueeze(number, [1]), c.dtype("Index")), lengths=[lengths])
        c.set("Out", rows, lengths=[lengths])
        return
    variable = c.op.block._var_recursive(c.name("Out"))
    none = g.Equal(g.reduce("ReduceSum", lengths, None), np.array(0, np.int64))

    def nothing(inner: Builder) -> list[list[Value]]:
        row = inner.constant(np.full((1, 1), -1, c.dtype("Scores")))
        return [[row, inner.ints(1)]]

    made = branches(c, none, [variable], [nothing, lambda _: [[rows, lengths]]])
    c.set("Out", made[0][0], lengths=made[0][1:])


def _suppressed(c: Call) -> Value:
    """Image, class and box of all boxes that no better one of the class covers."""
    g, scores, boxes = c.g, c["Scores"], c["BBoxes"]
    lowest = c.number(np.finfo(np.float32).min, "Scores")
    if c.attr("nms_top_k") > 0:
        size = g.Min(g.size(scores, 2), g.ints(c.attr("nms_top_k")))
        best, _ = g.TopK(scores, size, axis=2, outputs=2)
        least = g.reduce("ReduceMin", best, [2], True)
        scores = g.Where(g.Less(scores, least), lowest, scores)
    classes, background = c.shape("Scores")[1], c.attr("background_label")
    if background >= 0:
        need(classes > 0, "its number of classes is open")
        is_background = (np.arange(classes) == background)[:, None]
        scores = g.Where(is_background, lowest, scores)
    if not c.attr("normalized"):  # the last pixel belongs to a box
        boxes = g.Add(boxes, c.number([0.0, 0.0, 1.0, 1.0], "BBoxes"))
    made: Value = g.NonMaxSuppression(
        boxes, scores, np.array(np.iinfo(np.int32).max, np.int64),
        np.array([c.attr("nms_threshold")], np.float32),
        np.array([c.attr("score_threshold")], np.float32),
    )  # fmt: skip
    return made


def _best(c: Call, selected: Value) -> tuple[Value, Value, Value]:
    """For each image the best boxes of all classes, in the order of classes.

    Returns:
        Scores ``(images, boxes)``, -inf where there is none; numbers ``class * boxes + box``; the
        shape of the input's scores.
    """
    g, shape = c.g, c.g.Shape(c["Scores"])
    values = g.GatherND(c["Scores"], selected)
    empty = g.Expand(c.number(-np.inf, "Scores"), shape)
    dense = g.reshape(g.ScatterND(empty, selected, values), 0, -1)
    count, limit = g.size(dense, 1), c.attr("keep_top_k")
    count = count if limit < 0 else g.Min(count, g.ints(limit))
    scores, places = g.TopK(dense, count, axis=1, outputs=2)
    # In order of classes, then of scores: a number for each that sorts like this.
    boxes = g.size(c["Scores"], 2)
    rank = g.Add(
        g.Mul(g.Div(places, g.Max(boxes, g.ints(1))), count),
        g.Range(np.array(0, np.int64), g.Squeeze(count, [0]), np.array(1, np.int64)),
    )
    _, order = g.TopK(rank, count, axis=1, largest=0, outputs=2)
    return g.GatherElements(scores, order, axis=1), g.GatherElements(places, order, axis=1), shape


@exports("polygon_box_transform")
def polygon_box_transform(c: Call) -> None:
    """Four times the place of the cell less the input, across and down in turn."""
    size: Sequence[int] = c.shape("Input")
    need(min(size[1:]) > 0, f"the size of its maps is open: {c.spec('Input')}")
    down, across = np.meshgrid(np.arange(size[2]), np.arange(size[3]), indexing="ij")
    cells = np.stack([4 * (across if k % 2 == 0 else down) for k in range(size[1])])
    c.set("Output", c.g.Sub(c.number(cells, "Input"), c["Input"]))
