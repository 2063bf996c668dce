"""Dropout: probabilities, scaling, and masks that are divided among devices."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.random import RandomStream
from dpexec.engine.ir import opdef
from tests.engine.ops import calls

assert calls  # registers the operators


def dropout(x, start=(0, 1), seed=None, key=5, **attrs):
    stream = RandomStream(seed=3, key=key, run=2, start=start)
    return opdef.get("dropout")(np, x, seed, rng=stream, **attrs)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_share_of_zeros_is_the_probability(probability):
    _, mask = dropout(np.ones((200, 500), np.float32), dropout_prob=probability)
    assert abs(mask.mean() - (1 - probability)) < 0.005


@pytest.mark.parametrize("probability", [0.0, 1.0])
@pytest.mark.parametrize("how", ["upscale_in_train", "downgrade_in_infer"])
def test_extreme_probabilities_keep_or_drop_everything(probability, how):
    x = np.arange(1, 5, dtype=np.float32)
    out, mask = dropout(x, dropout_prob=probability, dropout_implementation=how)
    np.testing.assert_array_equal(out, x * (1 - probability))
    np.testing.assert_array_equal(mask, np.full(4, 1 - probability))


def test_upscaling_keeps_the_expectation():
    out, mask = dropout(
        np.ones((8, 8), np.float32), dropout_prob=0.2, dropout_implementation="upscale_in_train"
    )
    np.testing.assert_array_equal(out, mask * np.float32(1.25))


def test_masks_of_shards_together_are_the_mask_of_the_batch():
    x = np.ones((6, 40), np.float32)
    _, whole = dropout(x, start=(0, 6))
    _, first = dropout(x[:4], start=(0, 4))
    _, second = dropout(x[4:], start=(4, 2))
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)


def test_mask_drops_exactly_where_the_uniform_number_is_below_the_probability():
    _, mask = dropout(np.ones(1000, np.float32), dropout_prob=0.3)
    numbers = RandomStream(seed=3, key=5, run=2).uniform(np, (1000,))
    np.testing.assert_array_equal(mask, numbers >= 0.3)


def test_test_run_scales_and_makes_no_mask():
    x = np.arange(4, dtype=np.float32)
    out, mask = dropout(x, dropout_prob=0.25, is_test=True)
    np.testing.assert_array_equal(out, x * np.float32(0.75))
    assert mask is None
    out, _ = dropout(x, is_test=True, dropout_implementation="upscale_in_train")
    np.testing.assert_array_equal(out, x)


def test_seed_variable_stands_for_the_seed_of_the_stream():
    x = np.ones((4, 50), np.float32)
    _, mask = dropout(x)
    _, same = dropout(x, seed=np.array([3], np.int32))
    _, other = dropout(x, seed=np.array([4], np.int32))
    np.testing.assert_array_equal(mask, same)
    assert (mask != other).any()


def test_seed_operator_gives_its_attribute_or_a_new_number_in_each_run():
    def seed(run, **attrs):
        return opdef.get("seed")(np, rng=RandomStream(seed=3, key=5, run=run), **attrs)

    assert seed(1, seed=42).tolist() == [42]
    assert seed(1).tolist() == seed(1).tolist() != seed(2).tolist()
    assert seed(1).dtype == np.int32


def test_gradient_of_a_test_is_refused_where_it_is_asked_for():
    loss = fluid.layers.mean(fluid.layers.dropout(fluid.data("x", [None, 3]), 0.5, is_test=True))
    loss.block.var("x").stop_gradient = False
    with pytest.raises(fluid.core.EnforceNotMet, match="is_test"):  # Paddle's class and place
        fluid.backward.append_backward(loss)
