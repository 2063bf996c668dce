"""Operators that passes over models for prediction put together out of several."""

from __future__ import annotations

from functools import reduce

import numpy as np

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.activations import activated
from dpexec.onnx.exporting.mappings.elementwise import aligned
from dpexec.onnx.exporting.mappings.norms import flat_rows, layer_normalized
from dpexec.onnx.exporting.mappings.products import flat, unflat
from dpexec.onnx.exporting.refusals import need
from dpexec.onnx.exporting.sequences import Rows


@exports("skip_layernorm")
def skip_layernorm(c: Call) -> None:
    """``LayerNormalization`` of a sum."""
    total = c.g.Add(c["X"], c["Y"])
    x, is_flat = flat_rows(c, total, "X", c.attr("begin_norm_axis"))
    made = layer_normalized(c, x, c["Scale"], c["Bias"], "X", c.attr("epsilon"))
    c.set("Out", c.g.Reshape(made, c.g.Shape(total)) if is_flat else made)


@exports("fused_embedding_eltwise_layernorm")
def embeddings_layernorm(c: Call) -> None:
    """``LayerNormalization`` of a sum of embeddings."""
    g, parts = c.g, []
    for position, (ids, table) in enumerate(zip(c.all("Ids"), c.all("Embs"), strict=True)):
        spec = c.spec("Ids", position)
        ids = g.Squeeze(ids, [spec.rank - 1]) if spec.shape[-1] == 1 and spec.rank > 2 else ids
        parts.append(g.Gather(table, ids))
    total = reduce(g.Add, parts)
    c.set("Out", layer_normalized(c, total, c["Scale"], c["Bias"], "Embs", c.attr("epsilon")))


@exports("fused_fc_elementwise_layernorm", without="widths that are open")
def fc_layernorm(c: Call) -> None:
    """``LayerNormalization`` of a product plus another input."""
    g, rows, axis = c.g, c.attr("x_num_col_dims"), c.attr("begin_norm_axis")
    made = g.MatMul(flat(c, "X", rows), c["W"])
    made = made if c.get("Bias0") is None else g.Add(made, c["Bias0"])
    made = activated(c, c.attr("activation_type") or "", made)
    made = g.Add(unflat(c, made, "X", rows), c["Y"])
    x, is_flat = flat_rows(c, made, "Out", axis)
    size = int(np.prod([max(dim, 0) for dim in c.shape("Out")[axis:]]))
    need(size, "its width is open")
    scale = c.get("Scale") or c.number(np.ones(size))
    x = layer_normalized(c, x, scale, c.get("Bias1"), "X", c.attr("epsilon"))
    c.set("Out", g.Reshape(x, g.Shape(made)) if is_flat else x)


@exports("multihead_matmul")
def multihead_matmul(c: Call) -> None:
    """Attention: queries, keys and values by one product, a softmax for each head."""
    g, heads = c.g, c.attr("head_number")
    width, total = c.shape("Input")[2], int(np.prod(c.shape("W")[1:]))
    need(width > 0 and total > 0, "its width is open")
    made = g.MatMul(c["Input"], g.reshape(c["W"], width, total))
    made = g.Add(made, g.reshape(c["Bias"], -1))
    size = total // 3 // heads
    front = g.Slice(g.Shape(c["Input"]), [0], [2])
    made = g.Reshape(made, g.Concat(front, g.ints(3, heads, size), axis=0))
    made = g.Transpose(made, perm=[2, 0, 3, 1, 4])
    query, key, value = (g.Gather(made, np.array(k, np.int64), axis=0) for k in range(3))
    product = g.MatMul(query, g.Transpose(key, perm=[0, 1, 3, 2]))
    scores = g.Add(g.Mul(product, c.number(c.attr("alpha"), "Input")), c["BiasQK"])
    mixed = g.Transpose(g.MatMul(g.Softmax(scores, axis=-1), value), perm=[0, 2, 1, 3])
    c.set("Out", g.reshape(mixed, 0, 0, heads * size))


