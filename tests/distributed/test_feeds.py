"""Fed Dask collections go to the replicas' workers, not through the client."""

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas
import pytest
from distributed import Client
from distributed.deploy.subprocess import SubprocessCluster

import dpexec as fluid
from dpexec.engine.core.errors import ClusterError
from dpexec.engine.dask.held import BlockRows, HeldBlocks, HeldRows
from tests.distributed.traffic import client_bytes
from tests.engine.run.nets import (
    Run,
    assert_same_bits,
    batches,
    classifier,
    persistables,
    strategies,
    train,
)

FEATURES, ROWS = 8, 12


def feeds_of(kind):
    """A batch as a Dask collection, and what it is split like as arrays."""
    (feed,) = batches(1, rows=ROWS)
    x, y = feed["x"], feed["y"]
    if kind == "array in a block for each replica":
        lazy = {"x": da.from_array(x, chunks=((7, 5), (3, 5))), "y": y}
        return lazy, [{"x": x[:7], "y": y[:7]}, {"x": x[7:], "y": y[7:]}]
    if kind == "array in other blocks":
        return {"x": da.from_array(x, chunks=((2, 7, 3), (8,))), "y": da.from_array(y)}, feed
    if kind == "dataframe":
        names = [f"x{i}" for i in range(FEATURES)]
        frame = pandas.DataFrame(x, columns=names).assign(y=y[:, 0])
        lazy = dd.from_pandas(frame, npartitions=3)
        return {"x": lazy[names], "y": lazy[["y"]]}, feed
    return {"x": db.from_sequence(list(x), npartitions=3), "y": da.from_array(y, chunks=4)}, feed


KINDS = ["array in a block for each replica", "array in other blocks", "dataframe", "bag"]


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
@pytest.mark.parametrize("kind", KINDS)
def test_same_bits_as_arrays_on_threads(pair, kind, collectives):
    lazy, arrays = feeds_of(kind)
    found = train(classifier(), [lazy] * 2, 2, scheduler=pair, collectives=collectives)
    assert_same_bits(found, train(classifier(), [arrays] * 2, 2))
    assert_same_bits(found, train(classifier(), [lazy] * 2, 2))


def test_several_steps_of_a_run(pair):
    lazy, arrays = feeds_of("array in other blocks")
    options = {"scheduler": pair, "collectives": "gang", "num_iteration_per_run": 3}
    found = train(classifier(), [lazy], 2, **options)
    assert np.array_equal(found.losses[-1], train(classifier(), [arrays] * 3, 2).losses[-1])


def test_list_of_feeds(pair):
    (feed,) = batches(1, rows=ROWS)
    parts = [
        {name: array[rows] for name, array in feed.items()} for rows in (slice(5), slice(5, 12))
    ]
    lazy = [
        {name: da.from_array(array, chunks=2) for name, array in part.items()} for part in parts
    ]
    found = train(classifier(), [lazy], 2, scheduler=pair)
    assert_same_bits(found, train(classifier(), [parts], 2))


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
def test_rows_do_not_come_to_the_client(pair, collectives):
    width = 1 << 12
    lazy = da.ones((256, width), chunks=(64, width), dtype="float32")  # 4 MB
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        total = fluid.layers.reduce_sum(fluid.data("x", [None, width]))
    execution = fluid.ExecutionStrategy()
    execution.scheduler, execution.collectives = pair, collectives
    compiled = fluid.CompiledProgram(main).with_data_parallel(
        exec_strategy=execution, places=fluid.cpu_places(2)
    )
    executor = fluid.Executor(fluid.CPUPlace())
    with client_bytes() as counted:
        (sums,) = executor.run(compiled, feed={"x": lazy}, fetch_list=[total])
    assert sums.tolist() == [128 * width] * 2
    assert counted["bytes"] < lazy.nbytes / 8
    with client_bytes() as counted:
        executor.run(compiled, feed={"x": lazy.compute()}, fetch_list=[total])
    assert counted["bytes"] > lazy.nbytes  # what is counted would have been seen


