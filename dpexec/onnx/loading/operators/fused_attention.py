"""Attention as onnxruntime's optimizer writes it: ``Attention``, ``MultiHeadAttention``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.casts import MICROSOFT
from dpexec.onnx.loading.operators.fused import counted, plus

_MASKED = -10000.0
"""What is added to scores of places that a mask hides, by default."""


@operator("Attention", domain=MICROSOFT)
def attention(node: Node) -> Any:
    """Heads of one tensor: its product with weights of queries, keys and values."""
    columns = node.value(0).rank - 1
    made = node.add("mul", {"X": node.var(0), "Y": node.var(1)}, x_num_col_dims=columns)
    return attention_of(node, plus(node, made, 2), mask=3, past=4, bias=5)


def attention_of(node: Node, made: Variable, mask: int, past: int, bias: int = -1) -> Any:
    """What queries, keys and values give that lie side by side in one tensor.

    Args:
        node: the node; its first input has samples and steps.
        made: (samples, steps, all widths).
        mask: position of the input that hides keys.
        past: position of keys and values of earlier calls, (2, samples, heads, steps, width).
        bias: position of what is added to scores.
    """
    if node.attr("do_rotary", 0) or node.attr("past_present_share_buffer", 0):
        node.fail("do_rotary and past_present_share_buffer are not supported")
    widths = list(node.attr("qkv_hidden_sizes") or [made.shape[-1] // 3] * 3)
    attrs = {"axis": 2, "sections": widths}
    parts = node.builder.add("split", {"X": made}, attrs, prefix=node.prefix, many=3)["Out"]
    dims, heads = node.dims(0)[:2], int(node.attr("num_heads"))
    query, key, value = (heads_of(node, part, dims, heads) for part in parts)
    if node.input(past) is not None:
        before = node.var(past)
        key, value = (
            node.concat([node.squeeze(node.slice(before, 0, k, k + 1), [0]), new], 2)
            for k, new in enumerate((key, value))
        )
    present = None
    if len(node.outputs) > 1 and node.outputs[1]:
        present = node.add("stack", {"X": [key, value]}, "Y", axis=0)
    masks = [*_mask(node, mask, key), *(_bias(node, bias) if bias >= 0 else [])]
    made = _attended(node, query, key, value, masks)
    return [joined(node, made, dims), present][: max(len(node.outputs), 1)]


@operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(node: Node) -> Any:
    """Heads of queries, keys and values, which may follow those of earlier calls."""
    heads, dims = int(node.attr("num_heads")), node.dims(0)[:2]
    parts, start = _given(node), 0
    for k, (part, sizes) in enumerate(parts):
        if len(sizes) == 4:  # heads that the model made; a bias is that of what it did not
            start += part.shape[1] * part.shape[3]
            continue
        if node.input(3) is not None:
            bias = node.slice(node.var(3), 0, start, start + part.shape[-1])
            part = node.binary("elementwise_add", part, bias)
        start += part.shape[-1]
        parts[k] = heads_of(node, part, sizes[:2], heads), sizes
    query, key, value = (part for part, _ in parts)
    if node.input(6) is not None:
        key, value = (
            node.concat([node.var(k), new], 2) for k, new in ((6, key), (7, value))
        )  # the keys and values of earlier calls come first
    masks = [*_mask(node, 4, key), *_bias(node, 5)]
    made = _attended(node, query, key, value, masks)
    return [joined(node, made, dims), key, value][: max(len(node.outputs), 1)]


def _given(node: Node) -> list[tuple[Variable, list[Any]]]:
    """Queries, keys and values, with their sizes.

    They are three tensors; or two, with a value behind each key; or one, with all for each head.
    """
    found: list[tuple[Variable, list[Any]]] = []
    for k in range(3):
        if node.input(k) is None:
            break
        sizes, var = node.dims(k), node.var(k)
        if len(sizes) != 5:
            found.append((var, sizes))
            continue
        heads, many, width = var.shape[2:]
        for i in range(many):
            one = node.slice(var, 3, i, i + 1)
            found.append((node.reshape(one, [*sizes[:2], heads * width], sizes[:2]), sizes[:3]))
    if len(found) != 3:
        node.fail("queries without keys are not supported")
    return found


def heads_of(node: Node, x: Variable, dims: Sequence[Any], heads: int) -> Variable:
    """A tensor (samples, steps, width) as (samples, heads, steps, width of a head)."""
    split = node.reshape(x, [*dims, heads, x.shape[-1] // heads], dims)
    return node.transpose(split, [0, 2, 1, 3])


def joined(node: Node, x: Variable, dims: Sequence[Any]) -> Variable:
    """The heads of each step side by side."""
    swapped = node.transpose(x, [0, 2, 1, 3])
    return node.reshape(swapped, [*dims, x.shape[1] * x.shape[3]], dims)


def _attended(
    node: Node, query: Variable, key: Variable, value: Variable, masks: Sequence[Variable]
) -> Variable:
    """Values, weighted by how queries fit keys."""
    scale = node.attr("scale", 0.0) or 1 / math.sqrt(query.shape[-1])
    scores = node.add("matmul", {"X": query, "Y": key}, transpose_Y=True, alpha=float(scale))
    for mask in masks:
        scores = node.binary("elementwise_add", scores, mask)
    if node.attr("unidirectional", 0):
        scores = _without_later(node, scores)
    shares = node.add("softmax", {"X": scores}, axis=-1)
    return node.add("matmul", {"X": shares, "Y": value})


def _without_later(node: Node, scores: Variable) -> Variable:
    """Scores that hide keys behind the step of the query; the last query sees all keys."""
    one = node.slice(node.slice(scores, 0, 0, 1), 1, 0, 1)
    to_end = [node.add("reverse", {"X": counted(node, one, axis)}, axis=[axis]) for axis in (2, 3)]
    later = node.binary("less_than", to_end[1], to_end[0])  # fewer keys than queries are behind
    lowest = float(np.finfo(to_numpy(scores.dtype)).min) / 2
    hidden = node.scaled(node.cast(later, scores.dtype), lowest)
    return node.binary("elementwise_add", scores, hidden)


def _bias(node: Node, index: int) -> list[Variable]:
    """What the model adds to scores."""
    found = node.optional(index)
    return [] if found is None else [found]


def _mask(node: Node, index: int, key: Variable) -> list[Variable]:
    """What hides keys: a mask of places, one for each query, or the number of keys that count."""
    given = node.input(index)
    if given is None:
        return []
    zero, rank = node.number(0, VarType.INT64), given.rank
    if rank not in (1, 2, 3):
        node.fail(f"masks of shape {list(given.shape)} are not supported")
    mask = node.cast(node.var(index), VarType.INT64)
    if rank == 1:
        places = counted(node, node.slice(node.slice(key, 1, 0, 1), 3, 0, 1), 2)
        lengths = node.reshape(mask, [-1, 1, 1, 1])
        hidden = node.transpose(node.binary("greater_equal", places, lengths), [0, 1, 3, 2])
    else:
        hidden = node.unsqueeze(node.binary("less_equal", mask, zero), [1, 2][: 4 - rank])
    number = float(node.attr("mask_filter_value", _MASKED))
    return [node.scaled(node.cast(hidden, key.dtype), number)]


@operator("RotaryEmbedding", domain=MICROSOFT)
def rotary(node: Node) -> Any:
    """Pairs of numbers turned by angles of their places."""
    rank, heads = node.value(0).rank, int(node.attr("num_heads", 0))
    partly, width = int(node.attr("rotary_embedding_dim", 0)), node.var(2).shape[1] * 2
    if node.value(1).rank != 2:
        node.fail("a place of the first step alone is not supported")
    dims, x = node.dims(0), node.var(0)
    if rank == 3:
        heads = heads if partly else dims[2] // width
        x = heads_of(node, x, dims[:2], heads)
    places = node.cast(node.var(1), VarType.INT64)
    cosines, sines = (
        node.unsqueeze(node.add("lookup_table_v2", {"W": node.var(k), "Ids": places}), [1])
        for k in (2, 3)
    )
    rest = node.slice(x, 3, width, 2**31 - 1) if x.shape[3] > width else None
    body = x if rest is None else node.slice(x, 3, 0, width)
    made = turned(node, body, cosines, sines, bool(node.attr("interleaved", 0)))
    made = made if rest is None else node.concat([made, rest], 3)
    return made if rank == 4 else joined(node, made, dims[:2])


def turned(
    node: Node, x: Variable, cosines: Variable, sines: Variable, interleaved: bool
) -> Variable:
    """The two numbers of each pair, which lie side by side or half the width apart."""
    half = x.shape[3] // 2

    def half_of(first: int) -> Variable:
        if not interleaved:
            return node.slice(x, 3, first * half, (first + 1) * half)
        return node.add(
            "strided_slice", {"Input": x}, axes=[3], starts=[first], ends=[2 * half], strides=[2]
        )

    one, two = half_of(0), half_of(1)

    def times(left: Variable, right: Variable) -> Variable:
        return node.binary("elementwise_mul", left, right)

    pair = [
        node.binary("elementwise_sub", times(one, cosines), times(two, sines)),
        node.binary("elementwise_add", times(one, sines), times(two, cosines)),
    ]
    if not interleaved:
        return node.concat(pair, 3)
    stacked = node.add("stack", {"X": pair}, "Y", axis=4)
    return node.add("reshape2", {"X": stacked}, shape=[0, 0, 0, 2 * half])
