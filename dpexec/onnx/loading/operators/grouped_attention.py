"""Attention of language models that onnxruntime generates with: ``GroupQueryAttention``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.casts import MICROSOFT
from dpexec.onnx.loading.operators.fused import counted, plus
from dpexec.onnx.loading.operators.fused_attention import heads_of, joined, turned

_REFUSED = ("smooth_softmax", "qk_output", "kv_cache_bit_width", "sequence_parallel")


@operator("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(node: Node) -> Any:
    """Heads of queries that share keys and values; each sample may have its own number of steps."""
    _check(node)
    dims, parts = _parts(node)
    query, new, value = parts
    steps = counted(node, node.slice(node.slice(new, 1, 0, 1), 3, 0, 1), 2)  # (samples, 1, steps)
    first = _first(node, steps)
    if node.attr("do_rotary", 0):
        query, new = _rotated(node, [query, new], steps, first)
    key, value, behind = _with_earlier(node, new, value, first)
    hidden = _hidden(node, steps, first, counted(node, behind, 2))
    made = _attended(node, [query, key, value], hidden)
    results = [joined(node, made, dims)]
    return [*results, key, value][: len(node.outputs)]


def _check(node: Node) -> None:
    """Refuses settings that no operators are made for."""
    for name in _REFUSED:
        if node.attr(name, 0) not in (0, -1):
            node.fail(f"{name} is not supported")
    if any(node.input(k) is not None for k in range(11, len(node.inputs))):
        node.fail("sinks of heads and keys of 8 bits are not supported")


def _parts(node: Node) -> tuple[list[Any], list[Variable]]:
    """Samples and steps, and the heads of queries, keys and values, which may be one tensor."""
    dims, heads, shared = node.dims(0)[:2], int(node.attr("num_heads")), _shared(node)
    if node.input(1) is not None:
        given = [node.var(k) for k in range(3)]
    else:
        size = node.var(0).shape[-1] // (heads + 2 * shared)
        attrs = {"axis": 2, "sections": [heads * size, shared * size, shared * size]}
        inputs = {"X": node.var(0)}
        given = node.builder.add("split", inputs, attrs, prefix=node.prefix, many=3)["Out"]
    counts = (heads, shared, shared)
    return dims, [heads_of(node, x, dims, count) for x, count in zip(given, counts, strict=True)]


def _shared(node: Node) -> int:
    return int(node.attr("kv_num_heads"))


def _first(node: Node, steps: Variable) -> Variable:
    """How many steps lie before the new ones: (samples, 1, 1, 1), int64.

    A first call may give fewer steps to some samples, which are filled up behind; none are before.
    """
    last = node.reshape(node.cast(node.var(5), VarType.INT64), [-1, 1, 1, 1])
    count = node.scaled(node.add("reduce_max", {"X": steps}, dim=[2], keep_dim=True), bias=1.0)
    before = node.binary("elementwise_sub", node.scaled(last, bias=1.0), count)
    return node.binary("elementwise_max", before, node.number(0, VarType.INT64))


def _rotated(node: Node, parts: list[Variable], steps: Variable, first: Variable) -> list[Variable]:
    """Queries and keys, turned by the angles of their places."""
    places, width = node.optional(9), 2 * node.var(7).shape[1]
    if any(part.shape[3] != width for part in parts):
        node.fail(f"rotated widths ({width}) other than that of a head are not supported")
    if places is None:
        places = node.binary("elementwise_add", steps, first)
        places = node.squeeze(places, [1, 3])
    places = node.cast(places, VarType.INT64)
    angles = [
        node.unsqueeze(node.add("lookup_table_v2", {"W": node.var(k), "Ids": places}), [1])
        for k in (7, 8)
    ]
    return [
        turned(node, part, angles[0], angles[1], bool(node.attr("rotary_interleaved", 0)))
        for part in parts
    ]


def _with_earlier(
    node: Node, key: Variable, value: Variable, first: Variable
) -> tuple[Variable, Variable, Variable]:
    """Keys and values behind those of earlier calls, and one number for each of them.

    The first new step of a sample follows its last earlier one, wherever its room ends. Results
    have room for all earlier and all new steps.
    """
    if node.input(3) is None:
        return key, value, _numbers_of(node, key)
    room = _numbers_of(node, node.var(3))
    both = node.concat([room, _numbers_of(node, key)], 2)
    places = counted(node, both, 2)
    ones = node.add("fill_any_like", {"X": room}, value=1.0, dtype=int(VarType.INT64))
    length = node.add("reduce_sum", {"X": ones}, dim=[2], keep_dim=True)
    gap = node.binary("elementwise_sub", length, first)
    late = node.cast(node.binary("greater_equal", places, first), VarType.INT64)
    source = node.binary("elementwise_add", places, node.binary("elementwise_mul", late, gap))
    # Places that nothing has filled take any step: the mask hides them.
    end = node.add("reduce_max", {"X": places}, dim=[2], keep_dim=True)
    source = node.binary("elementwise_min", source, end)
    rows = counted(node, both, 0)
    index = node.squeeze(node.concat([rows, source], 3), [1])
    made = []
    for k, new in ((3, key), (4, value)):
        joint = node.transpose(node.concat([node.var(k), new], 2), [0, 2, 1, 3])
        found = node.add("gather_nd", {"X": joint, "Index": index})
        made.append(node.transpose(found, [0, 2, 1, 3]))
    return made[0], made[1], both


def _numbers_of(node: Node, x: Variable) -> Variable:
    """One number for each step: (samples, 1, steps, 1)."""
    return node.slice(node.slice(x, 1, 0, 1), 3, 0, 1)


def _hidden(node: Node, steps: Variable, first: Variable, places: Variable) -> Variable:
    """1 for keys that a query does not see: (samples, 1, queries, keys), int64."""
    now = node.binary("elementwise_add", steps, first)
    keys = node.transpose(places, [0, 1, 3, 2])
    one = VarType.INT64
    hidden = node.cast(node.binary("greater_than", *_alike(node, keys, now)), one)
    window = int(node.attr("local_window_size", -1))
    if window >= 0:
        earliest = node.scaled(now, bias=float(-window))
        gone = node.cast(node.binary("less_equal", *_alike(node, keys, earliest)), one)
        hidden = node.binary("elementwise_max", hidden, gone)
    return hidden


def _alike(node: Node, keys: Variable, queries: Variable) -> list[Variable]:
    """Numbers of keys and queries in the shape (samples, 1, queries, keys)."""
    zeros = [node.scaled(x, 0.0) for x in (keys, queries)]
    return [
        node.binary("elementwise_add", node.binary("elementwise_add", zeros[1], keys), zeros[0]),
        node.binary("elementwise_add", queries, zeros[0]),
    ]


def _attended(node: Node, parts: list[Variable], hidden: Variable) -> Variable:
    """Values, weighted by how queries fit keys: (samples, heads, steps, width)."""
    query, key, value = parts
    key, value = (_spread(node, each, query.shape[1]) for each in (key, value))
    scale = float(node.attr("scale", 0.0) or 1 / math.sqrt(query.shape[3]))
    scores = node.add("matmul", {"X": query, "Y": key}, transpose_Y=True, alpha=scale)
    cap = float(node.attr("softcap", 0.0))
    if cap:
        scores = node.scaled(node.add("tanh", {"X": node.scaled(scores, 1 / cap)}), cap)
    scores = plus(node, scores, 10)
    lowest = float(np.finfo(to_numpy(scores.dtype)).min) / 2
    away = node.scaled(node.cast(hidden, scores.dtype), lowest)
    shares = node.add("softmax", {"X": node.binary("elementwise_add", scores, away)}, axis=-1)
    return node.add("matmul", {"X": shares, "Y": value})


def _spread(node: Node, x: Variable, heads: int) -> Variable:
    """Each shared head as often as queries use it."""
    shared = _shared(node)
    if heads == shared:
        return x
    order = np.repeat(np.arange(shared), heads // shared)
    index = node.builder.constant(order, node.prefix)
    return node.add("index_select", {"X": x, "Index": index}, dim=1)
