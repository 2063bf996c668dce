"""Losses of numbers: distances between two tensors, and between distributions."""

from __future__ import annotations

import math

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need


def _near_or_far(c: Call, difference: Value, square: float) -> Value:
    """Half a square where a difference is small, else its size; ``square`` tells what is small."""
    g, size = c.g, c.g.Abs(difference)
    near = g.Min(size, c.number(1 / square))
    return g.Mul(g.Mul(near, g.Sub(size, g.Div(near, c.number(2.0)))), c.number(square))


@exports("smooth_l1_loss")
def smooth_l1_loss(c: Call) -> None:
    """Sums of what depends on whether a difference is small."""
    g, difference = c.g, c.g.Sub(c["X"], c["Y"])
    inside, outside = c.get("InsideWeight"), c.get("OutsideWeight")
    difference = difference if inside is None else g.Mul(difference, inside)
    terms = _near_or_far(c, difference, c.attr("sigma") ** 2)
    terms = terms if outside is None else g.Mul(terms, outside)
    c.set("Diff", difference)
    c.set("Out", g.reduce("ReduceSum", g.Flatten(terms), [1], True))


@exports("squared_l2_distance")
def squared_l2_distance(c: Call) -> None:
    """Sums of squares of differences."""
    g = c.g
    difference = g.Flatten(g.Sub(c["X"], c["Y"]))
    c.set("sub_result", difference)
    c.set("Out", g.reduce("ReduceSum", g.Mul(difference, difference), [1], True))


@exports("kldiv_loss")
def kldiv_loss(c: Call) -> None:
    """``target * (log(target) - x)``, 0 where the target is not positive."""
    g, target, kind = c.g, c["Target"], c.attr("reduction")
    without = g.LessOrEqual(target, c.number(0.0))
    logs = g.Log(g.Where(without, c.number(1.0), target))
    terms = g.Where(without, c.number(0.0), g.Mul(target, g.Sub(logs, c["X"])))
    if kind == "none":
        c.set("Loss", terms)
        return
    total = g.reshape(g.reduce("ReduceSum", terms, None), 1)
    counts = {"mean": g.Size(terms), "batchmean": g.size(terms, 0)}
    found = total if kind == "sum" else g.Div(total, g.cast(counts[kind], c.dtype("X")))
    c.set("Loss", found)


@exports("dist")
def dist(c: Call) -> None:
    """The norm of a difference, with its limits for 0 and the infinities."""
    g, order = c.g, c.attr("p")
    size = g.Abs(g.Sub(c["X"], c["Y"]))
    if order == 0:
        differs = g.Not(g.Equal(size, c.number(0.0)))
        made = g.reduce("ReduceSum", g.cast(differs, c.dtype("X")), None)
    elif math.isinf(order):
        made = g.reduce("ReduceMax" if order > 0 else "ReduceMin", size, None)
    else:
        total = g.reduce("ReduceSum", g.Pow(size, c.number(order)), None)
        made = g.Pow(total, c.number(1 / order))
    c.set("Out", g.reshape(made, 1))


@exports("allclose")
def allclose(c: Call) -> None:
    """Whether all differences are small beside the second tensor."""
    g, x, y = c.g, c["Input"], c["Other"]
    wide = [c.number(float(c.attr(name)), "Input") for name in ("atol", "rtol")]
    close = g.LessOrEqual(g.Abs(g.Sub(x, y)), g.Add(wide[0], g.Mul(wide[1], g.Abs(y))))
    close = g.Or(g.Equal(x, y), g.And(close, g.Not(g.IsInf(y))))
    if c.attr("equal_nan"):
        close = g.Or(close, g.And(g.IsNaN(x), g.IsNaN(y)))
    least = g.reduce("ReduceMin", g.cast(close, "int32"), None)
    c.set("Out", g.cast(g.reshape(least, 1), bool))


@exports("mean_iou", without="counts of earlier batches")
def mean_iou(c: Call) -> None:
    """Right and wrong elements of each class, and the mean of their shares."""
    g, classes = c.g, c.attr("num_classes")
    before = ("InWrongs", "InCorrects", "InMeanIou")
    need(not any(c.all(slot) for slot in before), "it adds to the counts of earlier batches")
    every = g.constant([[number] for number in range(classes)])
    found, wanted = (
        g.cast(g.reshape(c[slot], 1, -1), "int64") for slot in ("Predictions", "Labels")
    )
    right = g.Equal(found, wanted)
    hits = [g.Equal(x, every) for x in (found, wanted)]
    correct = _counted(c, g.And(hits[1], right))
    wrong = g.Add(*(_counted(c, g.And(hit, g.Not(right))) for hit in hits))
    union = g.Add(correct, wrong)
    one = g.constant(1)
    share = g.Div(g.cast(correct, "float32"), g.cast(g.Max(union, one), "float32"))
    occurring = _counted(c, g.Unsqueeze(g.Greater(union, g.constant(0)), [0]))
    total = g.reduce("ReduceSum", share, None)
    mean = g.Div(total, g.cast(g.Max(occurring, one), "float32"))
    c.set("OutMeanIou", g.reshape(mean, 1))
    c.set("OutWrong", g.cast(wrong, "int32"))
    c.set("OutCorrect", g.cast(correct, "int32"))


def _counted(c: Call, truths: Value) -> Value:
    made: Value = c.g.reduce("ReduceSum", c.g.cast(truths, "int64"), [1])
    return made
