"""Operators that Paddle's passes make for GPUs alone, against the operators that they replace."""

import numpy as np
import pytest

from dpexec.engine.ir import opdef
from tests.engine.ops.calls import SampleCall, samples


def call(type, *inputs, **attrs):
    made = opdef.get(type)(np, *inputs, **attrs)
    return made[0] if isinstance(made, tuple) else made


def attention(x, w, bias, bias_qk, *, head_number, alpha=1.0):
    """As ERNIE's layers write it: three products, heads by reshape2 and transpose2."""

    def heads(part):
        made = call("mul", x, np.ascontiguousarray(w[:, part]), x_num_col_dims=2)
        made = call("elementwise_add", made, bias[part], axis=2)
        split = made.reshape(*made.shape[:2], head_number, -1)
        return split.transpose(0, 2, 1, 3)

    q, k, v = map(heads, range(3))
    scores = call("matmul", q, k, transpose_Y=True, alpha=alpha) + bias_qk
    mixed = call("matmul", call("softmax", scores), v).transpose(0, 2, 1, 3)
    return mixed.reshape(*mixed.shape[:2], -1)


def skip(x, y, scale, bias, **attrs):
    return call("layer_norm", call("elementwise_add", x, y), scale, bias, **attrs)


def product(x, w, bias, y, scale, shift, *, x_num_col_dims=1, activation_type="", **attrs):
    made = call("mul", x, w, x_num_col_dims=x_num_col_dims)
    made = made if bias is None else made + bias.reshape(-1)
    made = call("relu", made) if activation_type else made
    return call("layer_norm", made + y, scale, shift, **attrs)


def embeddings(ids, tables, bias, scale, **attrs):
    rows = [
        call("lookup_table_v2", table, numbers.reshape(numbers.shape[:2]))
        for numbers, table in zip(ids, tables, strict=True)
    ]
    return call("layer_norm", call("sum", rows), scale, bias, begin_norm_axis=2, **attrs)


def joined(x, *, trans_axis, flatten_axis, concat_axis):
    parts = [
        call("flatten", call("transpose", array, axis=trans_axis), axis=flatten_axis) for array in x
    ]
    return call("concat", parts, None, axis=concat_axis)


REPLACED = {
    "multihead_matmul": attention,
    "skip_layernorm": skip,
    "fused_fc_elementwise_layernorm": product,
    "fused_embedding_eltwise_layernorm": embeddings,
    "fusion_transpose_flatten_concat": joined,
}


@pytest.mark.parametrize("type", REPLACED)
def test_it_computes_what_the_operators_compute(type):
    definition = opdef.get(type)
    for sample in samples(type):
        made = SampleCall(type, sample, np.float32)
        found = made.forward()[made.outputs["Out"][0]]
        inputs = [
            [made.values[name] for name in made.inputs.get(slot.name, [])]
            for slot in definition.inputs
        ]
        given = [
            values if slot.many else (values or [None])[0]
            for slot, values in zip(definition.inputs, inputs, strict=True)
        ]
        expected = REPLACED[type](*given, **sample.attrs)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
