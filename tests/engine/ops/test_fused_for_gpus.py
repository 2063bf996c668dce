"""Fused operators of Paddle's GPU passes, compared with the operators that they replace."""

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


ACTIVATIONS = {"identity": lambda x: x, "relu6": lambda x: np.clip(x, 0, 6)}


def convolved(x, weight, bias, residual=None, activation="relu", **attrs):
    layout = "NCHW" if x.ndim == 4 else "NCDHW"
    plain = {name: [value] * (x.ndim - 2) for name, value in (("strides", 1), ("dilations", 1))}
    attrs = {**plain, "paddings": [0] * (x.ndim - 2), **attrs, "data_format": layout}
    made = opdef.get("conv2d" if x.ndim == 4 else "conv3d").kernel(np, x, weight, None, **attrs)
    made = made + bias.reshape(-1, *[1] * (x.ndim - 2)) + (0 if residual is None else residual)
    return ACTIVATIONS.get(activation, lambda x: call(activation, x))(made)


def fused_convolution(x, weight, bias, residual, cache, *, split_channels=(), **attrs):
    return convolved(x, weight, bias, residual, **attrs)


def inception(x, filters, biases, *, pooling_type, exclusive=True, activation="relu"):
    """As an inception net writes it: convolutions of images, of parts, side by side."""
    (a, b, c, d), (e, f, g, h) = filters, biases
    window = {"ksize": [3, 3], "strides": [1, 1], "paddings": [1, 1], "data_format": "NCHW"}
    pooled = call("pool2d", x, pooling_type=pooling_type, exclusive=exclusive, **window)
    act = {"activation": activation}
    second = convolved(x, b, f, **act)
    own, left, right = np.split(second, [-2 * c.shape[1], -c.shape[1]], axis=1)
    half = len(c) // 2
    third = [
        convolved(left, c[:half], g[:half], paddings=[1, 1], **act),
        convolved(right, c[half:], g[half:], paddings=[1, 1], **act),
    ]
    kept, taken = np.split(np.concatenate(third, axis=1), [-d.shape[1]], axis=1)
    last = convolved(taken, d, h, paddings=[1, 1], **act)
    return np.concatenate([convolved(pooled, a, e, **act), own, kept, last], axis=1)


REPLACED = {
    "conv2d_fusion": fused_convolution,
    "conv2d_inception_fusion": inception,
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
        found = made.forward()[made.outputs[definition.outputs[0].name][0]]
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


def test_parts_of_the_channels_are_outputs_of_their_own():
    sample = next(s for s in samples("conv2d_fusion") if s.attrs.get("split_channels") == [1, 3, 2])
    made = SampleCall("conv2d_fusion", sample, np.float32)
    values = made.forward()
    parts = [values[name] for name in made.outputs["Outputs"]]
    assert [part.shape[1] for part in parts] == [1, 3, 2]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), values[made.outputs["Output"][0]])


@pytest.mark.parametrize("attrs", [{"transpose_Q": True}, {"transpose_K": False}])
def test_heads_whose_attributes_paddle_ignores_are_refused(attrs):
    sample = samples("multihead_matmul")[0]
    with pytest.raises(opdef.InvalidOp, match="only keys are transposed"):
        SampleCall("multihead_matmul", type(sample)(sample.inputs, sample.attrs | attrs), "float32")
