"""Regions that are proposed for a second look, and their levels in a pyramid of features."""

from __future__ import annotations

import math

import numpy as np

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need
from dpexec.onnx.exporting.sequences import Rows

_LOWEST = np.finfo(np.float32).min


def _moved(c: Call, anchors: Value, shifts: Value) -> Value:
    """Boxes that are as far and as much larger than the anchors as the shifts say."""
    g, one, half = c.g, c.number(1.0, "Anchors"), c.number(0.5, "Anchors")
    low, high = (g.Slice(anchors, [2 * k], [2 * k + 2], [-1]) for k in (0, 1))
    size = g.Add(g.Sub(high, low), one)
    way, growth = (g.Slice(shifts, [2 * k], [2 * k + 2], [-1]) for k in (0, 1))
    growth = g.Exp(g.Min(growth, c.number(math.log(1000.0 / 16.0), "Anchors")))
    centres = g.Add(g.Mul(way, size), g.Add(low, g.Mul(size, half)))
    halves = g.Mul(g.Mul(growth, size), half)
    made: Value = g.Concat(g.Sub(centres, halves), g.Sub(g.Add(centres, halves), one), axis=-1)
    return made


def _in_images(c: Call, boxes: Value) -> tuple[Value, Value]:
    """Boxes within their images, and whether they are large enough there."""
    g, one = c.g, c.number(1.0, "Anchors")
    sides = g.Slice(c["ImInfo"], [1], [-4], [1], [-1])  # width, height
    limit = g.Unsqueeze(g.Sub(g.Concat(sides, sides, axis=1), one), [1])
    boxes = g.Max(g.Min(boxes, limit), c.number(0.0, "Anchors"))
    low, high = (g.Slice(boxes, [2 * k], [2 * k + 2], [-1]) for k in (0, 1))
    way = g.Sub(high, low)
    scale = g.Unsqueeze(g.Slice(c["ImInfo"], [2], [3], [1]), [1])
    original = g.Add(g.Div(way, scale), one)
    large = g.GreaterOrEqual(original, c.number(max(c.attr("min_size"), 1.0), "Anchors"))
    centres = g.Add(low, g.Mul(g.Add(way, one), c.number(0.5, "Anchors")))
    inside = g.LessOrEqual(centres, g.Unsqueeze(sides, [1]))
    fits = g.cast(g.And(large, inside), np.int32)
    return boxes, g.cast(g.reduce("ReduceMin", fits, [2]), np.bool_)


@exports("generate_proposals", without="eta below 1, nms_thresh of 0")
def generate_proposals(c: Call) -> None:
    """``TopK``, arithmetic of boxes, and ``NonMaxSuppression`` of one class."""
    g = c.g
    need(c.attr("eta") >= 1, "its threshold changes (eta)")
    need(c.attr("nms_thresh") > 0, "it suppresses nothing")
    need(c.dtype("Scores") == np.float32, f"its scores are {c.dtype('Scores')}")
    scores = g.reshape(g.Transpose(c["Scores"], perm=[0, 2, 3, 1]), 0, -1)
    shifts = g.Transpose(c["BboxDeltas"], perm=[0, 2, 3, 1])
    shape = g.Concat(g.size(scores, 0), g.ints(-1, 4), axis=0)
    shifts = g.Mul(g.Reshape(shifts, shape), g.reshape(c["Variances"], -1, 4))
    boxes, fits = _in_images(c, _moved(c, g.reshape(c["Anchors"], -1, 4), shifts))
    count, limit = g.size(scores, 1), c.attr("pre_nms_topN")
    count = g.Min(count, g.ints(limit)) if limit > 0 else count
    values, order = g.TopK(scores, count, axis=1, outputs=2)
    index = g.Unsqueeze(order, [2])
    boxes = g.GatherND(boxes, index, batch_dims=1)
    fits = g.GatherND(fits, index, batch_dims=1)
    marks = g.Where(fits, values, c.number(-np.inf, "Scores"))
    most = c.attr("post_nms_topN")
    selected = g.NonMaxSuppression(
        g.Add(boxes, c.number([0.0, 0.0, 1.0, 1.0], "Anchors")), g.Unsqueeze(marks, [1]),
        np.array(most if most > 0 else np.iinfo(np.int32).max, np.int64),
        np.array([c.attr("nms_thresh")], np.float32), np.array([_LOWEST], np.float32),
    )  # fmt: skip
    image, box = (g.Slice(selected, [k], [k + 1], [1]) for k in (0, 2))
    place = g.Concat(image, box, axis=1)
    images = g.Range(
        np.array(0, np.int64), g.Squeeze(g.size(scores, 0), [0]), np.array(1, np.int64)
    )
    lengths = g.reduce("ReduceSum", g.cast(g.Equal(image, images), np.int64), [0])
    c.set("RpnRois", g.GatherND(boxes, place), lengths=[lengths])
    c.set("RpnRoiProbs", g.Unsqueeze(g.GatherND(values, place), [1]), lengths=[lengths])
    ends = g.CumSum(lengths, np.array(0, np.int64))
    c.set("RpnRoisLod", c.typed(ends, np.int64, np.int64), lengths=())


