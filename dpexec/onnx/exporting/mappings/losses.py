"""Losses and similarities that models for prediction hold, too."""

from __future__ import annotations

import numpy as np

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need


def _chosen(c: Call, x: Value, label: Value, axis: int) -> tuple[Value, Value]:
    """The number of each row at its label, and which labels are ignored; labels keep ``axis``."""
    g = c.g
    ids = c.typed(label, c.dtype("Label"), np.int64)
    ignored = g.Equal(ids, np.array(c.attr("ignore_index"), np.int64))
    found = g.GatherElements(x, g.Where(ignored, np.array(0, np.int64), ids), axis=axis)
    return found, ignored


@exports("cross_entropy", "cross_entropy2")
def cross_entropy(c: Call) -> None:
    """Minus the logarithm of the probability of the label."""
    g = c.g
    if c.attr("soft_label"):
        logs = g.Mul(c["Label"], g.Log(c["X"]))
        c.set("Y", g.Neg(g.reduce("ReduceSum", logs, [-1], True)))
        return
    plain = c.rank("Label") < c.rank("X")
    label = g.Unsqueeze(c["Label"], [-1]) if plain else c["Label"]
    found, ignored = _chosen(c, c["X"], label, -1)
    least = g.Min(g.Neg(g.Log(found)), c.number(1e20))  # where fluid's logarithm ends
    loss = g.Where(ignored, c.number(0.0), least)
    c.set("Y", g.Squeeze(loss, [-1]) if plain else loss)


@exports("softmax_with_cross_entropy")
def softmax_with_cross_entropy(c: Call) -> None:
    """``Softmax`` and ``LogSoftmax``, of which labels choose."""
    g, axis = c.g, c.attr("axis")
    axis = -1 if axis is None else axis
    logs = g.LogSoftmax(c["Logits"], axis=axis)
    if c.attr("soft_label"):
        loss = g.Neg(g.reduce("ReduceSum", g.Mul(c["Label"], logs), [axis], True))
    else:
        found, ignored = _chosen(c, logs, c["Label"], axis)
        found = g.Max(found, c.number(-64.0, "Logits"))  # where fluid's logarithm ends
        loss = g.Where(ignored, c.number(0.0, "Logits"), g.Neg(found))
    c.set("Softmax", g.Softmax(c["Logits"], axis=axis))
    c.set("Loss", loss)


@exports("sigmoid_cross_entropy_with_logits", without="normalize")
def sigmoid_cross_entropy(c: Call) -> None:
    """``Softplus`` of minus the size, and what is above 0 less the labelled part."""
    g, x, label = c.g, c["X"], c["Label"]
    need(not c.attr("normalize"), "it normalizes")
    loss = g.Sub(g.Max(x, c.number(0.0)), g.Mul(x, label))
    loss = g.Add(loss, g.Softplus(g.Neg(g.Abs(x))))
    ignored = g.Equal(label, c.number(c.attr("ignore_index")))
    c.set("Out", g.Where(ignored, c.number(0.0), loss))


@exports("log_loss")
def log_loss(c: Call) -> None:
    """Minus the logarithm of the probability of the label, with a summand in it."""
    g, tiny = c.g, c.number(c.attr("epsilon"), "Predicted")
    one, chance, label = c.number(1.0, "Predicted"), c["Predicted"], c["Labels"]
    yes = g.Mul(label, g.Log(g.Add(chance, tiny)))
    no = g.Mul(g.Sub(one, label), g.Log(g.Add(g.Sub(one, chance), tiny)))
    c.set("Loss", g.Neg(g.Add(yes, no)))


@exports("rank_loss")
def rank_loss(c: Call) -> None:
    """``Softplus`` of the difference, less the labelled part."""
    g = c.g
    ranks = {c.rank(slot) for slot in ("Label", "Left", "Right")}
    sides = [c["Left"], c["Right"]]
    if len(ranks) > 1:  # some are columns
        sides = [g.Reshape(side, g.Shape(c["Label"])) for side in sides]
    way = g.Sub(*sides)
    c.set("Out", g.Sub(g.Softplus(way), g.Mul(c["Label"], way)))


@exports("margin_rank_loss")
def margin_rank_loss(c: Call) -> None:
    """How much the difference lacks of the margin."""
    g = c.g
    way = g.Mul(g.Neg(c["Label"]), g.Sub(c["X1"], c["X2"]))
    c.set("Out", g.Relu(g.Add(way, c.number(c.attr("margin"), "X1"))))