def test_futures_are_fed_as_delayed_values(pair):
    net, (feed,) = classifier(), batches(1)
    x, y = pair.scatter([feed["x"], feed["y"]])
    with pytest.raises(TypeError, match=r"a Future: feed dask\.delayed\(future\)"):
        train(net, [{"x": x, "y": y}], 2, scheduler=pair)
    delayed = {"x": dask.delayed(x), "y": dask.delayed(y)}
    assert_same_bits(train(net, [delayed], 2, scheduler=pair), train(net, [feed], 2))
    with pytest.raises(TypeError, match=r"make Delayed of futures by dask\.delayed\(future\)"):
        fluid.Executor(fluid.CPUPlace()).train_from_dask(net.main, [x, y])


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
def test_data_that_was_scattered_is_lost_with_its_worker(mortals, collectives):
    """Nobody can compute it again; steps with other feeds go on."""
    net, feeds = classifier(), batches(3)
    second = mortals.addresses()[1]
    held = mortals.client.scatter([feeds[1][name] for name in ("x", "y")], workers=[second])
    lost = dict(zip(("x", "y"), map(dask.delayed, held), strict=True))

    def fed():
        yield feeds[0]
        mortals.lose(second)
        with pytest.raises(ClusterError, match=r"a worker was lost, .* make that again, and feed"):
            exe.run(compiled, feed=lost, fetch_list=[net.loss], scope=scope)
        yield from feeds[1:]

    build, execution = strategies(scheduler=mortals.client, collectives=collectives)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, execution, places=fluid.cpu_places(2)
    )
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup, scope=scope)
    steps = [exe.run(compiled, feed=feed, fetch_list=[net.loss], scope=scope)[0] for feed in fed()]
    run = Run(steps, persistables(net.main, scope), compiled, scope)
    assert_same_bits(run, train(net, feeds, 2))


def test_slices_take_rows_of_the_blocks_where_they_lie():
    sizes = ("a", 4), ("b", 3), ("c", 5)
    blocks = HeldBlocks(BlockRows(name, rows, 0, rows) for name, rows in sizes)
    part = HeldRows(blocks, 0, (12, 2), np.dtype("f4"))[3:8]
    assert part.shape == (5, 2)
    assert [(p.block, p.first, p.end) for p in part.pieces] == [
        ("a", 3, 4),
        ("b", 0, 3),
        ("c", 0, 1),
    ]
    assert [(p.block, p.first, p.end) for p in part[2:4].pieces] == [("b", 1, 3)]


def test_blocks_that_do_not_fit_together_are_named(pair):
    ragged = db.from_sequence(
        [np.zeros(8, "f4"), np.zeros(8, "f4"), np.zeros(7, "f4")], npartitions=3
    )
    with pytest.raises(ValueError, match=r"'x': the blocks of .*\[1, 8\].*\[1, 7\]"):
        train(classifier(), [{"x": ragged, "y": np.zeros((3, 1), "int64")}], 2, scheduler=pair)


def test_wrong_type_is_named_before_anything_runs(pair):
    lazy = da.ones((12, 8), chunks=4)
    with pytest.raises(ValueError, match="'float32', but received 'float64'"):
        train(classifier(), [{"x": lazy, "y": np.zeros((12, 1), "int64")}], 2, scheduler=pair)


def test_scheduler_that_has_to_import_dpexec_first_does_not_seem_silent():
    def import_slowly():
        import sys
        import time

        class Slow:
            def find_spec(self, name, path=None, target=None):
                if name == "dpexec":
                    sys.meta_path.remove(self)
                    time.sleep(4)

        sys.meta_path.insert(0, Slow())
        return "dpexec" in sys.modules

    (feed,) = batches(1)
    feeds = [{name: da.from_array(value, chunks=-1) for name, value in feed.items()}]
    options = {
        "scheduler_kwargs": {"dashboard": False},
        "worker_kwargs": {"preload": ["dpexec.engine.ops"]},
    }
    with (
        SubprocessCluster(worker_class="distributed.Worker", n_workers=1, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        assert client.run_on_scheduler(import_slowly) is False
        run = train(classifier(), feeds, 2, scheduler=client, collective_timeout=2)
    assert_same_bits(run, train(classifier(), [feed], 2))
