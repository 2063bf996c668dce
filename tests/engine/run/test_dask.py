"""Dask's callbacks, profilers and progress bars around runs, and independence of hash seeds."""

import io
import os
import subprocess
import sys
import time

import dask
import numpy as np
import pytest
from dask.diagnostics import Profiler, ProgressBar

import dpexec as fluid
from dpexec.engine.dispatch.traces import trace_of
from dpexec.engine.run.dask_graph import FETCH_KEY
from tests.engine.run.nets import batches, classifier, train


def test_profiler_sees_every_task():
    with Profiler() as profiler:
        run = train(classifier(), batches(1), 2)
    keys = [result.key for result in profiler.results]
    assert sorted(keys) == sorted([*(task.key for task in run.compiled.plan.tasks), FETCH_KEY])
    assert {"forward_backward_dev0", "all_reduce", "optimizer_dev1"} <= {key[0] for key in keys}


def test_progress_bar_shows_a_run():
    out = io.StringIO()
    with ProgressBar(out=out):
        train(classifier(), batches(1), 2)
    assert "100% Completed" in out.getvalue()


def test_any_dask_callback_is_called():
    seen = []
    with dask.callbacks.Callback(pretask=lambda key, *_: seen.append(key)):
        train(classifier(), batches(2), 2, scheduler="sync")
    assert seen.count(FETCH_KEY) == 2


def test_trace_has_tasks_and_operators_of_every_device():
    run = train(classifier(), batches(2), 2, trace=True)
    events = run.compiled.trace.events
    assert {event.device for event in events if event.kind == "op"} == {0, 1}
    assert sum(event.name == "sgd" for event in events) == 2 * 2 * 4
    assert {event.kind for event in events} == {"task", "op", "collective", "feed", "fetch"}
    with pytest.raises(RuntimeError, match=r"ExecutionStrategy\.trace"):
        _ = train(classifier(), batches(1), 2).compiled.trace


SCRIPT = """
import hashlib
import dpexec as fluid
from tests.engine.run.nets import batches, classifier, train
run = train(classifier(fluid.optimizer.Adam(0.01), dropout=0.3), batches(3), 3)
digest = hashlib.sha256(b"".join(run.state[name].tobytes() for name in sorted(run.state)))
print(digest.hexdigest(), run.compiled.plan.describe())
"""


def test_hash_seed_changes_neither_bits_nor_plan():
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1] and "all_reduce" in outputs[0]


def test_dry_run_computes_nothing():
    run = train(classifier(), batches(2), 2, _dry_run=True)
    assert run.losses == [None, None]


def test_iterations_per_run_are_steps():
    net, (feed,) = classifier(fluid.optimizer.Momentum(0.1, 0.9)), batches(1)
    one = train(net, [feed] * 3, 2)
    three = train(net, [feed], 2, num_iteration_per_run=3)
    assert all((one.state[name] == three.state[name]).all() for name in one.state)


def test_scopes_are_dropped_every_so_many_runs(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    net, feeds = classifier(), batches(6)
    execution = fluid.ExecutionStrategy()
    execution.num_iteration_per_drop_scope = 3
    with fluid.scope_guard(fluid.Scope()):
        fluid.Executor(fluid.CPUPlace()).run(net.startup)
        executor = fluid.ParallelExecutor(
            False, net.loss.name, main_program=net.main, exec_strategy=execution
        )
        with pytest.raises(TypeError, match="first run"):
            executor.drop_local_exe_scopes()
        assert executor.device_count == 2
        dropped = []
        for feed in feeds:
            executor.run([net.loss], feed=feed)
            dropped.append(executor._need_create_local_exe_scopes())
        assert dropped == [False, False, True] * 2
        executor.run([net.loss], feed_dict=feeds[0])
        executor.drop_local_exe_scopes()
        assert executor._need_create_local_exe_scopes()


def test_a_recorded_step_runs_as_any_other_and_leaves_all_events():
    pytest.importorskip("numba", reason="steps of code need numba")
    net = classifier()
    parameters = net.main.global_block().all_parameters()
    gradients = sum(4 * int(np.prod(parameter.shape)) for parameter in parameters)
    run = train(net, batches(4), 2, trace=True)
    engine = run.compiled._engine
    assert any(code is not None for code in engine.runner.code.by_binding.values())
    trace = trace_of(engine, engine.recorder)
    assert trace.steps == (0, 1, 2, 3)
    graph = trace.graph
    keys = {task["key"] for task in graph["tasks"]}
    for step in trace.steps:  # the first ran task by task, the others as a whole
        events = [event for event in trace if event.step == step]
        ops = [event for event in events if event.kind in ("op", "collective")]
        names = [name for e in ops for name in e.args.get("parts", [e.name])]
        assert len(names) == len(graph["nodes"])
        assert {event.node for event in ops} <= {node["id"] for node in graph["nodes"]}
        assert all(graph["nodes"][event.node]["task"] == event.key for event in ops)
        assert {event.key for event in events if event.kind == "task"} == keys
        feed, fetch = ([e for e in events if e.kind == kind] for kind in ("feed", "fetch"))
        tasks = [event for event in events if event.kind == "task"]
        assert feed[0].stop <= min(event.start for event in tasks)
        assert fetch[0].start >= max(event.stop for event in tasks)
        sums = [event for event in events if event.kind == "collective"]
        assert sum(event.args["bytes"] for event in sums) == gradients
        assert all(event.args["devices"] == [0, 1] for event in sums)


def test_a_step_that_fails_is_marked_and_recording_goes_on():
    net, feeds = classifier(), batches(4)
    run = train(net, feeds, 2, trace=True)
    bad = {**feeds[0], "y": feeds[0]["y"] + 50}
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        with pytest.raises(fluid.core.EnforceNotMet, match=r"5[0-9]"):
            exe.run(run.compiled, feed=bad, fetch_list=[net.loss])
        exe.run(run.compiled, feed=feeds[0], fetch_list=[net.loss])
    trace = run.compiled.trace
    assert trace.steps == (0, 1, 2, 3, 4, 5)
    assert [event.step for event in trace if event.kind == "failure"] == [4]
    counts = [sum(event.step == step for event in trace) for step in (1, 2, 3, 5)]
    assert len(set(counts)) == 1 and counts[0] > 20


def test_recorder_that_is_switched_off_and_on_misses_only_what_ran_meanwhile():
    net, feeds = classifier(), batches(6)
    run = train(net, feeds, 2, trace=True)
    engine = run.compiled._engine
    engine.observers.remove(engine.recorder)
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        off = time.perf_counter()
        exe.run(run.compiled, feed=feeds[0], fetch_list=[net.loss])
        on = time.perf_counter()
        engine.observers.add(engine.recorder)
        exe.run(run.compiled, feed=feeds[1], fetch_list=[net.loss])
    events = trace_of(engine, engine.recorder).events
    assert trace_of(engine, engine.recorder).steps == tuple(range(7))
    assert not any(off < event.start < on for event in events)
    assert all(event.stop < off for event in events if event.step < 6)
    assert all(event.start > on for event in events if event.step == 6)
