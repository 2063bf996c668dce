"""``Gather`` and ``Scatter`` in all forms, ``OneHot``, ``NonZero``, ``Compress``, ``TopK``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dims import OpenDim
from dpexec.onnx.loading.dtypes import is_float
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node


def counted_from_front(node: Node, index: int, size: Any) -> Variable:
    """An input of indices, of which negative ones count from the end of an axis."""
    known, var = node.known(index), None
    if known is not None:
        if (known >= 0).all():
            return node.cast(node.var(index), VarType.INT64)
        if isinstance(size, int):
            places = np.where(known < 0, known + size, known).astype(np.int64)
            return node.builder.constant(places)
    var = node.cast(node.var(index), VarType.INT64)
    below = node.cast(node.binary("less_than", var, node.number(0, VarType.INT64)), VarType.INT64)
    more = node.binary("elementwise_mul", below, node.builder.size_variable(size))
    return node.binary("elementwise_add", var, more)


@operator("Gather")
def gather(node: Node) -> Any:
    """Rows of a table of parameters are a look-up of embeddings, other rows a selection."""
    axis, data, index = node.axis(0), node.value(0), node.value(1)
    dims, places = node.dims(0), node.dims(1)
    if data.weight and axis == 0 and data.rank == 2 and not index.scalar:
        ids = node.cast(node.var(1), VarType.INT64)
        if node.known(1) is not None:
            ids = counted_from_front(node, 1, dims[0])
        return _looked_up(node, ids)
    ids = counted_from_front(node, 1, dims[axis])
    flat = ids if len(places) < 2 else node.reshape(ids, [-1])
    made = node.add("index_select", {"X": node.var(0), "Index": flat}, dim=axis)
    if index.scalar:
        return node.result(node.squeeze(made, [axis]), data.rank == 1)
    if len(places) == 1:
        return made
    old = [*dims[:axis], None, *dims[axis + 1 :]]
    return node.reshape(made, [*dims[:axis], *places, *dims[axis + 1 :]], old)


def _looked_up(node: Node, ids: Variable) -> Variable:
    """Rows of a table; one that is not trained is a constant, as fluid's look-up reads it as 0."""
    table, row = node.var(0), node.builder.padding.get(node.value(0).name)
    if row is None:
        return node.add("lookup_table_v2", {"W": table, "Ids": ids})
    made = node.add("lookup_table_v2", {"W": table, "Ids": ids}, padding_idx=row)
    array = node.value(0).array
    if array is not None and not array[row].any():
        return made
    fixed = node.squeeze(node.slice(table, 0, row, row + 1), [0])
    fixed.stop_gradient = True
    hits = node.cast(node.binary("equal", ids, node.number(row, VarType.INT64)), table.dtype)
    added = node.binary("elementwise_mul", node.unsqueeze(hits, [len(ids.shape)]), fixed)
    return node.binary("elementwise_add", made, added)


def _coordinates(node: Node, like: Variable, axes: Sequence[int]) -> dict[int, Variable]:
    """The place of each element of a tensor along some axes."""
    ones = node.add("fill_any_like", {"X": like}, value=1.0, dtype=int(VarType.INT64))
    return {a: node.add("cumsum", {"X": ones}, axis=a, exclusive=True) for a in axes}


def _element_places(node: Node, index: int, axis: int) -> Variable:
    """For each index, the coordinates of the element that it means."""
    places = counted_from_front(node, index, node.dims(0)[axis])
    rank = len(places.shape)
    found = _coordinates(node, places, [a for a in range(rank) if a != axis])
    found[axis] = places
    return node.add("stack", {"X": [found[a] for a in range(rank)]}, "Y", axis=rank)


@operator("GatherElements")
def gather_elements(node: Node) -> Any:
    """For each index, the element at its place along an axis."""
    places = _element_places(node, 1, node.axis(0))
    return node.add("gather_nd", {"X": node.var(0), "Index": places})


@operator("GatherND")
def gather_nd(node: Node) -> Any:
    """The slice at each row of coordinates."""
    batch, places = node.attr("batch_dims", 0), node.cast(node.var(1), VarType.INT64)
    if not isinstance(node.dims(1)[-1], int):
        node.fail("the number of coordinates must be known")
    places = _from_front(node, places, node.dims(0)[batch:])
    if batch:
        first = node.slice(places, len(places.shape) - 1, 0, 1)
        lead = _coordinates(node, first, range(batch))
        places = node.concat([*(lead[a] for a in range(batch)), places], len(places.shape) - 1)
    return node.add("gather_nd", {"X": node.var(0), "Index": places})


