"""Activations with parameters."""

from __future__ import annotations

import math

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need


def activated(c: Call, kind: str, x: Value, slot: str = "X", alpha: float = 0.0) -> Value:
    """A value after the activation that an operator has as an attribute.

    Args:
        c: the operator.
        kind: name of the activation; "", "identity" and "linear" for none.
        x: the value.
        slot: an input or output of the operator with the value's element type.
        alpha: parameter of the activation.
    """
    g = c.g
    simple = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}
    if kind in ("", "identity", "linear", None):
        return x
    if kind in simple:
        made: Value = g.node(simple[kind], x)
        return made
    if kind == "relu6":
        return clipped(c, x, 0.0, alpha or 6.0, slot)
    if kind == "elu":
        made = g.Elu(x, alpha=alpha)
        return made
    if kind == "leaky_relu":
        return leaky(c, x, alpha, slot)
    if kind == "swish":
        made = g.Mul(x, g.Sigmoid(g.Mul(x, c.number(alpha, slot))))
        return made
    need(False, f"its activation {kind} is unknown")
    return x


def clipped(c: Call, x: Value, low: float, high: float, slot: str = "X") -> Value:
    """A value between two numbers."""
    made: Value = c.g.Clip(x, c.number(low, slot), c.number(high, slot))
    return made


def leaky(c: Call, x: Value, alpha: float, slot: str = "X") -> Value:
    """The greater one of a value and ``alpha`` times it, as fused operators of Paddle have it."""
    made: Value = c.g.Max(x, c.g.Mul(x, c.number(alpha, slot)))
    return made


@exports("leaky_relu")
def leaky_relu(c: Call) -> None:
    """``LeakyRelu``."""
    c.set("Out", c.g.LeakyRelu(c["X"], alpha=c.attr("alpha")))


@exports("elu")
def elu(c: Call) -> None:
    """``Elu``."""
    c.set("Out", c.g.Elu(c["X"], alpha=c.attr("alpha")))


@exports("selu")
def selu(c: Call) -> None:
    """``Selu``."""
    c.set("Out", c.g.Selu(c["X"], alpha=c.attr("alpha"), gamma=c.attr("scale")))


@exports("relu6")
def relu6(c: Call) -> None:
    """``Clip`` from 0."""
    c.set("Out", clipped(c, c["X"], 0.0, c.attr("threshold")))


@exports("brelu")
def brelu(c: Call) -> None:
    """``Clip``."""
    c.set("Out", clipped(c, c["X"], c.attr("t_min"), c.attr("t_max")))


@exports("hard_sigmoid")
def hard_sigmoid(c: Call) -> None:
    """``HardSigmoid``."""
    c.set("Out", c.g.HardSigmoid(c["X"], alpha=c.attr("slope"), beta=c.attr("offset")))


@exports("hard_swish")
def hard_swish(c: Call) -> None:
    """The input times a part of it that is clipped."""
    x = c["X"]
    gate = clipped(c, c.g.Add(x, c.number(c.attr("offset"))), 0.0, c.attr("threshold"))
    c.set("Out", c.g.Div(c.g.Mul(x, gate), c.number(c.attr("scale"))))


@exports("swish")
def swish(c: Call) -> None:
    """The input times its sigmoid."""
    x, beta = c["X"], c.attr("beta")
    c.set("Out", c.g.Mul(x, c.g.Sigmoid(x if beta == 1 else c.g.Mul(x, c.number(beta)))))


@exports("stanh")
def stanh(c: Call) -> None:
    """``Tanh`` of a multiple, and a multiple of that."""
    made = c.g.Tanh(c.g.Mul(c["X"], c.number(c.attr("scale_a"))))
    c.set("Out", c.g.Mul(made, c.number(c.attr("scale_b"))))


@exports("softplus")
def softplus(c: Call) -> None:
    """``Softplus``."""
    c.set("Out", c.g.Softplus(c["X"]))


