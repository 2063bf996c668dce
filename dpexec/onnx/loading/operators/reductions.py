"""``ReduceSum`` and the like, ``ArgMax``, ``ArgMin``, ``CumSum``, ``CumProd``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dtypes import is_float
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node


class _Reduction:
    """Reduces over the axes of a node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        rank = node.value(0).rank
        axes = node.integers(1, "axes")
        keep = bool(node.attr("keepdims", 1))
        self.nothing = not axes and bool(node.attr("noop_with_empty_axes", 0))
        self.axes = [a + rank if a < 0 else a for a in axes or range(rank)]
        self.all = len(self.axes) == rank
        self.scalar = (self.all and not keep) or not rank
        self.keep = keep and bool(rank)

    def __call__(self, op_type: str, x: Variable, keep: bool | None = None) -> Variable:
        kept = self.keep if keep is None else keep
        return self.node.add(
            op_type, {"X": x}, dim=self.axes or [0], keep_dim=kept, reduce_all=self.all
        )


def _log_sum_exp(node: Node, x: Variable, reduce: _Reduction) -> Variable:
    largest = reduce("reduce_max", x, keep=True)
    limit = float("3e38") if x.dtype == VarType.FP32 else 6e4 if x.dtype == VarType.FP16 else 1e308
    finite = node.add("clip", {"X": largest}, min=-limit, max=limit)
    grown = node.add("exp", {"X": node.binary("elementwise_sub", x, finite)})
    total = node.add("log", {"X": reduce("reduce_sum", grown, keep=True)})
    made = node.binary("elementwise_add", total, finite)
    return made if reduce.keep else reduce("reduce_max", made)


def _length(node: Node, squares: Variable) -> Variable:
    """The root of sums of squares; the gradient of those that are 0 is 0, as PyTorch has it.

    Windows of attention that lie on padding have such sums.
    """
    zero = node.binary("equal", squares, node.number(0.0, squares.dtype))
    one = node.cast(zero, squares.dtype)
    one.stop_gradient = True
    root = node.add("sqrt", {"X": node.binary("elementwise_add", squares, one)})
    return node.binary("elementwise_sub", root, one)


_REDUCTIONS: dict[str, Callable[[Node, Variable, _Reduction], Variable]] = {
    "ReduceSum": lambda node, x, reduce: reduce("reduce_sum", x),
    "ReduceMax": lambda node, x, reduce: reduce("reduce_max", x),
    "ReduceMin": lambda node, x, reduce: reduce("reduce_min", x),
    "ReduceProd": lambda node, x, reduce: reduce("reduce_prod", x),
    "ReduceMean": lambda node, x, reduce: reduce("reduce_mean", x),
    "ReduceL1": lambda node, x, reduce: reduce("reduce_sum", node.add("abs", {"X": x})),
    "ReduceL2": lambda node, x, reduce: _length(
        node, reduce("reduce_sum", node.add("square", {"X": x}))
    ),
    "ReduceSumSquare": lambda node, x, reduce: reduce("reduce_sum", node.add("square", {"X": x})),
    "ReduceLogSum": lambda node, x, reduce: node.add("log", {"X": reduce("reduce_sum", x)}),
    "ReduceLogSumExp": _log_sum_exp,
}
_OF_NUMBERS = {"ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare"}


@operator(*_REDUCTIONS)
def reduction(node: Node) -> Any:
    """Axes are an attribute in older versions, an input in newer ones."""
    reduce = _Reduction(node)
    x = node.var(0)
    own = x.dtype
    if reduce.nothing:
        return _without_axes(node, x)
    if node.op_type not in _OF_NUMBERS and not is_float(own):
        x = node.cast(x, VarType.FP64)
    made = node.cast(_REDUCTIONS[node.op_type](node, x, reduce), own)
    return node.result(made, reduce.scalar)


def _without_axes(node: Node, x: Variable) -> Any:
    """What a reduction over no axis makes of each element."""
    if node.op_type in ("ReduceL1", "ReduceL2"):
        return node.add("abs", {"X": x})
    if node.op_type == "ReduceSumSquare":
        return node.add("square", {"X": x})
    return node.add("log", {"X": x}) if node.op_type == "ReduceLogSum" else node.value(0)


@operator("ArgMax", "ArgMin")
def arg_extreme(node: Node) -> Any:
    """The first one of equal elements, or the last one."""
    axis, x = node.axis(0), node.var(0)
    keep, rank = bool(node.attr("keepdims", 1)), node.value(0).rank
    last = bool(node.attr("select_last_index", 0))
    if last:
        x = node.add("reverse", {"X": x}, axis=[axis])
    held = keep or rank == 1  # a number is a tensor of shape [1]
    made = node.add(f"arg_{node.op_type[3:].lower()}", {"X": x}, axis=axis, keepdims=held)
    made = node.cast(made, VarType.INT64)
    if last:
        size = node.builder.size_variable(node.dims(0)[axis])
        made = node.binary("elementwise_sub", node.scaled(size, bias=-1.0), made)
    return node.result(made, rank == 1 and not keep)


def _axis(node: Node) -> int:
    """The axis of a cumulative operator, its second input."""
    axes = node.constant(1, "axis")
    assert axes is not None  # an input that ONNX requires; loading has checked that
    return int(axes.reshape(-1)[0])


@operator("CumSum")
def cumulative_sum(node: Node) -> Any:
    """The axis is an input."""
    axis = _axis(node)
    return node.add(
        "cumsum",
        {"X": node.var(0)},
        axis=axis + node.value(0).rank if axis < 0 else axis,
        exclusive=bool(node.attr("exclusive", 0)),
        reverse=bool(node.attr("reverse", 0)),
    )


@operator("CumProd")
def cumulative_product(node: Node) -> Any:
    """Products with elements 1, 2, 4, ... places before; the size of the axis must be known."""
    axis = range(node.value(0).rank)[_axis(node)]
    size, back = node.dims(0)[axis], bool(node.attr("reverse", 0))
    if not isinstance(size, int):
        node.fail("the size of its axis must be known when the model is loaded")

    def after_ones(var: Variable, count: int) -> Variable:
        """The elements moved away from where products begin, after as many ones."""
        low, high = (count, size) if back else (0, size - count)
        gone = node.slice(var, axis, 0, count)
        ones = node.add("fill_any_like", {"X": gone}, value=1.0, dtype=int(var.dtype))
        rest = [node.slice(var, axis, low, high)] if low < high else []
        return node.concat([*rest, ones] if back else [ones, *rest], axis)

    made, places = node.var(0), 1
    if node.attr("exclusive", 0):
        made = after_ones(made, 1)
    while places < size:
        made = node.binary("elementwise_mul", made, after_ones(made, places))
        places *= 2
    return made


@operator("Size")
def count(node: Node) -> Any:
    """The number of elements."""
    total: Any = 1
    for size in node.dims(0):
        total = total * size
    return np.array(total, np.int64 if isinstance(total, int) else object)