def _from_front(node: Node, places: Variable, dims: Sequence[Any]) -> Variable:
    """Rows of coordinates, of which negative ones count from the ends of the axes."""
    known = node.known(1)
    if known is not None and (known >= 0).all():
        return places
    sizes = node.builder.numbers(dims[: places.shape[-1]], node.prefix)
    zero = node.number(0, VarType.INT64)
    below = node.cast(node.binary("less_than", places, zero), VarType.INT64)
    return node.binary("elementwise_add", places, node.binary("elementwise_mul", below, sizes))


def _scattered(node: Node, places: Variable, updates: Variable, reduction: str) -> Any:
    x = node.var(0)
    if reduction == "add":
        inputs = {"X": x, "Index": places, "Updates": updates}
        return node.add("scatter_nd_add", inputs)
    if reduction in ("max", "min"):
        return _extreme(node, places, updates, reduction)
    if reduction != "none":
        node.fail(f"reduction {reduction} is not supported, only none, add, max and min")
    zeros = node.add("fill_zeros_like", {"X": x})
    new = node.add("scatter_nd_add", {"X": zeros, "Index": places, "Updates": updates})
    ones = node.add("fill_any_like", {"X": updates}, value=1.0, dtype=int(updates.dtype))
    hits = node.add("scatter_nd_add", {"X": zeros, "Index": places, "Updates": ones})
    hit = node.binary("greater_than", hits, node.number(0, hits.dtype))
    return node.add("where", {"Condition": hit, "X": new, "Y": x})


def _extreme(node: Node, places: Variable, updates: Variable, reduction: str) -> Variable:
    """The largest or smallest of each element and what is scattered to it.

    Updates are written in order, so that the most extreme one comes last and stays.
    """
    x, dims, last = node.var(0), node.dims(0), len(places.shape) - 1
    if places.shape[last] != len(dims):
        node.fail(f"reduction {reduction} of slices is not supported, only of elements")
    strides: list[Any] = [1]
    for size in reversed(dims[1:]):
        strides.insert(0, size * strides[0])
    scaled = node.binary("elementwise_mul", places, node.builder.numbers(strides, node.prefix))
    rows = node.reshape(node.add("reduce_sum", {"X": scaled}, dim=[last]), [-1])
    down = {"axis": 0, "descending": reduction == "min"}
    flat = {"X": node.reshape(updates, [-1])}
    order = node.builder.add("argsort", flat, down, prefix=node.prefix)["Indices"]
    given = {
        "X": node.reshape(x, [-1]),
        "Ids": node.add("gather", {"X": rows, "Index": order}),
        "Updates": node.add("gather", {**flat, "Index": order}),
    }
    found = node.add("scatter", given, overwrite=True)
    best = node.binary(f"elementwise_{reduction}", given["X"], found)
    return node.reshape(best, dims)


@operator("ScatterND")
def scatter_nd(node: Node) -> Any:
    """The tensor with what lies at rows of coordinates replaced, or added to."""
    places = _from_front(node, node.cast(node.var(1), VarType.INT64), node.dims(0))
    return _scattered(node, places, node.var(2), node.attr("reduction", "none"))


@operator("ScatterElements", "Scatter")
def scatter_elements(node: Node) -> Any:
    """The tensor with elements replaced, or added to."""
    places = _element_places(node, 1, node.axis(0))
    return _scattered(node, places, node.var(2), node.attr("reduction", "none"))