@exports("soft_relu")
def soft_relu(c: Call) -> None:
    """``Softplus`` of the clipped input."""
    limit = c.attr("threshold")
    c.set("Out", c.g.Softplus(clipped(c, c["X"], -limit, limit)))


@exports("logsigmoid")
def logsigmoid(c: Call) -> None:
    """Minus ``Softplus`` of minus the input."""
    c.set("Out", c.g.Neg(c.g.Softplus(c.g.Neg(c["X"]))))


@exports("gelu")
def gelu(c: Call) -> None:
    """By the error function, or by the hyperbolic tangent."""
    g, x = c.g, c["X"]
    if c.attr("approximate"):
        cubic = g.Mul(g.Mul(g.Mul(x, x), x), c.number(0.044715))
        inner = g.Tanh(g.Mul(g.Add(x, cubic), c.number(math.sqrt(2 / math.pi))))
    else:
        inner = g.Erf(g.Mul(x, c.number(math.sqrt(0.5))))
    c.set("Out", g.Mul(g.Mul(x, c.number(0.5)), g.Add(inner, c.number(1.0))))


@exports("mish")
def mish(c: Call) -> None:
    """The input times the hyperbolic tangent of its ``Softplus``."""
    c.set("Out", c.g.Mul(c["X"], c.g.Tanh(c.g.Softplus(c["X"]))))


@exports("thresholded_relu")
def thresholded_relu(c: Call) -> None:
    """What is above the threshold; else 0."""
    x = c["X"]
    above = c.g.Greater(x, c.number(c.attr("threshold")))
    c.set("Out", c.g.Where(above, x, c.number(0.0)))


@exports("hard_shrink")
def hard_shrink(c: Call) -> None:
    """What is farther from 0 than the threshold; else 0."""
    x = c["X"]
    far = c.g.Greater(c.g.Abs(x), c.number(abs(c.attr("threshold"))))
    need(c.attr("threshold") >= 0, "its threshold is negative")
    c.set("Out", c.g.Where(far, x, c.number(0.0)))


@exports("softshrink", without="a negative lambda")
def softshrink(c: Call) -> None:
    """``Shrink`` towards 0."""
    limit = c.attr("lambda")
    need(limit >= 0, "its lambda is negative")
    c.set("Out", c.g.Shrink(c["X"], lambd=limit, bias=limit))


@exports("tanh_shrink")
def tanh_shrink(c: Call) -> None:
    """The input less its hyperbolic tangent."""
    c.set("Out", c.g.Sub(c["X"], c.g.Tanh(c["X"])))


@exports("prelu")
def prelu(c: Call) -> None:
    """``PRelu`` with one slope, one for each channel, or one for each element."""
    slope, rank = c["Alpha"], c.rank("X")
    if c.attr("mode") == "channel":
        slope = c.g.reshape(slope, -1, *[1] * (rank - 2))
    elif c.attr("mode") == "element":
        slope = c.g.Reshape(
            slope, c.g.Concat([1], c.g.Slice(c.g.Shape(c["X"]), [1], [rank]), axis=0)
        )
    else:
        slope = c.g.reshape(slope, 1)
    c.set("Out", c.g.PRelu(c["X"], slope))


@exports("maxout")
def maxout(c: Call) -> None:
    """The maximum of groups of channels that lie side by side."""
    axis, rank, groups = c.attr("axis") % c.rank("X"), c.rank("X"), c.attr("groups")
    channels = c.shape("X")[axis]
    shape = [*[0] * axis, channels // groups, groups]
    front = c.g.Slice(c.g.Shape(c["X"]), [0], [axis])
    behind = c.g.Slice(c.g.Shape(c["X"]), [axis + 1], [rank])
    made = c.g.Reshape(c["X"], c.g.Concat(front, c.g.ints(*shape[axis:]), behind, axis=0))
    c.set("Out", c.g.reduce("ReduceMax", made, [axis + 1]))