@exports("bpr_loss")
def bpr_loss(c: Call) -> None:
    """The mean over the other items of ``Softplus`` of what they are ahead."""
    g, classes = c.g, c.shape("X")[-1]
    need(classes > 1, "its number of items is open")
    label = c.typed(c["Label"], c.dtype("Label"), np.int64)
    plain = c.rank("Label") < c.rank("X")
    ids = g.Unsqueeze(label, [-1]) if plain else label
    terms = g.Softplus(g.Sub(c["X"], g.GatherElements(c["X"], ids, axis=-1)))
    other = g.Not(g.Equal(ids, np.arange(classes)))
    total = g.reduce("ReduceSum", g.Where(other, terms, c.number(0.0)), [-1], not plain)
    c.set("Y", g.Div(total, c.number(classes - 1)))


@exports("cos_sim")
def cos_sim(c: Call) -> None:
    """Products of rows by their lengths."""
    g, smallest = c.g, c.number(1e-8)
    x, y = g.Flatten(c["X"]), g.Flatten(c["Y"])
    squares = [g.reduce("ReduceSum", g.Mul(v, v), [1], True) for v in (x, y)]
    lengths = [g.Sqrt(g.Max(square, smallest)) for square in squares]
    product = g.reduce("ReduceSum", g.Mul(x, y), [1], True)
    c.set("Out", g.Div(product, g.Mul(*lengths)))


@exports("dot")
def dot(c: Call) -> None:
    """Products of rows."""
    c.set("Out", c.g.reduce("ReduceSum", c.g.Mul(c["X"], c["Y"]), [-1], True))


@exports("label_smooth")
def label_smooth(c: Call) -> None:
    """A part of the labels, and a part of a distribution."""
    g, part, prior = c.g, c.attr("epsilon"), c.get("PriorDist")
    need(c.shape("X")[-1] > 0 or prior is not None, "its number of classes is open")
    if prior is None:
        rest = c.number(part / c.shape("X")[-1])
    else:
        rest = g.Mul(g.reshape(prior, -1), c.number(part))
    c.set("Out", g.Add(g.Mul(c["X"], c.number(1 - part)), rest))


@exports("accuracy")
def accuracy(c: Call) -> None:
    """The share of rows whose label is among the indices."""
    g = c.g
    label = c.typed(c["Label"], c.dtype("Label"), np.int64)
    hits = g.cast(g.Equal(c.typed(c["Indices"], c.dtype("Indices"), np.int64), label), np.int32)
    rows = g.reduce("ReduceMax", hits, [1])
    correct = g.reshape(g.reduce("ReduceSum", rows, None), 1)
    total = g.cast(g.size(c["Indices"], 0), np.int32)
    share = g.Div(g.cast(correct, c.dtype("Accuracy")), g.cast(total, c.dtype("Accuracy")))
    c.set("Accuracy", share)
    c.set("Correct", correct)
    c.set("Total", total)


@exports("bilinear_tensor_product")
def bilinear_tensor_product(c: Call) -> None:
    """``x @ weight[k] @ y`` for each k."""
    g = c.g
    left = g.MatMul(g.Unsqueeze(c["X"], [0]), c["Weight"])
    made = g.reduce("ReduceSum", g.Mul(left, g.Unsqueeze(c["Y"], [0])), [2])
    made = g.Transpose(made, perm=[1, 0])
    c.set("Out", made if c.get("Bias") is None else g.Add(made, c["Bias"]))


@exports("huber_loss")
def huber_loss(c: Call) -> None:
    """Half the square of a small residual, else a line."""
    g, limit = c.g, c.attr("delta")
    residual = g.Sub(c["Y"], c["X"])
    size = g.Abs(residual)
    square = g.Mul(c.number(0.5), g.Mul(residual, residual))
    line = g.Mul(c.number(limit), g.Sub(size, c.number(0.5 * limit)))
    c.set("Residual", residual)
    c.set("Out", g.Where(g.LessOrEqual(size, c.number(limit)), square, line))


@exports("fsp")
def fsp(c: Call) -> None:
    """Products of channels, averaged over positions."""
    g = c.g
    x, y = (g.reshape(c[slot], 0, 0, -1) for slot in ("X", "Y"))
    made = g.MatMul(x, g.Transpose(y, perm=[0, 2, 1]))
    c.set("Out", g.Div(made, g.cast(g.size(x, 2), c.dtype("X"))))


@exports("cvm", without="shows and clicks that are kept")
def cvm(c: Call) -> None:
    """Without the first two columns."""
    need(not c.attr("use_cvm"), "it keeps shows and clicks")
    c.set("Y", c.g.Slice(c["X"], [2], [np.iinfo(np.int64).max], [1]))
