"""``Executor.delayed`` and plans as dask collections, on the schedulers of one process."""

import gc
import pickle
import weakref

import dask
import dask.array as da
import numpy as np
import pytest
from dask import delayed
from dask.order import order

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
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


def test_no_other_process_makes_a_step_without_a_client():
    (feed,), training = batches(1), Training()
    with pytest.raises(pickle.PicklingError, match="has its variables"):
        pickle.dumps(training.delayed(feed))


def test_progress_bars_see_the_graph_of_the_user(capsys):
    from dask.diagnostics import ProgressBar

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
