"""Losses of labels that are 0 or 1, and of classes."""

from __future__ import annotations

import numpy as np

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports


def _signs(c: Call, slot: str) -> Value:
    """Labels 0 and 1 as -1 and 1."""
    made: Value = c.g.Sub(c.g.Mul(c.number(2.0, slot), c[slot]), c.number(1.0, slot))
    return made


@exports("hinge_loss")
def hinge_loss(c: Call) -> None:
    """How much a logit lacks of 1 on the side of its label."""
    g = c.g
    way = g.Mul(_signs(c, "Labels"), c["Logits"])
    c.set("Loss", g.Relu(g.Sub(c.number(1.0, "Logits"), way)))


@exports("modified_huber_loss")
def modified_huber_loss(c: Call) -> None:
    """The square of what lacks of 1; a line far on the wrong side."""
    g = c.g
    margin = g.Mul(c["X"], _signs(c, "Y"))
    near = g.Relu(g.Sub(c.number(1.0), margin))
    far = g.Mul(c.number(-4.0), margin)
    c.set("IntermediateVal", margin)
    c.set("Out", g.Where(g.Less(margin, c.number(-1.0)), far, g.Mul(near, near)))


@exports("bce_loss")
def bce_loss(c: Call) -> None:
    """Logarithms of the probability and its opposite, not below -100."""
    g, one, label = c.g, c.number(1.0), c["Label"]
    yes, no = (g.Max(g.Log(each), c.number(-100.0)) for each in (c["X"], g.Sub(one, c["X"])))
    c.set("Out", g.Sub(g.Mul(g.Sub(label, one), no), g.Mul(label, yes)))


@exports("nll_loss")
def nll_loss(c: Call) -> None:
    """The weighted negative of the number at the label."""
    g, kind, weight = c.g, c.attr("reduction"), c.get("Weight")
    ignored = g.Equal(c["Label"], np.array(c.attr("ignore_index"), np.int64))
    label = g.Where(ignored, np.array(0, np.int64), c["Label"])
    chosen = g.GatherElements(c["X"], g.Unsqueeze(label, [1]), axis=1)
    weights = c.number(1.0) if weight is None else g.Gather(weight, label)
    weights = g.Where(ignored, c.number(0.0), weights)
    losses = g.Mul(g.Neg(g.Squeeze(chosen, [1])), weights)
    total = g.reduce("ReduceSum", weights, None)
    if kind == "none":
        c.set("Out", losses)
        c.set("Total_weight", c.number([0.0]))
        return
    loss = g.reduce("ReduceSum", losses, None)
    if kind == "mean":
        divisor = g.Where(g.Equal(total, c.number(0.0)), c.number(1.0), total)
        loss = g.Div(loss, divisor)
    c.set("Out", g.reshape(loss, 1))
    c.set("Total_weight", g.reshape(total, 1))


@exports("sigmoid_focal_loss")
def sigmoid_focal_loss(c: Call) -> None:
    """Two terms for every class, weighted by how wrong its probability is."""
    g, x, one = c.g, c["X"], np.array(1, np.int32)
    classes = g.Range(one, g.Add(g.cast(g.Squeeze(g.size(x, 1), [0]), np.int32), one), one)
    own = g.Equal(c["Label"], classes)
    counts = g.Not(g.Equal(c["Label"], np.array(-1, np.int32)))
    over = g.cast(g.Max(g.reshape(c["FgNum"], 1), one), c.dtype("X"))
    gamma, alpha = c.number(c.attr("gamma")), c.attr("alpha")
    p, rest = g.Sigmoid(x), g.Sigmoid(g.Neg(x))
    hit = g.Mul(g.Pow(rest, gamma), g.Softplus(g.Neg(x)))
    miss = g.Mul(g.Pow(p, gamma), g.Softplus(x))
    zero = c.number(0.0)
    yes = g.Where(own, g.Mul(c.number(alpha), hit), zero)
    no = g.Where(g.And(counts, g.Not(own)), g.Mul(c.number(1 - alpha), miss), zero)
    c.set("Out", g.Div(g.Add(yes, no), over))


@exports("teacher_student_sigmoid_loss")
def teacher_student_sigmoid_loss(c: Call) -> None:
    """The cross entropy of a click, and another one with the teacher's score, if there is one."""
    g, x, label = c.g, c["X"], c["Label"]
    zero, one = c.number(0.0), c.number(1.0)
    seen = g.Where(g.GreaterOrEqual(label, c.number(-1.0)), one, zero)
    scored = g.GreaterOrEqual(label, zero)
    clicked = g.GreaterOrEqual(label, one)
    click = g.Where(scored, g.Where(clicked, one, zero), seen)
    score = g.Where(clicked, g.Sub(label, one), label)

    def entropy(target: Value) -> Value:
        made: Value = g.Sub(g.Softplus(x), g.Mul(x, target))
        return made

    teacher = g.Where(scored, entropy(score), zero)
    c.set("Y", g.Add(entropy(click), teacher))
