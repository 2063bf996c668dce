"""Rows of tables by ids: embeddings, one-hot vectors, ids within a shard."""

from __future__ import annotations

import numpy as np

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need


def _ids(c: Call, slot: str, squeezed: bool) -> Value:
    """Ids as int64, without the last dimension of 1 that older operators have."""
    ids = c.typed(c[slot], c.dtype(slot), np.int64)
    return c.g.Squeeze(ids, [c.rank(slot) - 1]) if squeezed else ids


@exports("lookup_table", "lookup_table_v2", without="tables on parameter servers")
def lookup_table(c: Call) -> None:
    """``Gather``; rows of ``padding_idx`` are 0."""
    need(not c.attr("epmap"), "its table lies on parameter servers")
    ids = _ids(c, "Ids", c.op.type == "lookup_table")
    padding = c.attr("padding_idx")
    if padding in (None, -1):
        c.set("Out", c.g.Gather(c["W"], ids))
        return
    is_padding = c.g.Equal(ids, np.array(padding, np.int64))
    ids = c.g.Where(is_padding, np.array(0, np.int64), ids)
    rows = c.g.Gather(c["W"], ids)
    c.set("Out", c.g.Where(c.g.Unsqueeze(is_padding, [-1]), c.number(0.0, "W"), rows))


@exports("lookup_table_dequant", constants="W")
def lookup_table_dequant(c: Call) -> None:
    """``Gather`` of rows of bytes, spread between the smallest and the largest number of a row."""
    g, (table,) = c.g, c.constants("W")
    ends, levels = table[:, :2], np.ascontiguousarray(table[:, 2:]).view(np.uint8)
    step = (ends[:, 1:] - ends[:, :1]) / table.dtype.type(256)
    ids = _ids(c, "Ids", True)
    rows = g.cast(g.Gather(g.constant(levels), ids), table.dtype)
    made = g.Add(g.Mul(rows, g.Gather(g.constant(step), ids)), g.Gather(ends[:, :1], ids))
    padding = c.attr("padding_idx")
    if padding not in (None, -1):
        is_padding = g.Unsqueeze(g.Equal(ids, np.array(padding, np.int64)), [-1])
        made = g.Where(is_padding, c.number(0.0, "W"), made)
    c.set("Out", made)


@exports("tdm_child")
def tdm_child(c: Call) -> None:
    """``Gather`` of a tree's rows: the children, and whether they are leaves."""
    g, zero = c.g, np.array(0, np.int64)
    nodes = c.typed(c["X"], c.dtype("X"), np.int64)
    tree = c.typed(c["TreeInfo"], c.dtype("TreeInfo"), np.int64)
    rows, width = g.Gather(tree, nodes), c.attr("child_nums")
    children = g.Slice(rows, [3], [3 + width], [-1])
    none = g.Or(
        g.Equal(g.Unsqueeze(nodes, [-1]), zero), g.Equal(g.Slice(children, [0], [1], [-1]), zero)
    )
    children = g.Where(none, zero, children)
    items = g.Gather(g.Slice(tree, [0], [1], [1]), children)
    is_leaf = g.And(g.Not(g.Equal(g.Squeeze(items, [-1]), zero)), g.Not(none))
    c.set("Child", g.cast(children, c.dtype("Child")))
    c.set("LeafMask", g.cast(is_leaf, c.dtype("LeafMask")))


@exports("one_hot", "one_hot_v2", constants="depth_tensor")
def one_hot(c: Call) -> None:
    """Whether the id is each of the numbers up to the depth."""
    ids = _ids(c, "X", c.op.type == "one_hot")
    given = c.constants("depth_tensor")
    depth = int(given[0].item()) if given else c.attr("depth")
    hits = c.g.Equal(c.g.Unsqueeze(ids, [-1]), np.arange(depth))
    c.set("Out", c.g.cast(hits, c.dtype("Out")))


@exports("shard_index")
def shard_index(c: Call) -> None:
    """The number within the shard, if it is this one's."""
    g, size = c.g, -(-c.attr("index_num") // c.attr("nshards"))
    step = c.number(size)
    own = g.Equal(g.Div(c["X"], step), c.number(c.attr("shard_id")))
    c.set("Out", g.Where(own, g.Mod(c["X"], step), c.number(c.attr("ignore_value"))))
