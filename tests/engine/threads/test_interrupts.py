"""Ctrl-C leaves parameters as before or after a step."""

import importlib.util
import os
import signal
import threading
import time

import numpy as np
import pytest
from dask._task_spec import Task, TaskRef

import dpexec as fluid
from dpexec.engine import kernels
from dpexec.engine.compile.regions import step as steps
from dpexec.engine.threads.interrupts import InterruptGate
from dpexec.engine.threads.prepared import PreparedGraph, Threads
from tests.engine.run.nets import AllReduce, Reduce, batches, classifier, persistables, strategies

LIMIT = 40
NEEDS_NUMBA = pytest.mark.skipif(not importlib.util.find_spec("numba"), reason="needs numba")


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(0)  # the handler runs between two bytecodes of the main thread


def step(gate, *actions):
    """Do ``actions`` as a step; return how many were done when an interrupt ended it."""
    done = 0
    try:
        with gate:
            for action in actions:
                action()
                done += 1
    except KeyboardInterrupt:
        return done
    return None


def test_interrupt_before_the_updates_is_immediate_and_stops_them():
    gate = InterruptGate()
    assert step(gate, press_ctrl_c, gate.begin_updates) == 0
    with pytest.raises(RuntimeError, match="interrupted before its updates"):
        gate.begin_updates()


def test_interrupt_during_the_updates_waits_for_their_end():
    gate = InterruptGate()
    assert step(gate, gate.begin_updates, press_ctrl_c, gate.begin_updates) == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_second_interrupt_is_not_held_back():
    gate = InterruptGate()
    assert step(gate, gate.begin_updates, press_ctrl_c, press_ctrl_c, press_ctrl_c) == 2


def test_second_interrupt_says_that_it_stops_updates():
    gate = InterruptGate()

    def update():
        with gate:
            gate.begin_updates()
            press_ctrl_c()
            press_ctrl_c()

    with pytest.raises(KeyboardInterrupt, match="in the middle of updates"):
        update()


def test_nobody_works_on_a_run_any_more_when_an_interrupt_has_ended_it():
    helping, left = threading.Event(), threading.Event()

    def help():
        helping.set()
        pressing.join()
        time.sleep(0.2)
        left.set()

    def work():
        (help if threading.current_thread() is not threading.main_thread() else helping.wait)()

    def press():
        helping.wait()
        time.sleep(0.1)  # until the caller waits for the other thread
        press_ctrl_c()

    pressing = threading.Thread(target=press)
    pressing.start()
    graph: dict[str, Task] = {name: Task(name, work) for name in "ab"}
    graph["end"] = Task("end", lambda *_: None, *map(TaskRef, "ab"))
    with pytest.raises(KeyboardInterrupt):
        PreparedGraph(graph, "end").run(Threads(1))
    assert left.is_set()


def test_own_signal_handler_stays():
    def own(number, frame):
        pass

    before = signal.signal(signal.SIGINT, own)
    try:
        with InterruptGate():
            assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)


def interrupted_at(position, monkeypatch, program, net, feed, scope):
    """Run a step and press Ctrl-C before its operator ``position``."""
    original, calls = steps._run_step, []

    def counting(bound, envs):
        calls.append(bound)
        if len(calls) == position:
            os.kill(os.getpid(), signal.SIGINT)
        original(bound, envs)

    monkeypatch.setattr(steps, "_run_step", counting)
    try:
        fluid.Executor().run(program, feed, [net.loss], scope=scope)
    except KeyboardInterrupt:
        return True
    finally:
        monkeypatch.setattr(steps, "_run_step", original)
    return False


@pytest.mark.parametrize("native", [False, pytest.param(True, marks=NEEDS_NUMBA)])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("scheduler", [None, "sync", "threads"])
def test_state_after_an_interrupt_is_that_of_a_whole_step(scheduler, mode, native, monkeypatch):
    monkeypatch.setattr(kernels, "available", lambda: native)
    net = classifier(fluid.optimizer.Adam(0.01), sizes=(8, 4, 3))
    (feed,) = batches(1)
    scope, twin = fluid.Scope(), fluid.Scope()
    programs = []
    for where in (scope, twin):
        fluid.Executor().run(net.startup, scope=where)
        program = net.main
        if scheduler is not None:
            build, execution = strategies(mode, scheduler=scheduler)
            program = fluid.CompiledProgram(net.main).with_data_parallel(
                net.loss.name, build, execution, places=[fluid.CPUPlace()] * 2
            )
        programs.append(program)
    interrupts = 0
    expected = persistables(net.main, twin)
    for position in range(1, 12) if native else range(1, LIMIT, 3):
        interrupts += interrupted_at(position, monkeypatch, programs[0], net, feed, scope)
        state = persistables(net.main, scope)
        if not all(np.array_equal(state[name], expected[name]) for name in state):
            fluid.Executor().run(programs[1], feed, [net.loss], scope=twin)
            expected = persistables(net.main, twin)
            for name, value in state.items():
                np.testing.assert_array_equal(value, expected[name], err_msg=name)
    assert interrupts > (0 if native else 5)  # code makes many operators one step


def endless():
    """A loop without end in a program that updates parameters."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 2])
        hidden = fluid.layers.fc(x, 2)
        rounds = fluid.layers.fill_constant([1], "float32", 0.0)
        most = fluid.layers.fill_constant([1], "float32", 1e9)
        going = fluid.layers.less_than(rounds, most)
        with fluid.layers.While(going).block():
            fluid.layers.increment(rounds)
            fluid.layers.less_than(rounds, most, cond=going)
        loss = fluid.layers.mean(hidden)
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main, startup, loss


@pytest.mark.parametrize("devices", [1, 2])
def test_a_loop_without_end_is_interrupted_before_anything_is_overwritten(devices):
    main, startup, loss = endless()
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    before = persistables(main, scope)
    program = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, places=fluid.cpu_places(devices)
    )
    feed = {"x": np.ones((4, 2), "float32")}
    presses = [threading.Timer(seconds, press_ctrl_c) for seconds in (0.5, 5, 6)]
    for press in presses:
        press.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            exe.run(program, feed=feed, fetch_list=[loss], scope=scope)
        late = not presses[1].is_alive()
    finally:
        for press in presses:
            press.cancel()
    assert not late, "the first Ctrl-C was held back"
    after = persistables(main, scope)
    assert all(np.array_equal(before[name], after[name]) for name in before)