@exports("fused_gemm_epilogue")
def gemm_epilogue(c: Call) -> None:
    """A product, a bias, and ``Relu`` or nothing."""
    rows = c.attr("x_num_col_dims") or 1
    made = c.g.Add(c.g.MatMul(flat(c, "X", rows), c["Y"]), c["Bias"])
    kind = c.attr("activation")
    made = made if kind in (None, "none") else activated(c, kind, made)
    c.set("Out", unflat(c, made, "X", rows))


@exports("fused_elemwise_activation")
def elementwise_activation(c: Call) -> None:
    """A sum or product and an activation, one after the other."""
    names = list(c.attr("functor_list"))
    binary = next(name for name in names if name.startswith("elementwise"))
    (unary,) = (name for name in names if name != binary)
    axis = -1 if c.attr("axis") is None else c.attr("axis")
    x, y = aligned(c, axis)

    def apply(value: Value) -> Value:
        if unary == "scale":
            made: Value = c.g.Mul(value, c.number(c.attr("scale")))
            return made
        return activated(c, unary, value)

    kind = {"elementwise_add": "Add", "elementwise_mul": "Mul"}[binary]
    first = names[0] == unary
    c.set("Out", apply(c.g.node(kind, x, y)) if first else c.g.node(kind, x, apply(y)))


@exports("fusion_repeated_fc_relu")
def repeated_fc_relu(c: Call) -> None:
    """Products with a bias and ``Relu``, one after the other."""
    x, made = c["X"], []
    for weight, bias in zip(c.all("W"), c.all("Bias"), strict=True):
        x = c.g.Relu(c.g.Add(c.g.MatMul(x, weight), c.g.reshape(bias, -1)))
        made.append(x)
    c.set("ReluOut", made[:-1])
    c.set("Out", x)


@exports("fusion_squared_mat_sub")
def squared_mat_sub(c: Call) -> None:
    """The square of a product less the product of squares, times a number."""
    g, x, y = c.g, c["X"], c["Y"]
    product, squares = g.MatMul(x, y), [g.Mul(x, x), g.Mul(y, y)]
    square = g.Mul(product, product)
    difference = g.Sub(square, g.MatMul(*squares))
    c.set("SquaredX", squares[0])
    c.set("SquaredY", squares[1])
    c.set("SquaredXY", square)
    c.set("Out", g.Mul(difference, c.number(c.attr("scalar"))))


@exports("fused_embedding_seq_pool")
def embedding_seq_pool(c: Call) -> None:
    """Sums of embeddings over sequences."""
    g, rows = c.g, Rows(c.g, c.sequences("Ids"))
    ids = c.typed(c["Ids"], c.dtype("Ids"), np.int64)
    count, width = int(np.prod(c.shape("Ids")[1:])), c.shape("W")[1]
    need(count > 0 and width > 0, "its width is open")
    ids = g.reshape(ids, -1, count)
    found = g.Gather(c["W"], ids)
    padding = c.attr("padding_idx")
    if padding is not None and padding >= 0:
        is_padding = g.Unsqueeze(g.Equal(ids, np.array(padding, np.int64)), [2])
        found = g.Where(is_padding, c.number(0.0, "W"), found)
    found = g.reshape(found, -1, count * width)
    padded = rows.padded(found, 2, c.number(0.0, "W"))
    c.set("Out", g.reduce("ReduceSum", padded, [1]), lengths=())


@exports("fusion_transpose_flatten_concat")
def transpose_flatten_concat(c: Call) -> None:
    """Tensors with their dimensions in another order, as matrices side by side."""
    g = c.g
    parts = [
        g.Flatten(g.Transpose(x, perm=list(c.attr("trans_axis"))), axis=c.attr("flatten_axis"))
        for x in c.all("X")
    ]
    c.set("Out", g.Concat(*parts, axis=c.attr("concat_axis")))
