"""Arithmetic of one tensor: powers, rounding, clipping, sums of several."""

from __future__ import annotations

from functools import reduce

import numpy as np

from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.elementwise import aligned
from dpexec.onnx.exporting.refusals import need


@exports("square")
def square(c: Call) -> None:
    """The input times itself."""
    c.set("Out", c.g.Mul(c["X"], c["X"]))


@exports("rsqrt")
def rsqrt(c: Call) -> None:
    """One by the square root."""
    c.set("Out", c.g.Reciprocal(c.g.Sqrt(c["X"])))


@exports("log1p")
def log1p(c: Call) -> None:
    """The logarithm of 1 more."""
    c.set("Out", c.g.Log(c.g.Add(c["X"], c.number(1.0))))


@exports("pow")
def pow(c: Call) -> None:
    """A power; the exponent is a number or a tensor."""
    factor = c.get("FactorTensor")
    c.set("Out", c.g.Pow(c["X"], c.number(c.attr("factor")) if factor is None else factor))


@exports("clip")
def clip(c: Call) -> None:
    """``Clip``; the limits are numbers or tensors."""
    limits = [
        c.number(c.attr(name.lower())) if c.get(name) is None
        else c.g.Squeeze(c[name], [0]) for name in ("Min", "Max")
    ]  # fmt: skip
    c.set("Out", c.g.Clip(c["X"], *limits))


@exports("clip_by_norm")
def clip_by_norm(c: Call) -> None:
    """The input, made shorter if its norm is too large."""
    x, limit = c["X"], c.number(c.attr("max_norm"))
    norm = c.g.Sqrt(c.g.reduce("ReduceSum", c.g.Mul(x, x), None))
    shorter = c.g.Mul(x, c.g.Div(limit, c.g.Max(norm, limit)))
    c.set("Out", shorter)


@exports("sum")
def sum(c: Call) -> None:
    """All inputs together."""
    c.set("Out", reduce(c.g.Add, c.all("X")))


@exports("minus")
def minus(c: Call) -> None:
    """X less Y."""
    c.set("Out", c.g.Sub(c["X"], c["Y"]))


@exports("increment")
def increment(c: Call) -> None:
    """A step more."""
    c.set("Out", c.g.Add(c["X"], c.number(c.attr("step"))))


@exports("elementwise_mod", "elementwise_floordiv")
def whole_division(c: Call) -> None:
    """Remainder and quotient; of fractions, rounded down."""
    x, y = aligned(c, c.attr("axis"))
    whole = c.dtype("X").kind != "f"
    if c.op.type == "elementwise_mod":
        quotient = None if whole else c.g.Floor(c.g.Div(x, y))
        made = c.g.Mod(x, y, fmod=1) if whole else c.g.Sub(x, c.g.Mul(quotient, y))
    else:
        made = c.g.Div(x, y) if whole else c.g.Floor(c.g.Div(x, y))
    c.set("Out", made)


@exports("cast")
def cast(c: Call) -> None:
    """``Cast``."""
    c.set("Out", c.g.cast(c["X"], c.dtype("Out")))


@exports("logical_and", "logical_or", "logical_xor")
def logical(c: Call) -> None:
    """``And``, ``Or``, ``Xor``."""
    kind = c.op.type.removeprefix("logical_").capitalize()
    c.set("Out", c.g.node(kind, c["X"], c["Y"]))


@exports("isfinite", "isinf", "isnan", without="SelectedRows")
def isfinite(c: Call) -> None:
    """Whether all numbers are finite, or any is infinite or none."""
    g, x = c.g, c["X"]
    need(c.dtype("X").kind == "f", f"its input is {c.dtype('X')}")
    x = c.typed(x, c.dtype("X"), np.float32)
    infinite, none = g.IsInf(x), g.IsNaN(x)
    hits = {"isinf": infinite, "isnan": none}.get(c.op.type)
    hits = g.Or(infinite, none) if hits is None else hits
    some = g.reduce("ReduceMax", g.cast(hits, np.int32), None)
    found = g.reshape(g.cast(some, np.bool_), 1)
    found = g.Not(found) if c.op.type == "isfinite" else found
    c.set("Out", c.typed(found, np.bool_, c.dtype("Out")))
