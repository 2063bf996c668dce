"""Feeds: division among devices, checks, errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.feeds.splitting import single_feed, split_feed
from dpexec.engine.ir.program import Program


@pytest.fixture
def block():
    block = Program().global_block()
    block.create_var(name="x", shape=[-1, 4], dtype="float32", is_data=True, need_check_feed=True)
    block.create_var(name="y", shape=[-1, 1], dtype="int64", is_data=True)
    block.create_var(name="lr", shape=[1], dtype="float32", persistable=True)
    return block


def batch(rows):
    return {"x": np.ones((rows, 4), "float32"), "y": np.arange(rows).reshape(-1, 1)}


@given(rows=st.integers(1, 12), devices=st.integers(1, 5))
def test_batch_is_split_as_evenly_as_possible(rows, devices):
    block = Program().global_block()
    block.create_var(name="y", shape=[-1, 1], dtype="int64", is_data=True)
    feeds = split_feed(block, {"y": np.arange(rows).reshape(-1, 1)}, devices, partial=False)
    busy = [values["y"] for values in feeds.values if values]
    assert np.array_equal(np.concatenate(busy).ravel(), np.arange(rows))
    assert feeds.samples == [len(part) for part in busy] + [0] * (devices - len(busy))
    assert max(feeds.samples) - min(s for s in feeds.samples if s) <= 1
    assert len(feeds.idle) == max(0, devices - rows)


@pytest.mark.parametrize("rest", [{}, {"y": np.zeros((4, 1), "int64")}], ids=["alone", "beside"])
def test_array_without_dimensions_is_refused_as_on_one_device(block, rest):
    feed, wrong = {"x": np.array(3.0, "float32"), **rest}, r"'x' should have 2 dimensions"
    with pytest.raises((EnforceNotMet, ValueError), match=wrong):
        single_feed(block, feed)
    with pytest.raises((EnforceNotMet, ValueError), match=wrong):
        split_feed(block, feed, 2, partial=False)


def test_array_without_dimensions_goes_to_all_devices_if_nobody_checks(block):
    feeds = split_feed(block, {"y": np.array(3), "x": batch(4)["x"]}, 2, partial=False)
    assert [values["y"].tolist() for values in feeds.values] == [3, 3]
    assert split_feed(block, {"y": np.array(3)}, 2, partial=False).samples == [1, 1]


def test_list_feed_keeps_ragged_batches(block):
    feeds = split_feed(block, [batch(3), batch(1)], 2, partial=False)
    assert feeds.samples == [3, 1]


def test_devices_count_alike_if_the_variables_of_a_list_disagree(block):
    graphs = [{"x": batch(nodes)["x"], "y": batch(edges)["y"]} for nodes, edges in [(3, 5), (2, 2)]]
    assert split_feed(block, graphs, 2, partial=False).samples == [1, 1]
    assert split_feed(block, graphs[:1], 2, partial=True).samples == [1, 0]


@pytest.mark.parametrize(
    ("feed", "error", "message"),
    [
        (3, TypeError, "int"),
        ([3, 4], TypeError, "Each element of feed list should be a dict"),
        ([batch(1)] * 3, IndexError, "3 elements for 2 devices"),
        ([batch(1)], EnforceNotMet, "number 1 does not match the device number 2"),
        ([batch(1), {}], EnforceNotMet, "number 1 does not match the device number 2"),
        ({"nope": np.ones(2)}, ValueError, "nope not in this block: this program is fed x, y"),
        ({"x": np.ones((4, 3), "float32")}, ValueError, r"'x'.*\[2, 3\] on each device"),
        (
            {"x": np.ones((4, 4))},
            ValueError,
            r"'x' must be 'float32', but received 'float64': .* array.astype\('float32'\)\n",
        ),
        ({"x": np.ones(4, "float32")}, EnforceNotMet, r"'x' should have 2 dimensions.*shape \[2\]"),
        ({"x": np.ones((4, 2, 2), "float32")}, ValueError, "'x' should have 2 dimensions"),
        ({"lr": np.ones(2)}, EnforceNotMet, "'lr' must be 'float32'"),
        ({"x": np.ones((0, 4), "float32")}, EnforceNotMet, "empty"),
        ({"x": [[1.0] * 4]}, RuntimeError, "'x' is a list"),
        (
            {"x": batch(4)["x"], "y": np.ones((1, 1), "int64")},
            EnforceNotMet,
            "'y'.*cannot be split over 2 devices: .* have 4 samples, and it has 1",
        ),
        ({"lr": np.ones(0, "float32")}, EnforceNotMet, "'lr' is persistable"),
    ],
)
def test_wrong_feed_is_refused(block, feed, error, message):
    with pytest.raises(error, match=message):
        split_feed(block, feed, 2, partial=False)


def test_prediction_takes_short_lists(block):
    feeds = split_feed(block, [batch(2), {}], 3, partial=True)
    assert feeds.samples == [2, 0, 0]


def test_persistable_row_goes_to_all_or_each(block):
    one = split_feed(block, {**batch(4), "lr": np.array([0.5], "float32")}, 2, partial=False)
    assert [float(v["lr"][0]) for v in one.values] == [0.5, 0.5]
    each = split_feed(block, {**batch(4), "lr": np.array([0.5, 0.25], "float32")}, 2, partial=False)
    assert [float(v["lr"][0]) for v in each.values] == [0.5, 0.25]
    assert each.persistable == {"lr"}
    more = split_feed(block, {**batch(4), "lr": np.ones(5, "float32")}, 2, partial=False)
    assert [len(v["lr"]) for v in more.values] == [3, 2]


def test_persistable_row_makes_no_device_busy(block):
    feeds = split_feed(block, {**batch(1), "lr": np.array([0.5], "float32")}, 3, partial=False)
    assert feeds.idle == (1, 2)
    assert [float(v["lr"][0]) for v in feeds.values] == [0.5, 0.5, 0.5]  # updates read it


def test_prediction_takes_a_persistable_row_for_each_busy_device(block):
    feed = {**batch(2), "lr": np.array([0.5, 0.25], "float32")}
    feeds = split_feed(block, feed, 3, partial=True)
    assert [float(v["lr"][0]) for v in feeds.values[:2]] == [0.5, 0.25]
    assert feeds.idle == (2,) and not feeds.values[2]
    with pytest.raises(EnforceNotMet, match="1 row for all devices, or at least 3"):
        split_feed(block, feed, 3, partial=False)


def test_single_feed_unwraps_lists_and_scalars(block):
    feeds = single_feed(block, [{"lr": 0.5}])
    assert feeds.values[0]["lr"].dtype == np.float32 and feeds.values[0]["lr"].shape == (1,)
    with pytest.raises(ValueError, match="nope"):
        single_feed(block, {"nope": np.ones(2)})
    with pytest.raises(AssertionError, match="Not compiled with data parallel"):
        single_feed(block, [{}, {}])


def test_sequences_of_a_variable_without_are_refused_by_name(block):
    tensor = LoDTensor()
    tensor.set(np.ones((3, 4), "float32"))
    tensor.set_recursive_sequence_lengths([[1, 2]])
    with pytest.raises(EnforceNotMet, match=r"'x' holds sequences .* declare it with lod_level=1"):
        single_feed(block, {"x": tensor})


@pytest.mark.parametrize("kind", [np.matrix, np.ma.MaskedArray, np.memmap])
def test_subclasses_of_arrays_are_fed_as_arrays(block, kind):
    feed = batch(4)
    values = single_feed(block, {**feed, "x": feed["x"].view(kind)}).values[0]
    assert type(values["x"]) is np.ndarray
    np.testing.assert_array_equal(values["x"], feed["x"])


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text", "str"),
        (None, "NoneType"),
        (np.array(["a"]), "<U1 array"),
        (np.ones(4, "complex64"), "complex64 array"),
    ],
)
def test_what_is_no_number_is_named(block, value, kind):
    feed = {**batch(4), "x": value}
    for check in (lambda: single_feed(block, feed), lambda: split_feed(block, feed, 2, False)):
        with pytest.raises(TypeError, match=f"'x': cannot make a tensor of {kind}"):
            check()


@pytest.mark.parametrize(
    ("declared", "shape", "error", "remedy"),
    [
        ([None, 1], (8,), EnforceNotMet, r"array.reshape\(\[-1, 1\]\)\n"),
        ([None, 1, 28, 28], (8, 28, 28), ValueError, r"array.reshape\(\[-1, 1, 28, 28\]\)\n"),
        ([None, None, 1], (8, 5), EnforceNotMet, r"array.reshape\(\[-1, 5, 1\]\)\n"),
        ([None, 3, 1], (8, 4), ValueError, r"fed shape \[8, 4\]\n"),
        ([None, 3], (8,), EnforceNotMet, r"fed shape \[8\]\n"),
    ],
)
def test_missing_dimensions_of_one_are_named(declared, shape, error, remedy):
    block = Program().global_block()
    block.create_var(name="image", shape=declared, is_data=True, need_check_feed=True)
    with pytest.raises(error, match=remedy):
        single_feed(block, {"image": np.ones(shape, "float32")})


def test_keys_of_a_feed_are_names(block):
    with pytest.raises(ValueError, match="names: 'x', not the Variable itself"):
        single_feed(block, {block.var("x"): np.ones((4, 4), "float32")})


def test_tuples_are_arrays(block):
    """As in Paddle, which refuses lists alone."""
    rows = tuple(np.full((3, 4), number, "float32")[number] for number in range(3))
    fed = single_feed(block, {"x": rows}).values[0]
    np.testing.assert_array_equal(fed["x"], np.array(rows))
    with pytest.raises(TypeError, match="'x' is a tuple and no array"):
        single_feed(block, {"x": (np.ones(4, "float32"), np.ones(3, "float32"))})


def test_feed_of_one_device_is_one_dict(block):
    with pytest.raises(AssertionError, match=r"the feed is a tuple of 2, .* feed one dict"):
        single_feed(block, (np.ones((4, 4), "float32"), np.ones((4, 1), "int64")))
