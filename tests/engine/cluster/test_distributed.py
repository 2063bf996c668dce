"""Two worker processes: writes to the scope, errors, own passes and traces of steps."""

import dask
import numpy as np
import pytest
from distributed import Client

import dpexec as fluid
from dpexec.engine.cluster.worker.recording import _differences
from dpexec.engine.passes import SequentialExecution
from tests.engine.run.nets import assert_same_bits, batches, classifier, train, word_batches, words


@pytest.fixture(scope="module")
def client():
    """Two workers as users start them; other tests fork theirs."""
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "set_as_default": False}
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "spawn"}),
        Client(n_workers=2, processes=True, **options) as client,
    ):
        yield client


def test_write_to_the_scope_reaches_the_workers(client):
    net, feeds = classifier(), batches(2)
    run = train(net, feeds, 2, scheduler=client)
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(net.startup)
        again = exe.run(run.compiled, feed=feeds[0], fetch_list=[net.loss])[0]
    assert np.array_equal(again, run.losses[0])


def test_replicas_keep_values_of_their_own_that_nobody_wrote(client):
    """Statistics of a replica's samples stay when the user sets a learning rate."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 8], "float32")
        loss = fluid.layers.mean(fluid.layers.batch_norm(x, moving_mean_name="mean") ** 2)
        rate = fluid.layers.create_global_var([1], 0.1, "float32", persistable=True, name="rate")
        fluid.optimizer.SGD(rate).minimize(loss)

    def means(scheduler):
        execution = fluid.ExecutionStrategy()
        execution.scheduler = scheduler
        compiled = fluid.CompiledProgram(main).with_data_parallel(
            loss.name, exec_strategy=execution, places=fluid.cpu_places(2)
        )
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            for feed in batches(3):
                (found,) = exe.run(compiled, {"x": feed["x"]}, ["mean"], return_merged=False)
                rate = fluid.global_scope().find_var("rate").get_tensor()
                rate.set(np.array([0.01], "float32"), fluid.CPUPlace())
        return found

    np.testing.assert_array_equal(means(client), means("threads"))


def test_error_on_a_worker_names_the_line_and_leaves_the_state(client):
    net, feeds = words(), word_batches(2)
    run = train(net, feeds[:1], 2, scheduler=client)
    bad = {"x": feeds[1]["x"] + 50, "y": feeds[1]["y"]}
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        with pytest.raises(fluid.core.EnforceNotMet, match=r"lookup_table_v2(.|\n)*nets\.py"):
            exe.run(run.compiled, feed=bad, fetch_list=[net.loss])
        loss = exe.run(run.compiled, feed=feeds[1], fetch_list=[net.loss])[0]
    assert np.array_equal(loss, train(net, feeds, 2).losses[1])


def test_nan_on_a_worker_is_an_error_when_asked_for(client):
    net, feeds = classifier(fluid.optimizer.Momentum(0.1, 0.9)), batches(2)
    run = train(net, feeds[:1], 2, scheduler=client)
    bad = {**feeds[1], "x": feeds[1]["x"] * np.float32(np.inf)}
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        fluid.set_flags({"FLAGS_check_nan_inf": True})
        try:
            with pytest.raises(fluid.core.EnforceNotMet, match=r"find nan or inf(.|\n)*nets\.py"):
                exe.run(run.compiled, feed=bad, fetch_list=[net.loss])
        finally:
            fluid.set_flags({"FLAGS_check_nan_inf": False})
        loss = exe.run(run.compiled, feed=feeds[1], fetch_list=[net.loss])[0]
    assert np.array_equal(loss, train(net, feeds, 2).losses[1])


def test_own_pass_runs_on_workers(client):
    class InOrder:  # workers cannot import it: it is sent by value
        name = "in_order"

        def apply(self, graph):
            return SequentialExecution().apply(graph)

    net, feeds, build = classifier(), batches(2), fluid.BuildStrategy()
    build.append_pass(InOrder())
    execution = fluid.ExecutionStrategy()
    execution.scheduler = client
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(net.startup)
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, execution, places=fluid.cpu_places(2)
        )
        losses = [exe.run(compiled, feed=feed, fetch_list=[net.loss])[0] for feed in feeds]
    assert any(var.kind == "control" for var in compiled.graph.vars)
    np.testing.assert_array_equal(losses, train(net, feeds, 2).losses)


def test_trace_holds_what_every_worker_did(client):
    options = {"scheduler": client, "collectives": "tasks", "trace": True}
    trace = train(classifier(), batches(3), 2, **options).compiled.trace
    assert trace.meta["scheduler"] == "distributed" and trace.steps == (0, 1, 2)
    keys = {task["key"] for task in trace.graph["tasks"]}
    for step in trace.steps:
        events = [event for event in trace if event.step == step]
        tasks = {event.key: event for event in events if event.kind == "task"}
        assert tasks.keys() == keys
        assert len({event.args["worker"] for event in tasks.values()}) == 2
        ops = [event for event in events if event.kind in ("op", "collective")]
        assert {event.node for event in ops} <= set(range(len(trace.graph["nodes"])))
        for event in ops:
            task = tasks[event.key]
            assert task.start <= event.start <= event.stop <= task.stop
            assert (event.thread, event.args["worker"]) == (task.thread, task.args["worker"])
        for task in trace.graph["tasks"]:  # one clock: no task begins before those it waits for end
            for before in task["after"]:
                assert tasks[before].stop <= tasks[task["key"]].start
        (feed,), (fetch,) = ([e for e in events if e.kind == kind] for kind in ("feed", "fetch"))
        assert feed.start <= min(t.start for t in tasks.values())
        assert fetch.start >= max(t.stop for t in tasks.values())
    moved = [event for event in trace if event.kind == "transfer"]
    assert moved and all(event.args["bytes"] > 0 and event.key in keys for event in moved)


def test_recording_changes_no_bits_on_a_cluster(client):
    net, feeds = classifier(), batches(2)
    assert_same_bits(
        train(net, feeds, 2, scheduler=client, trace=True), train(net, feeds, 2, scheduler=client)
    )


def test_clocks_that_differ_are_aligned():
    class Clocks:
        """Answers as a worker would whose clock is ahead."""

        def __init__(self, ahead: int) -> None:
            self.ahead = ahead

        def ask(self, clock, homes, what):
            return {worker: clock() + self.ahead for worker in homes}

    assert _differences(Clocks(0), {"a": (0,)}) == {"a": 0.0}
    far = _differences(Clocks(5_000_000_000), {"a": (0,)})["a"]
    assert far == pytest.approx(-5.0, abs=1e-3)
