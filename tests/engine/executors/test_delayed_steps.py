"""``Executor.delayed``, and plans as Dask collections, on the schedulers of one process."""

import gc
import weakref
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import AuthenticationError, get_context
from multiprocessing.connection import Client
from multiprocessing.pool import ThreadPool

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from dask.diagnostics import CacheProfiler, Profiler, ProgressBar
from dask.dot import to_graphviz
from dask.order import order
from dask.utils import key_split

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.executors.steps_elsewhere import _door
from tests.engine.run.nets import AllReduce, Reduce, batches, classifier, persistables, strategies


class Training:
    """A classifier that has been initialised, on two devices."""

    def __init__(self, **options):
        self.net, self.scope = classifier(dropout=0.2), fluid.Scope()
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(self.net.startup, scope=self.scope)
        build, execution = strategies(**options)
        self.compiled = fluid.CompiledProgram(self.net.main).with_data_parallel(
            self.net.loss.name, build, execution, places=fluid.cpu_places(2)
        )

    @property
    def what(self):
        return {"fetch_list": [self.net.loss], "scope": self.scope}

    def run(self, feed):
        return self.exe.run(self.compiled, feed, **self.what)[0]

    def delayed(self, feed):
        (loss,) = self.exe.delayed(self.compiled, feed, **self.what)
        return loss

    @property
    def state(self):
        return persistables(self.net.main, self.scope)


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_steps_in_a_graph_have_the_bits_of_runs(scheduler):
    feeds, plain, graph = batches(4), Training(), Training()
    expected = [plain.run(feed) for feed in feeds]
    parts = [
        {"x": da.from_array(feed["x"] / 2, chunks=(5, -1)) * 2, "y": delayed(np.copy)(feed["y"])}
        for feed in feeds
    ]
    doubled = [delayed(np.multiply)(graph.delayed(feed), 2) for feed in parts]
    assert graph.scope.run_count(graph.net.main) == 0
    found = dask.compute(*doubled, scheduler=scheduler)
    np.testing.assert_array_equal(np.divide(found, 2), expected)
    assert_equal(plain.state, graph.state)
    again = dask.compute(*reversed(doubled), scheduler=scheduler)
    np.testing.assert_array_equal(again[::-1], found)
    assert_equal(plain.state, graph.state)


def test_a_step_comes_behind_those_that_were_delayed_before():
    feeds, plain, graph = batches(3), Training(), Training()
    expected = [plain.run(feed) for feed in feeds]
    first, _, last = [graph.delayed(feed) for feed in feeds]
    np.testing.assert_array_equal(last.compute(), expected[2])
    np.testing.assert_array_equal(first.compute(), expected[0])
    assert_equal(plain.state, graph.state)
    assert len(graph.delayed(feeds[0]).dask) < len(last.dask)  # nothing is left in front of it


def test_a_step_that_fails_is_made_when_it_is_computed_again():
    (feed,), plain, graph = batches(1), Training(), Training()
    expected, broken = plain.run(feed), [True]

    def load(x):
        if broken:
            raise OSError("unplugged")
        return x

    loss = graph.delayed({**feed, "x": delayed(load)(feed["x"])})
    for _ in range(2):
        with pytest.raises(OSError, match="unplugged"):
            loss.compute()
    broken.clear()
    np.testing.assert_array_equal(loss.compute(), expected)
    wrong = graph.delayed({**feed, "x": feed["x"][:, :3]})
    before = graph.state
    with pytest.raises(ValueError, match="x"):
        wrong.compute()
    assert_equal(before, graph.state)


def test_scopes_and_programs_wait_for_their_own_steps_alone():
    first, second = Training(), Training()
    (feed,) = batches(1)
    first.delayed(feed)
    loss = second.delayed(feed)
    loss.compute()
    assert first.scope.run_count(first.net.main) == 0
    assert second.scope.run_count(second.net.main) == 1


def test_programs_whose_steps_nobody_waits_for_are_freed():
    training, (feed,) = Training(), batches(1)
    training.delayed(feed).compute()
    training.delayed(feed)
    program = weakref.ref(training.net.main)
    del training
    gc.collect()
    assert program() is None


def test_wrong_calls_are_refused_when_they_are_delayed():
    training = Training()
    with pytest.raises(TypeError, match="Executor requires Program"):
        training.exe.delayed("main")
    with pytest.raises(TypeError, match="takes a Scope"):
        training.exe.delayed(training.net.main, scope="here")
    training.exe.close()
    with pytest.raises(RuntimeError, match="closed"):
        training.exe.delayed(training.net.main)


