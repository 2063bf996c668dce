"""Batches that a loader has read ahead are split before they are fed, and then recognised."""

import copy
import gc
import weakref

import numpy as np
import pytest

from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.feeds.coming import Coming, hand_out
from dpexec.engine.feeds.splitting import Feeds
from dpexec.reading.prefetch import Prefetch


def batch(number):
    tensor = LoDTensor()
    tensor.set(np.full((2, 1), number, "float32"))
    return {"x": tensor}


class Splits:
    """Makes feeds, and counts how often."""

    def __init__(self):
        self.count = 0

    def __call__(self, feed):
        self.count += 1
        return Feeds([{"x": feed["x"].array}], [2])


@pytest.fixture
def source():
    """Three batches that were pushed."""
    found = Prefetch(None, 4)
    for number in range(3):
        found.push(batch(number))
    return found


def take(source):
    found = next(source)
    hand_out(found, source)
    return found


def test_a_batch_is_split_once_and_stays_where_it_is(source):
    split = Splits()
    coming = Coming(split, 1)
    first = coming.feeds_of(take(source))
    (ahead,) = coming.after(first)
    assert ahead.values[0]["x"][0, 0] == 1
    assert source.waiting() == 2
    assert coming.after(first) == [ahead]
    assert coming.feeds_of({"x": take(source)["x"]}) is ahead
    assert split.count == 2


def test_as_many_are_found_as_a_run_takes_if_they_are_there(source):
    coming = Coming(Splits(), 3)
    found = coming.after(coming.feeds_of(take(source)))
    assert [feeds.values[0]["x"][0, 0] for feeds in found] == [1, 2]


def test_only_the_latest_feeds_have_something_after_them(source):
    coming = Coming(Splits(), 1)
    first = coming.feeds_of(take(source))
    coming.feeds_of(batch(7))  # of no loader
    assert coming.after(first) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: tensor.set(np.array(tensor)),
        lambda tensor: tensor.set_lod([[0, 1, 2]]),
        lambda tensor: tensor.numpy(),
        lambda tensor: tensor._to_dlpack(),
        lambda tensor: tensor._set_float_element(0, 3.0),
    ],
    ids=["set", "offsets", "memory", "dlpack", "element"],
)
def test_who_may_have_changed_a_tensor_is_believed_to(source, change):
    split = Splits()
    coming = Coming(split, 1)
    coming.after(coming.feeds_of(take(source)))
    feed = take(source)
    change(feed["x"])
    assert np.array_equal(coming.feeds_of(feed).values[0]["x"], feed["x"].array)
    assert split.count == 3


def test_reading_a_tensor_changes_nothing(source):
    coming = Coming(Splits(), 1)
    (ahead,) = coming.after(coming.feeds_of(take(source)))
    feed = take(source)
    for read in str, np.array, len, lambda tensor: tensor[0]:
        read(feed["x"])
    assert coming.feeds_of(feed) is ahead


def test_what_cannot_be_split_is_no_matter_of_the_run_before(source):
    def split(feed):
        if feed["x"].array[0, 0]:
            raise ValueError("wrong")
        return Feeds([{}], [1])

    coming = Coming(split, 1)
    assert coming.after(coming.feeds_of(take(source))) == []
    with pytest.raises(ValueError, match="wrong"):
        coming.feeds_of(take(source))


def test_loaders_are_not_kept():
    source = Prefetch(None, 4)
    for number in range(2):
        source.push(batch(number))
    coming = Coming(Splits(), 1)
    feed = take(source)
    first = coming.feeds_of(feed)
    gone = weakref.ref(source), weakref.ref(coming.after(first)[0])
    del source
    gc.collect()
    assert [found() for found in gone] == [None, None]
    assert coming.after(first) == []
    assert copy.deepcopy(feed["x"]).origin is None
