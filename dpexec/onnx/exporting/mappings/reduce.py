"""Reductions over dimensions; of all without keepdims, fluid keeps one."""

from __future__ import annotations

import numpy as np

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need

_SAME = {
    "frobenius_norm": "ReduceL2",
    "reduce_max": "ReduceMax",
    "reduce_mean": "ReduceMean",
    "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd",
    "reduce_sum": "ReduceSum",
}


def reduced(c: Call, kind: str, x: Value) -> Value:
    """A value reduced as the attributes of fluid's reductions say."""
    rank, given = c.rank("X"), c.attr("dim")
    axes = sorted({axis % rank for axis in given}) if rank else []
    if c.attr("reduce_all") or len(axes) == rank:
        made = c.g.reduce(kind, x, None, bool(c.attr("keep_dim")))
        return made if c.attr("keep_dim") and rank else c.g.reshape(made, 1)
    made = c.g.reduce(kind, x, axes, bool(c.attr("keep_dim")))
    return made


@exports(*_SAME)
def reduction(c: Call) -> None:
    """The reduction of the same meaning."""
    x, dtype = c["X"], c.dtype("X")
    wide = c.typed(x, dtype, np.int64) if dtype.kind in "iub" else x
    made = reduced(c, _SAME[c.op.type], wide)
    made = c.typed(made, np.int64, dtype) if dtype.kind in "iub" else made
    c.set("Out", c.typed(made, dtype, c.dtype("Out")))


@exports("reduce_all", "reduce_any")
def logical_reduction(c: Call) -> None:
    """The least or greatest of integers."""
    kind = "ReduceMin" if c.op.type == "reduce_all" else "ReduceMax"
    c.set("Out", c.g.cast(reduced(c, kind, c.g.cast(c["X"], np.int32)), np.bool_))


@exports("mean")
def mean(c: Call) -> None:
    """The mean of all numbers, as a vector with one element."""
    c.set("Out", c.g.reshape(c.g.reduce("ReduceMean", c["X"], None), 1))


@exports("squared_l2_norm")
def squared_l2_norm(c: Call) -> None:
    """The sum of all squares."""
    made = c.g.reduce("ReduceSum", c.g.Mul(c["X"], c["X"]), None)
    c.set("Out", c.g.reshape(made, 1))


@exports("p_norm", without="some exponents")
def p_norm(c: Call) -> None:
    """``ReduceL1``, ``ReduceL2``, greatest and least sizes, or powers."""
    g, x, power = c.g, c["X"], c.attr("porder")
    axes, keep = [c.attr("axis")], bool(c.attr("keepdim"))
    need(power != 0, "its exponent is 0")
    if power in (1, 2):
        made = g.reduce(f"ReduceL{int(power)}", x, axes, keep)
    elif power in (float("inf"), float("-inf")):
        made = g.reduce("ReduceMax" if power > 0 else "ReduceMin", g.Abs(x), axes, keep)
    else:
        total = g.reduce("ReduceSum", g.Pow(g.Abs(x), c.number(power)), axes, keep)
        made = g.Pow(total, c.number(1 / power))
    c.set("Out", made if c.rank("X") > 1 or keep else g.reshape(made, 1))


@exports("arg_max", "arg_min")
def arg(c: Call) -> None:
    """``ArgMax`` and ``ArgMin``: the first place of several."""
    kind = "ArgMax" if c.op.type == "arg_max" else "ArgMin"
    keep = bool(c.attr("keepdims"))
    made = c.g.node(kind, c["X"], axis=c.attr("axis"), keepdims=int(keep))
    c.set("Out", c.typed(made, np.int64, c.dtype("Out")))


@exports("cumsum")
def cumsum(c: Call) -> None:
    """``CumSum``."""
    flags = {name: int(bool(c.attr(name))) for name in ("exclusive", "reverse")}
    c.set("Out", c.g.CumSum(c["X"], np.array(c.attr("axis"), np.int64), **flags))


@exports("top_k")
def top_k(c: Call) -> None:
    """``TopK`` along the last axis."""
    k = c.get("K")
    count = c.attr("k") if k is None else c.g.reshape(c.typed(k, c.dtype("K"), np.int64), 1)
    count = [count] if k is None else count
    values, places = c.g.TopK(c["X"], count, axis=-1, largest=1, sorted=1, outputs=2)
    c.set("Out", values)
    c.set("Indices", c.typed(places, np.int64, c.dtype("Indices")))


@exports("argsort")
def argsort(c: Call) -> None:
    """``TopK`` of all elements."""
    axis = c.attr("axis") % c.rank("X")
    values, places = c.g.TopK(
        c["X"], c.g.size(c["X"], axis), axis=axis, largest=int(c.attr("descending")), outputs=2
    )
    c.set("Out", values)
    c.set("Indices", c.typed(places, np.int64, c.dtype("Indices")))


@exports("l1_norm")
def l1_norm(c: Call) -> None:
    """The sum of all sizes."""
    c.set("Out", c.g.reshape(c.g.reduce("ReduceSum", c.g.Abs(c["X"]), None), 1))