@operator("OneHot")
def one_hot(node: Node) -> Any:
    """The number of classes must be known; indices may be negative."""
    depths = node.constant(1, "depth")
    assert depths is not None
    depth = int(depths.reshape(-1)[0])
    index = node.cast(node.var(0), VarType.INT64)
    below = node.cast(node.binary("less_than", index, node.number(0, index.dtype)), index.dtype)
    places = node.binary("elementwise_add", index, node.scaled(below, depth))
    hot = node.add("one_hot_v2", {"X": places}, depth=depth, allow_out_of_range=True)
    rank = node.value(0).rank + 1
    if node.value(0).scalar:
        hot = node.reshape(hot, [depth])
    values = node.var(2)
    off, on = node.slice(values, 0, 0, 1), node.slice(values, 0, 1, 2)
    hot = node.cast(hot, values.dtype)
    cold = node.binary("elementwise_sub", node.number(1, values.dtype), hot)
    made = node.binary(
        "elementwise_add",
        node.binary("elementwise_mul", hot, on),
        node.binary("elementwise_mul", cold, off),
    )
    axis, order = node.axis(-1, rank=rank), list(range(rank - 1))
    return node.transpose(made, [*order[:axis], rank - 1, *order[axis:]])


@operator("NonZero")
def non_zero(node: Node) -> Any:
    """Coordinates of elements that are not 0, one column for each."""
    x = node.var(0)
    if x.dtype != VarType.BOOL:
        x = node.binary("not_equal", x, node.number(0, x.dtype))
    return node.transpose(node.add("where_index", {"Condition": x}), [1, 0])


@operator("Unique")
def unique(node: Node) -> Any:
    """The different elements of a tensor; slices of more than one element are not compared."""
    if "axis" in node.attrs and node.value(0).rank != 1:
        node.fail("slices along an axis are not compared")
    flat = node.reshape(node.var(0), [-1])
    given = {"X": flat}
    made = node.builder.add(
        "unique_with_counts", given, {"dtype": int(VarType.INT64)}, prefix=node.prefix
    )
    values, index, counts = made["Out"], made["Index"], made["Count"]
    if node.attr("sorted", 1):
        order = node.builder.add("argsort", {"X": values}, {"axis": 0}, prefix=node.prefix)
        values, places = order["Out"], order["Indices"]
        ranks = node.add("argsort", {"X": places}, "Indices", axis=0)
        index = node.add("gather", {"X": ranks, "Index": index})
        counts = node.add("gather", {"X": counts, "Index": places})
    firsts = None
    if any(node.outputs[1:2]):
        runs = node.add("argsort", {"X": index}, "Indices", axis=0)  # equal ones keep their order
        starts = node.add("cumsum", {"X": counts}, axis=0, exclusive=True)
        firsts = node.add("gather", {"X": runs, "Index": starts})
    return [values, firsts, index, counts]


@operator("Compress")
def compress(node: Node) -> Any:
    """The elements for which a condition is true, along an axis or of the whole tensor."""
    x, axis = node.var(0), 0
    if "axis" in node.attrs:
        axis = node.axis()
    else:
        x = node.reshape(x, [-1])
    chosen = node.add("where_index", {"Condition": node.var(1)})
    return node.add("index_select", {"X": x, "Index": node.reshape(chosen, [-1])}, dim=axis)


@operator("TopK")
def top_k(node: Node) -> Any:
    """The largest or the smallest elements along an axis, in order."""
    found = [node.attrs["k"]] if "k" in node.attrs else node.sizes(1, "k")
    k = None if found is None else found[0]
    axis, rank = node.axis(-1), node.value(0).rank
    largest = bool(node.attr("largest", 1))
    x = node.var(0)
    if not is_float(x.dtype) and x.dtype != VarType.INT64:
        x = node.cast(x, VarType.INT64)
    inputs = {"X": x}
    made = node.builder.add(
        "argsort", inputs, {"axis": axis, "descending": largest}, prefix=node.prefix
    )
    size = node.dims(0)[axis]
    last = k if isinstance(k, int) else -1
    if isinstance(k, int) and not isinstance(size, OpenDim) and not 0 < last <= size:
        node.fail(f"k is {k}, but axis {axis} of rank {rank} has {size} elements")
    ends = None
    if not isinstance(k, int):
        count = node.var(1) if k is None else node.builder.size_variable(k)
        ends = [node.cast(count, VarType.INT32)]
    cut: dict[str, Any] = {"axes": [axis], "starts": [0], "ends": [last]}
    cut["infer_flags"] = [1 if ends is None else -1]
    parts = [
        node.add("slice", {"Input": made[slot], "EndsTensorList": ends}, **cut)
        for slot in ("Out", "Indices")
    ]
    return [node.cast(parts[0], node.value(0).dtype), parts[1]]
