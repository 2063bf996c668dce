"""Savings by faster operators: known answers, and operators that are really slowed down."""

import time

import numpy as np
import pytest
from dpexec.viz.findings import analyse
from dpexec.viz.measured.activities import activities_of
from dpexec.viz.measured.replay import Replay
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.measured.what_if import what_if

import dpexec as fluid
from dpexec import layers
from tests.viz.test_critical_path import late_start
from tests.viz.traces import straggling, task, trace


def test_known_answers():
    view = analyse(straggling(3))
    for name, faster, seconds in (
        ("mul_grad", 2, 8.0),
        ("mul_grad", float("inf"), 6.0),
        ("mul_grad", 0.5, 14.0),
        ("sgd", 2, 8.75),
        ("sgd", float("inf"), 7.5),  # that the thread of device 1 wakes up takes half a second
        ("all_reduce", float("inf"), 9.0),
        ("mul", 1, 10.0),
    ):
        assert view.what_if(name, faster) == pytest.approx(seconds), (name, faster)
    assert view.what_if("fc_0", float("inf"), by="layer") == pytest.approx(0.5)
    assert view.what_if("mul_grad → w@GRAD", 2, by="node") == pytest.approx(8.0)
    assert view.what_if("backward", 2, by="role") == pytest.approx(8.0)
    with pytest.raises(ValueError, match="no type 'relu' in the trace; there are all_reduce, mul,"):
        view.what_if("relu", 2)
    with pytest.raises(ValueError, match="faster must be above 0, not 0"):
        view.what_if("mul", 0)


def test_effects_are_those_of_replays_and_the_most_worth_comes_first():
    effects = what_if(Schedule(straggling(3))).effects("type")
    assert [e.name for e in effects] == ["mul_grad", "sgd", "mul", "all_reduce"]
    assert [e.half for e in effects] == pytest.approx([2.0, 1.25, 1.0, 0.5])
    assert [e.none for e in effects] == pytest.approx([4.0, 2.5, 2.0, 1.0])
    assert [e.path for e in effects] == pytest.approx([4.0, 2.5, 2.0, 1.0])
    assert [e.time for e in effects] == pytest.approx([6.0, 4.5, 3.0, 1.0])


def test_what_was_done_early_is_worth_nothing():
    schedule = Schedule(late_start())
    replay = Replay(activities_of(schedule, schedule.typical))
    of_device = [
        [at for at, one in enumerate(replay.activities.all) if one.piece.event.device == device]
        for device in (0, 1)
    ]
    # device 0 began late; without its work the step waits for device 1
    assert replay.each(of_device, 0.0) == pytest.approx([0.13, 0.16])


def test_without_a_graph_there_are_types_and_no_layers():
    made = trace([task("a", 0, 0, 2), task("b", 0, 2, 5)])
    assert {effect.by for effect in analyse(made).analysis.effects} == {"type"}
    with pytest.raises(ValueError, match="holds no graph"):
        analyse(made).what_if("fc_0", 2, by="layer")


STEPS = 5


def _sleeping(x):
    time.sleep(float(np.max(x)))
    return x


def _sleeping_back(x, y, grad):
    time.sleep(float(np.max(x)))
    return grad


def slept(x, backward=None):
    """A value that comes as many seconds later as it says."""
    block = fluid.default_main_program().current_block()
    name = fluid.unique_name.generate("slept")
    made = block.create_var(name=name, dtype="float32", shape=[-1, 4])
    layers.py_func(_sleeping, x, made, backward_func=backward)
    return made


def chain(x):
    return layers.mean(layers.fc(layers.fc(slept(x), 8), 1))


def backward(x):
    """Sleeps in the middle of the forward pass, and again in the backward pass."""
    x.stop_gradient = False
    return layers.mean(layers.fc(layers.fc(slept(x, _sleeping_back), 8, act="relu"), 1))


def branches(x):
    """Two branches that sleep, of which a device does one after the other."""
    wide = layers.fc(slept(x), 64, act="relu")
    return layers.mean(layers.fc(layers.concat([wide, layers.fc(slept(x), 8)], 1), 1))


def deep(x):
    """What sleeps is the smaller part, behind operators that compute."""
    for _ in range(3):
        x = layers.fc(x, 512, act="tanh") * 0.0 + layers.reduce_max(x)
    return layers.mean(layers.fc(slept(layers.slice(x, [1], [0], [4])), 1))


def recorded(seconds, scheduler, net=chain):
    """Steps, a device for each number of seconds: an operator sleeps as long as it is fed."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = net(layers.data("x", [4]))
        fluid.optimizer.SGD(0.0).minimize(loss)
    execution = fluid.ExecutionStrategy()
    execution.trace, execution.scheduler = True, scheduler
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        compiled = fluid.CompiledProgram(main).with_data_parallel(
            loss.name, exec_strategy=execution, places=[fluid.CPUPlace()] * len(seconds)
        )
        feed = {"x": np.repeat(np.float32(seconds), 4).reshape(-1, 4)}
        for _ in range(STEPS):
            exe.run(compiled, feed=feed, fetch_list=[loss])
    found = analyse(compiled)
    found.trace = compiled.trace
    return found


@pytest.mark.parametrize(
    ("scheduler", "seconds"),
    [("threads", (0.06, 0.06)), ("threads", (0.03, 0.06)), ("sync", (0.03, 0.04))],
)
def test_an_operator_made_slower_for_real_takes_what_was_predicted(scheduler, seconds):
    before = recorded(seconds, scheduler)
    after = recorded([2 * each for each in seconds], scheduler)
    predicted = before.what_if("py_func", 0.5)
    steps = [step.seconds for step in after.analysis.steps]  # a busy machine interrupts some
    assert min(abs(predicted / seconds - 1) for seconds in steps) < 0.1
    assert next(effect.name for effect in before.analysis.effects) == "py_func"
    assert any(str(one).startswith("py_func takes") for one in before.analysis.advice)


@pytest.mark.parametrize("times", [2.0, 0.5])
@pytest.mark.parametrize("seconds", [(0.03,), (0.02, 0.03)], ids=["one", "two"])
@pytest.mark.parametrize("net", [backward, branches, deep])
def test_steps_of_other_networks_take_what_was_predicted(net, seconds, times):
    """On one device and on two, slowed down and sped up; of steps that others interrupt least."""
    for _ in range(3):  # a busy machine may interrupt all steps of a run
        before = recorded(seconds, "threads", net)
        after = recorded([times * each for each in seconds], "threads", net)
        predicted = min(step_if(before, number, 1 / times) for number in range(1, STEPS))
        measured = min(step.seconds for step in after.analysis.steps)
        if predicted == pytest.approx(measured, rel=0.1):
            return
    assert predicted == pytest.approx(measured, rel=0.1)


def step_if(findings, number, faster):
    """What a step is predicted to take if all that sleeps, forward or backward, is faster."""
    schedule = Schedule(findings.trace, [number])
    replay = Replay(activities_of(schedule, schedule.typical))
    asleep = [
        at
        for at, one in enumerate(replay.activities.all)
        if one.piece.event.name.startswith("py_func")
    ]
    assert asleep
    return replay.each([asleep], 1 / faster)[0]
