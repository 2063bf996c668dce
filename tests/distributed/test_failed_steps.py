"""Steps that fail on a worker: what the trace says of them."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers, viz

ROWS = {"x": np.ones((8, 4), "float32"), "label": np.zeros((8, 1), "int64")}
BAD = {**ROWS, "label": np.array([[0]] * 6 + [[9]] * 2)}  # on device 1


def told(client, collectives):
    """The trace of five steps, the fourth of which fails, and what is said of that."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden = layers.fc(fluid.data("x", [None, 4]), 8, act="relu")
        label = fluid.data("label", [None, 1], "int64")
        loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, 4), label))
        fluid.optimizer.SGD(0.1).minimize(loss)
    how = fluid.ExecutionStrategy()
    how.trace, how.scheduler, how.collectives = True, client, collectives
    two = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, exec_strategy=how, places=fluid.cpu_places(2)
    )
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        for feed in (ROWS, ROWS, ROWS, BAD, ROWS):
            if feed is not BAD:
                exe.run(two, feed=feed)
                continue
            with pytest.raises(fluid.core.EnforceNotMet, match="expected, but got 9"):
                exe.run(two, feed=feed)
    (failure,) = viz.analyse(two).to_json()["failures"]
    assert (failure["step"], failure["operator"], failure["device"]) == (
        3,
        "softmax_with_cross_entropy",
        1,
    )
    return two.trace, failure["text"]


def test_a_gang_says_what_had_run_on_every_worker(pair):
    trace, text = told(pair, "gang")
    step = [event for event in trace if event.step == 3]
    (failure,) = (event for event in step if event.kind == "failure")
    here = [event for event in step if event.thread == failure.thread]
    (task,) = (event for event in here if event.kind == "task")
    assert task.key == failure.key and task.stop == failure.stop
    assert [event.name for event in here if event.kind == "op"] == [
        "mul+elementwise_add",
        "relu",
        "mul+elementwise_add",
    ]
    names = {event.name for event in step if event.kind == "op" and event.device == 0}
    assert "relu_grad" in names and not any("sgd" in name for name in names)
    assert text.endswith("and 5 of 19 operators of device 1 had run.")
    assert not any(event.kind == "fetch" for event in step)


def test_tasks_of_dask_say_what_failed(pair):
    trace, text = told(pair, "tasks")
    assert [event.kind for event in trace if event.step == 3] == ["failure"]
    assert text.endswith("expected, but got 9.")