@exports("distribute_fpn_proposals")
def distribute_fpn_proposals(c: Call) -> None:
    """Rows of each level, by the sizes of the boxes."""
    g, boxes = c.g, c["FpnRois"]
    low, high = (g.Slice(boxes, [2 * k], [2 * k + 2], [1]) for k in (0, 1))
    valid = g.cast(g.GreaterOrEqual(high, low), np.int32)
    valid = g.cast(g.reduce("ReduceMin", valid, [1]), np.bool_)
    size = g.Add(g.Sub(high, low), c.number(1.0, "FpnRois"))
    area = g.Where(valid, g.reduce("ReduceProd", size, [1]), c.number(0.0, "FpnRois"))
    scale = g.Div(g.Sqrt(area), c.number(c.attr("refer_scale"), "FpnRois"))
    power = g.Div(
        g.Log(g.Add(scale, c.number(1e-6, "FpnRois"))), c.number(math.log(2.0), "FpnRois")
    )
    first, last = c.attr("min_level"), c.attr("max_level")
    level = g.Floor(g.Add(power, c.number(c.attr("refer_level"), "FpnRois")))
    level = g.Clip(level, c.number(first, "FpnRois"), c.number(last, "FpnRois"))
    rows, values, indices, all_lengths = Rows(g, c.sequences("FpnRois")), [], [], []
    for number in range(first, last + 1):
        own = g.Equal(level, c.number(number, "FpnRois"))
        index = g.reshape(g.NonZero(own), -1)
        counts = rows.padded(g.cast(own, np.int64), 1, g.constant(np.array(0, np.int64)))
        all_lengths.append(g.reduce("ReduceSum", counts, [1]))
        values.append(g.Gather(boxes, index))
        indices.append(index)
    whole = g.Concat(*indices, axis=0) if len(indices) > 1 else indices[0]
    _, restore = g.TopK(whole, g.Shape(whole), axis=0, largest=0, outputs=2)
    c.set_each("MultiFpnRois", values, [[found] for found in all_lengths])
    c.set("RestoreIndex", g.cast(g.Unsqueeze(restore, [1]), np.int32), lengths=())


@exports("collect_fpn_proposals")
def collect_fpn_proposals(c: Call) -> None:
    """The best boxes of all levels, image by image."""
    g, names = c.g, c.op.inputs["MultiLevelRois"]
    lengths = [c.values.lengths(name) for name in names]
    need(all(lengths), "an input has no sequences")
    images = g.Concat(*(Rows(g, each[-1]).owners for each in lengths), axis=0)
    scores = g.Concat(*(g.reshape(each, -1) for each in c.all("MultiLevelScores")), axis=0)
    boxes = g.Concat(*c.all("MultiLevelRois"), axis=0)
    count = g.Min(g.Shape(scores), g.ints(c.attr("post_nms_topN")))
    _, best = g.TopK(scores, count, axis=0, outputs=2)
    owners = g.Gather(images, best)
    ranks = g.Range(np.array(0, np.int64), g.Squeeze(count, [0]), np.array(1, np.int64))
    _, order = g.TopK(g.Add(g.Mul(owners, count), ranks), count, axis=0, largest=0, outputs=2)
    number = g.Squeeze(g.Shape(lengths[0][-1]), [0])
    all_images = g.Range(np.array(0, np.int64), number, np.array(1, np.int64))
    hits = g.Equal(g.Unsqueeze(owners, [1]), all_images)
    made = g.reduce("ReduceSum", g.cast(hits, np.int64), [0])
    c.set("FpnRois", g.Gather(boxes, g.Gather(best, order)), lengths=[made])
