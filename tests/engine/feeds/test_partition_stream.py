"""A stream of partitions: their order, shuffling, and division into batches."""

import itertools

import dask
import numpy as np
import pytest
from dask import delayed
from hypothesis import given
from hypothesis import strategies as st

from dpexec.engine.dask.mixing import groups_of
from dpexec.engine.feeds.partition_stream import PartitionStream, batches_of


def parts(sizes):
    """Partitions whose rows are numbered."""
    ends = np.cumsum([0, *sizes])
    return [
        {"x": np.arange(first, end).reshape(-1, 1), "y": np.arange(first, end)}
        for first, end in itertools.pairwise(ends)
    ]


def lazy(sizes, calls=None):
    def load(index, part):
        if calls is not None:
            calls.append(index)
        return part

    return [delayed(load)(index, part) for index, part in enumerate(parts(sizes))]


@given(
    windows=st.lists(st.lists(st.integers(0, 7), max_size=3), max_size=5),
    size=st.integers(1, 6),
    drop_last=st.booleans(),
)
def test_batches_follow_from_the_order_of_rows_alone(windows, size, drop_last):
    sizes = [rows for window in windows for rows in window]
    found, end, come = parts(sizes), 0, []
    for window in windows:
        come.append(found[end : end + len(window)])
        end += len(window)
    made = [batch for some in batches_of(come, size, drop_last) for batch in some]
    rows = np.arange(sum(sizes))
    wanted = [rows[first : first + size] for first in range(0, len(rows), size)]
    if drop_last:
        wanted = [batch for batch in wanted if len(batch) == size]
    assert [batch["y"].tolist() for batch in made] == [batch.tolist() for batch in wanted]
    assert all(np.array_equal(batch["x"][:, 0], batch["y"]) for batch in made)


def test_a_batch_comes_as_soon_as_its_rows_are_there():
    batches = batches_of(iter([[part] for part in parts([5, 2, 4])]), 4, False)
    assert [len(some) for some in batches] == [1, 0, 1, 1]


def test_partitions_are_computed_one_after_another():
    calls = []
    stream = PartitionStream(lazy([3, 2, 4], calls), 0, 0, None).epoch(0)
    for number in range(3):
        next(stream)
        assert calls == list(range(number + 1))


def rows_of(sizes, mixed, seed=3, epoch=0):
    stream = PartitionStream(lazy(sizes), mixed, seed, None)
    found = [rows for some in stream.epoch(epoch) for rows in some]
    assert all(np.array_equal(rows["x"][:, 0], rows["y"]) for rows in found)
    return [rows["y"].tolist() for rows in found]


def flat(rows):
    return list(itertools.chain.from_iterable(rows))


@pytest.mark.parametrize("mixed", [1, 2, 5])
def test_mixed_rows_are_all_rows_in_another_order(mixed):
    sizes = [30, 0, 50, 1, 40]
    found = flat(rows_of(sizes, mixed))
    assert sorted(found) == list(range(sum(sizes))) and found != sorted(found)
    assert flat(rows_of(sizes, mixed)) == found
    assert flat(rows_of(sizes, mixed, seed=4)) != found
    assert flat(rows_of(sizes, mixed, epoch=1)) != found


def test_rows_are_mixed_with_those_of_their_group():
    sizes = [40] * 4
    groups = groups_of(4, 2, 5, 0)
    assert sorted(flat(groups)) == [0, 1, 2, 3] and groups != [[0, 1], [2, 3]]
    new = rows_of(sizes, 2, seed=5)
    for group, first in zip(groups, (0, 2), strict=True):
        for rows in new[first : first + 2]:
            assert {row // 40 for row in rows} == set(group)
    (whole,) = rows_of([100], 1)
    assert sorted(whole) == list(range(100))


def test_what_fails_is_named():
    def fail():
        raise KeyError("no file")

    stream = PartitionStream([*lazy([2]), delayed(fail)()], 0, 0, None).epoch(0)
    next(stream)
    with pytest.raises(KeyError) as failed:
        next(stream)
    assert failed.value.__notes__ == ["Partition 1 of the collection was being computed."]


def test_mixing_computes_each_partition_once():
    calls = []
    with dask.config.set(scheduler="sync"):
        stream = PartitionStream(lazy([3, 2, 4], calls), 3, 0, None)
        assert len(list(stream.epoch(0))) == 3
    assert sorted(calls) == [0, 1, 2]
