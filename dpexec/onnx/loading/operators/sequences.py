"""Sequences of tensors, and optional values: how many there are is known when loading."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.onnx.loading.dims import OpenDim
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.values import Value


def _items(node: Node, index: int = 0) -> list[Value]:
    found = node.value(index).items
    if found is None:
        node.fail("its input is no sequence whose tensors are known")
    return found


def _place(node: Node, index: int, default: int) -> int:
    found = node.constant(index, "the position")
    return default if found is None else int(found.reshape(-1)[0])


@operator("SequenceConstruct", "SequenceEmpty")
def construct(node: Node) -> Any:
    """A sequence of the inputs."""
    return Value(node.outputs[0], items=[node.value(i) for i in range(len(node.inputs))])


@operator("SequenceInsert")
def insert(node: Node) -> Any:
    """At the end by default."""
    items = list(_items(node))
    items.insert(_place(node, 2, len(items)), node.value(1))
    return Value(node.outputs[0], items=items)


@operator("SequenceErase")
def erase(node: Node) -> Any:
    """The last one by default."""
    items = list(_items(node))
    del items[_place(node, 1, -1)]
    return Value(node.outputs[0], items=items)


@operator("SequenceAt")
def at(node: Node) -> Any:
    """One of its tensors."""
    return _items(node)[_place(node, 1, 0)]


@operator("SequenceLength")
def length(node: Node) -> Any:
    """The number of tensors."""
    return np.array(len(_items(node)), np.int64)


@operator("ConcatFromSequence")
def concat(node: Node) -> Any:
    """All tensors, one behind the other, along an axis that may be new."""
    items = _items(node)
    variables = [node.builder.variable(item) for item in items]
    axis = node.attrs["axis"]
    if node.attr("new_axis", 0):
        if items[0].scalar:
            return node.concat(variables, 0)
        rank = items[0].rank + 1
        return node.add("stack", {"X": variables}, "Y", axis=axis + rank if axis < 0 else axis)
    return node.concat(variables, axis + items[0].rank if axis < 0 else axis)


@operator("SplitToSequence")
def split(node: Node) -> Any:
    """Parts of a size, or of given sizes; single rows by default."""
    axis, size = node.axis(0), node.dims(0)[node.axis(0)]
    if isinstance(size, OpenDim):
        node.fail("the size of its axis must be known when the model is loaded")
    given = node.constant(1, "split")
    if given is not None and given.ndim:
        sizes = [int(v) for v in given]
    else:
        step = 1 if given is None else int(given)
        sizes = [min(step, size - start) for start in range(0, size, step)]
    items, start = [], 0
    for i, part in enumerate(sizes):
        var = node.slice(node.var(0), axis, start, start + part)
        scalar = False
        if given is None and not node.attr("keepdims", 1):
            var, scalar = node.squeeze(var, [axis]), node.value(0).rank == 1
        items.append(Value(f"{node.outputs[0]}.{i}", None, var, scalar))
        start += part
    return Value(node.outputs[0], items=items)


@operator("Optional", "OptionalGetElement")
def optional(node: Node) -> Any:
    """The value itself, which must be there."""
    return node.value(0)


@operator("OptionalHasElement")
def has_element(node: Node) -> Any:
    """Whether the input is given."""
    return np.array(node.input(0) is not None)
