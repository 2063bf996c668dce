"""Small networks used as one layer (their operators are compared in tests/parity)."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import nets


def x(*shape, name="x"):
    return fluid.data(name, list(shape))


def types():
    return [op.type for op in fluid.default_main_program().global_block().ops]


def run(feed, fetch):
    with fluid.scope_guard(fluid.Scope()):
        return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[fetch])[0]


def test_simple_img_conv_pool():
    out = nets.simple_img_conv_pool(x(None, 1, 28, 28), 20, 5, 2, 2, act="relu")
    assert types() == ["conv2d", "elementwise_add", "relu", "pool2d"]
    assert out.shape == (-1, 20, 12, 12)


def test_img_conv_group_takes_lists():
    out = nets.img_conv_group(
        x(None, 3, 8, 8),
        conv_num_filter=[4, 6],
        pool_size=2,
        pool_stride=2,
        conv_act="relu",
        conv_with_batchnorm=[True, False],
        conv_batchnorm_drop_rate=[0.5, 0.0],
    )
    conv = ["conv2d", "elementwise_add"]
    assert types() == [*conv, "batch_norm", "relu", "dropout", *conv, "relu", "pool2d"]
    assert out.shape == (-1, 6, 4, 4)


def test_img_conv_group_checks_lengths():
    with pytest.raises(AssertionError, match="conv_padding has 3 entries, not 2"):
        nets.img_conv_group(x(None, 3, 8, 8), [4, 6], 2, conv_padding=[1, 1, 1])
    with pytest.raises(AssertionError, match="conv_num_filter"):
        nets.img_conv_group(x(None, 3, 8, 8), 4, 2)


def test_glu_gates_one_half_with_the_other():
    values = np.random.default_rng(0).standard_normal((3, 6)).astype("float32")
    out = run({"x": values}, nets.glu(x(None, 6)))
    expected = values[:, :3] / (1 + np.exp(-values[:, 3:]))
    np.testing.assert_allclose(out, expected, rtol=1e-5)


def test_attention_is_a_weighted_mean_of_values():
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.standard_normal(shape).astype("float32") for shape in ((2, 3, 4), (2, 5, 4), (2, 5, 6))
    )
    out = nets.scaled_dot_product_attention(
        x(2, 3, 4, name="q"), x(2, 5, 4, name="k"), x(2, 5, 6, name="v")
    )
    scores = np.exp(q @ k.transpose(0, 2, 1) / 2)
    expected = scores / scores.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(run({"q": q, "k": k, "v": v}, out), expected, rtol=1e-4)


def test_attention_with_heads_and_dropout():
    q, k, v = x(2, 3, 4, name="q"), x(2, 5, 4, name="k"), x(2, 5, 6, name="v")
    out = nets.scaled_dot_product_attention(q, k, v, num_heads=2, dropout_rate=0.1)
    assert out.shape == (2, 3, 6)
    assert types().count("mul") == 3
    assert "dropout" in types()


@pytest.mark.parametrize(
    ("q", "k", "v", "heads", "text"),
    [
        ((2, 3, 4), (2, 5, 3), (2, 5, 6), 1, "one width"),
        ((2, 3, 4), (2, 5, 4), (2, 4, 6), 1, "one length"),
        ((2, 3, 4), (2, 5, 4), (2, 5, 6), 3, "3 heads"),
        ((3, 4), (2, 5, 4), (2, 5, 6), 1, "three dimensions"),
    ],
)
def test_attention_checks_shapes(q, k, v, heads, text):
    with pytest.raises(ValueError, match=text):
        nets.scaled_dot_product_attention(
            x(*q, name="q"), x(*k, name="k"), x(*v, name="v"), num_heads=heads
        )


def test_sequence_conv_pool():
    words = fluid.data("words", [None, 4], lod_level=1)
    nets.sequence_conv_pool(words, 3, 2)
    assert types() == ["sequence_conv", "elementwise_add", "sigmoid", "sequence_pool"]