def test_processes_of_bags_ask_this_one_for_a_step():
    """dask computes bags in processes if nobody says where."""
    feeds, plain, graph = batches(2), Training(), Training()
    expected = [plain.run(feed) for feed in feeds]
    losses = [graph.delayed({**feed, "x": delayed(np.copy)(feed["x"])}) for feed in feeds]
    with ProcessPoolExecutor(1, get_context("forkserver")) as pool, dask.config.set(pool=pool):
        found = db.from_delayed(losses).map(float).compute()
        again = dask.compute(*losses, scheduler="processes")
        wrong = graph.delayed({**feeds[0], "x": feeds[0]["x"][:, :3]})
        with pytest.raises(ValueError, match="x"):
            wrong.compute(scheduler="processes")
    np.testing.assert_array_equal(found, np.ravel(expected))
    np.testing.assert_array_equal(again, expected)
    assert_equal(plain.state, graph.state)


def test_strangers_are_not_answered():
    with pytest.raises(AuthenticationError):
        Client(_door().address, authkey=b"guessed")


def test_several_steps_are_one_node():
    feeds, plain, graph = batches(5), Training(), Training()
    expected = [plain.run(feed) for feed in feeds]
    what = {"fetch_list": [graph.net.loss], "scope": graph.scope}
    (losses,) = graph.exe.delayed(graph.compiled, feeds=feeds[:3], **what)
    (others,) = graph.exe.delayed(graph.compiled, feeds=delayed(list)(feeds[3:]), **what)
    best = delayed(np.min)(delayed(np.concatenate)([losses, others]))
    assert sum("train_steps" in str(key) for key in best.dask) == 2
    assert best.compute() == np.min(expected)
    np.testing.assert_array_equal([*losses.compute(), *others.compute()], expected)
    assert_equal(plain.state, graph.state)
    with pytest.raises(ValueError, match="feed, of a run, or feeds"):
        graph.exe.delayed(graph.compiled, feeds[0], feeds=feeds)


def test_several_steps_go_on_behind_those_that_were_made():
    feeds, plain, graph = batches(4), Training(), Training()
    expected, broken = [plain.run(feed) for feed in feeds], [True]

    def load(feed):
        return {**feed, "x": feed["x"][:, :3]} if broken else feed

    what = {"fetch_list": [graph.net.loss], "scope": graph.scope}
    parts = [*feeds[:2], delayed(load)(feeds[2]), feeds[3]]
    (losses,) = graph.exe.delayed(graph.compiled, feeds=parts, **what)
    with pytest.raises(ValueError, match="x"):
        losses.compute()
    assert graph.scope.run_count(graph.net.main) == 2
    broken.clear()
    np.testing.assert_array_equal(losses.compute(), expected)
    assert_equal(plain.state, graph.state)


def test_compiled_programs_are_delayed_where_they_ran():
    first, second, plain, graph = *batches(2), Training(), Training()
    expected = [plain.run(feed) for feed in (first, second)]
    fetch_list = [graph.net.loss]
    with pytest.raises(EnforceNotMet, match="has not run in an executor yet: pass executor=exe"):
        graph.compiled.delayed(first, fetch_list)
    how = {"executor": graph.exe, "scope": graph.scope}
    (loss,) = graph.compiled.delayed(first, fetch_list, **how)
    np.testing.assert_array_equal(loss.compute(), expected[0])
    (loss,) = graph.compiled.delayed(second, fetch_list)
    np.testing.assert_array_equal(loss.compute(), expected[1])
    assert_equal(plain.state, graph.state)
    graph.exe.close()
    with pytest.raises(RuntimeError, match="closed"):
        graph.compiled.delayed(first, fetch_list)
    del graph.exe, how, loss
    gc.collect()
    with pytest.raises(EnforceNotMet, match="lost its own"):
        graph.compiled.delayed(first, fetch_list)


def test_parallel_executors_delay_runs():
    feeds, plain, graph = batches(2), Training(), Training()
    expected = [plain.run(feed) for feed in feeds]
    parallel = fluid.ParallelExecutor(
        False, graph.net.loss.name, graph.net.main, *(None, *strategies()[::-1]), scope=graph.scope
    )
    assert parallel.device_count == 2
    (loss,) = parallel.delayed([graph.net.loss], feeds[0])
    (losses,) = parallel.delayed([graph.net.loss.name], feeds=feeds[1:])
    np.testing.assert_array_equal(dask.compute(loss, losses[0]), expected)
    assert_equal(plain.state, graph.state)


