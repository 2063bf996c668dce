"""Dask collections as feeds: blocks for each device, uneven blocks, errors."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.feeds.splitting import single_feed, split_feed
from dpexec.engine.ir.program import Program

X = np.arange(12, dtype="float32").reshape(6, 2)
Y = np.arange(6).reshape(6, 1)


@pytest.fixture
def block():
    block = Program().global_block()
    block.create_var(name="x", shape=[-1, 2], dtype="float32", is_data=True, need_check_feed=True)
    block.create_var(name="y", shape=[-1, 1], dtype="int64", is_data=True)
    block.create_var(name="lr", shape=[1], dtype="float32", persistable=True)
    return block


def rows(feeds, name="x"):
    return [len(values[name]) for values in feeds.values]


def test_a_block_of_rows_for_each_device(block):
    feed = {"x": da.from_array(X, chunks=((4, 2), (1, 1))), "y": Y}
    feeds = split_feed(block, feed, 2, partial=False)
    assert rows(feeds) == rows(feeds, "y") == feeds.samples == [4, 2]
    assert np.array_equal(np.concatenate([v["x"] for v in feeds.values]), X)
    assert np.array_equal(np.concatenate([v["y"] for v in feeds.values]), Y)


@pytest.mark.parametrize("chunks", [6, 1, (4, 1, 1)])
def test_other_blocks_are_split_evenly(block, chunks):
    lazy = da.from_array(X, chunks=(chunks, 2))
    feeds = split_feed(block, {"x": lazy, "y": da.from_array(Y, chunks=6)}, 2, partial=False)
    assert rows(feeds) == rows(feeds, "y") == [3, 3]


def test_unknown_sizes_are_split_evenly(block):
    lazy = da.from_array(X, chunks=(3, 2))
    feeds = split_feed(block, {"x": lazy[lazy[:, 0] >= 2]}, 2, partial=False)
    assert rows(feeds) == [3, 2]


def test_one_device_and_lists(block):
    lazy = da.from_array(X, chunks=(3, 2))
    assert np.array_equal(single_feed(block, {"x": lazy}).values[0]["x"], X)
    lists = split_feed(block, [{"x": lazy[:4]}, {"x": dask.delayed(X)}], 2, partial=False)
    assert rows(lists) == [4, 6]


def test_collections_of_a_feed_are_computed_once_together(block):
    calls = []

    def load():
        calls.append(1)
        return X

    loaded = da.from_delayed(dask.delayed(load)(), X.shape, X.dtype)
    feed = {"x": loaded, "y": loaded[:, :1].astype("int64")}
    split_feed(block, feed, 2, partial=False)
    assert len(calls) == 1


def test_blocks_that_do_not_fit(block):
    x = da.from_array(X, chunks=((4, 2), (2,)))
    with pytest.raises(ValueError, match=r"differ in their rows.*\[4, 2\].*\[3, 3\]"):
        split_feed(block, {"x": x, "y": da.from_array(Y, chunks=3)}, 2, partial=False)
    with pytest.raises(EnforceNotMet, match=r"'y' of shape .5, 1. cannot be split"):
        split_feed(block, {"x": x, "y": Y[:5]}, 2, partial=False)
    with pytest.raises(ValueError, match="'float32', but received 'float64'"):
        split_feed(block, {"x": x.astype("float64")}, 2, partial=False)


def test_blocks_do_not_split_persistable_variables(block):
    lr = da.from_array(np.array([0.5, 0.25], "float32"), chunks=1)
    feeds = split_feed(block, {"x": X, "lr": lr}, 2, partial=False)
    assert rows(feeds) == [3, 3]
    assert [float(v["lr"][0]) for v in feeds.values] == [0.5, 0.25]


def frame(partitions):
    columns = {"a": X[:, 0], "b": X[:, 1], "label": Y[:, 0]}
    return dd.from_pandas(pandas.DataFrame(columns), npartitions=partitions)


def test_a_partition_of_a_dataframe_for_each_device(block):
    whole = frame(2)
    whole = whole[whole["a"] > 0]  # so that the partitions' sizes are unknown before
    feeds = split_feed(block, {"x": whole[["a", "b"]], "y": whole[["label"]]}, 2, partial=False)
    assert rows(feeds) == rows(feeds, "y") == [2, 3]
    assert np.array_equal(np.concatenate([v["x"] for v in feeds.values]), X[1:])
    assert np.array_equal(np.concatenate([v["y"] for v in feeds.values]), Y[1:])


@pytest.mark.parametrize("part", [0, 1])
def test_random_rows_of_a_dataframe_are_those_that_dask_computes(block, part):
    whole = dd.from_pandas(pandas.DataFrame({"a": np.arange(400.0), "b": 1.0}), npartitions=4)
    chosen = whole.random_split([0.7, 0.3], random_state=0)[part].astype("float32")
    (values,) = split_feed(block, {"x": chosen}, 1, partial=False).values
    assert np.array_equal(values["x"], chosen.compute().to_numpy())


def test_other_partitions_are_split_evenly(block):
    feeds = split_feed(block, {"x": frame(3)[["a", "b"]], "y": Y}, 2, partial=False)
    assert rows(feeds) == [3, 3]
    assert np.array_equal(single_feed(block, {"x": frame(3)[["a", "b"]]}).values[0]["x"], X)


def test_dataframes_of_several_types_are_refused(block):
    with pytest.raises(TypeError, match=r"'x' is a Dask dataframe .*float32, int64.*columns"):
        single_feed(block, {"x": frame(2)})


@pytest.mark.parametrize("whole", [frame(2), frame(2).compute()], ids=["dask", "pandas"])
@pytest.mark.parametrize("declared", [[-1, 1], [-1]])
def test_a_column_feeds_what_is_declared_as_one(whole, declared):
    block = Program().global_block()
    block.create_var(name="y", shape=declared, dtype="int64", is_data=True, need_check_feed=True)
    expected = Y if len(declared) == 2 else Y[:, 0]
    feed = {"y": whole["label"]}
    assert np.array_equal(single_feed(block, feed).values[0]["y"], expected)
    for fed in (feed, [{"y": whole["label"]}, {"y": whole["label"]}]):
        values = [shard["y"] for shard in split_feed(block, fed, 2, partial=False).values]
        assert [array.ndim for array in values] == [len(declared)] * 2
    assert np.array_equal(np.concatenate(values), np.concatenate([expected, expected]))


@pytest.mark.parametrize("whole", [frame(2), frame(2).compute()], ids=["dask", "pandas"])
def test_a_column_of_another_type_or_shape_is_named(block, whole):
    with pytest.raises(EnforceNotMet, match=r"'x' should have 2 dimensions, .*-1, 2.*shape \[6\]"):
        single_feed(block, {"x": whole["a"]})
    block.create_var(name="z", shape=[-1, 1], is_data=True, need_check_feed=True)
    with pytest.raises(ValueError, match=r"'z' must be 'float32', but received 'int64'.*astype"):
        single_feed(block, {"z": whole["label"]})


def test_a_run_on_dask_arrays():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        total = fluid.layers.reduce_sum(fluid.data("x", [None, 2]))
    program = fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(2))
    exe = fluid.Executor(fluid.CPUPlace())
    lazy = da.from_array(X, chunks=((4, 2), (2,)))
    assert exe.run(main, feed={"x": lazy}, fetch_list=[total])[0] == 66
    results = exe.run(program, feed={"x": lazy}, fetch_list=[total])[0]
    assert results.tolist() == [28, 38]