def test_tools_of_dask_take_steps_for_what_they_are():
    feeds, plain, graph = batches(4), Training(), Training()
    expected = np.ravel([plain.run(feed) for feed in feeds])
    losses = [graph.delayed(feed) for feed in feeds]
    arrays = [da.from_delayed(loss, np.shape(expected[:2]), "float32") for loss in losses[:2]]
    frames = [delayed(pd.DataFrame)({"loss": loss}) for loss in losses[2:]]
    frame = dd.from_delayed(frames, meta={"loss": "float32"})
    metric = da.concatenate(arrays).sum().to_delayed() + delayed(float)(frame["loss"].sum())
    (optimized,) = dask.optimize(metric)
    assert sum(str(key).startswith("train_step-") for key in optimized.dask) == 4
    assert len(order(dict(optimized.dask))) == len(optimized.dask)
    assert "train_step" in to_graphviz(dict(metric.dask)).source
    np.testing.assert_allclose(optimized.compute(scheduler="threads"), expected.sum(), 1e-5)
    np.testing.assert_allclose(metric.compute(scheduler="sync"), expected.sum(), 1e-5)
    (kept,) = dask.persist(losses[0], scheduler="threads")
    np.testing.assert_array_equal(kept.compute(), expected[:2])
    assert_equal(plain.state, graph.state)


def test_progress_bars_see_the_graph_of_the_user(capsys):
    (feed,), training = batches(1), Training()
    with ProgressBar(dt=0.01):
        training.delayed(feed).compute(scheduler="threads")
    assert "100% Completed" in capsys.readouterr().out


@pytest.mark.parametrize("granularity", ["segment", "op"])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_a_plan_is_a_graph_with_a_layer_for_each_role_and_device(mode, granularity):
    training = Training(mode=mode, task_granularity=granularity)
    training.run(batches(1)[0])
    plan = training.compiled.plan
    assert dask.is_dask_collection(plan)
    graph = plan.dask
    graph.validate()
    layers = {name.split("-")[0] for name in graph.layers}
    exchange = ["all_reduce"] if mode == AllReduce else ["reduce_dev0", "reduce_dev1"]
    assert {*exchange, "optimizer_dev0", "optimizer_dev1"} <= layers
    assert {"forward_backward_dev0", "forward_dev0"} & layers
    assert len(order(dict(graph))) == len(plan.tasks)
    with pytest.raises(EnforceNotMet, match="without feeds"):
        dask.compute(plan)


def test_layers_whose_tasks_wait_for_each_other_in_turn_are_divided():
    net = classifier(batch_norm=True)
    build, execution = strategies()
    build.sync_batch_norm = True
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(net.startup, scope=scope)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, execution, places=fluid.cpu_places(2)
    )
    exe.run(compiled, batches(1)[0], [net.loss], scope=scope)
    compiled.plan.dask.validate()
    assert any("-1-" in name for name in compiled.plan.dask.layers)


def test_threads_are_as_many_as_dask_is_told():
    with dask.config.set(num_workers=3):
        training = Training()
        training.run(batches(1)[0])
    assert training.compiled._engine.num_threads == 3
    asked = Training(num_threads=2)
    with dask.config.set(num_workers=3):
        asked.run(batches(1)[0])
    assert asked.compiled._engine.num_threads == 2


def test_threads_are_as_many_as_those_of_a_pool():
    with ThreadPoolExecutor(3) as pool, ThreadPool(2) as other:
        for setting, count in (({"pool": pool}, 3), ({"pool": other}, 2), ({"scheduler": pool}, 3)):
            with dask.config.set(setting):
                training = Training()
                training.run(batches(1)[0])
            assert training.compiled._engine.num_threads == count
            assert training.compiled._engine.scheduler == "threads"


@pytest.mark.parametrize("kind", [Profiler, CacheProfiler])
def test_profilers_of_dask_show_the_groups_of_a_step(kind):
    training, (feed,) = Training(), batches(1)
    training.run(feed)
    with kind() as profiler:
        training.run(feed)
    groups = {key_split(found.key) for found in profiler.results}
    assert {"forward_backward_dev0", "all_reduce", "optimizer_dev1"} <= groups
