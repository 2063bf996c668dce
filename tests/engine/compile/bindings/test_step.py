"""A step that runs as one schedule of code has the bits of its tasks run one by one."""

import itertools
import linecache
import random
import signal
import sys
import threading

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine import kernels
from dpexec.engine.core.errors import EnforceNotMet
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    batches,
    classifier,
    persistables,
    strategies,
    word_batches,
    words,
)

if not kernels.available():
    pytest.skip("needs numba", allow_module_level=True)

CPU = fluid.CPUPlace()


def averaged():
    """A net with running sums of its parameters, whose window is full several times."""
    net = classifier(fluid.optimizer.Momentum(0.1, 0.9))
    with fluid.unique_name.guard(), fluid.program_guard(net.main, net.startup):
        fluid.optimizer.ModelAverage(0.5, min_average_window=2, max_average_window=3)
    return net


NETS = {
    "averaged": averaged,
    "adam": lambda: classifier(fluid.optimizer.Adam(0.01), sizes=(8, 300, 200, 3)),
    "momentum": lambda: classifier(fluid.optimizer.Momentum(0.1, 0.9), batch_norm=True),
    "dropout": lambda: classifier(fluid.optimizer.SGD(0.1), dropout=0.4),
    "sparse": words,
}


class Training:
    """A net on some devices, in a scope of its own."""

    def __init__(self, name="adam", devices=2, mode=AllReduce, whole=True):
        self.net, self.scope = NETS[name](), fluid.Scope()
        fluid.Executor(CPU).run(self.net.startup, scope=self.scope)
        self.exe, self.program = fluid.Executor(CPU), self.net.main
        if devices:
            build, execution = strategies(mode, use_experimental_executor=whole)
            self.program = fluid.CompiledProgram(self.net.main).with_data_parallel(
                self.net.loss.name, build, execution, places=[CPU] * devices
            )

    def step(self, feed, fetch=()):
        return self.exe.run(self.program, feed, [self.net.loss, *fetch], scope=self.scope)

    @property
    def whole_steps(self):
        """The steps of code that were made."""
        engine = getattr(self.program, "_engine", None) or next(iter(self.exe._engines.values()))
        made = () if engine.runner.code is None else engine.runner.code.by_binding.values()
        return [code for code in made if code is not None]

    def state(self):
        return persistables(self.net.main, self.scope)

    def tensor(self, name):
        return self.scope.find_var(name).get_tensor()


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("name", [name for name in NETS if name != "dropout"])
def test_whole_steps_have_the_bits_of_single_tasks(name, mode, devices):
    runs = [Training(name, devices, mode, whole) for whole in (True, False)]
    feeds = word_batches(6) if name == "sparse" else batches(6)
    for feed in feeds:
        losses = [run.step(feed)[0].tobytes() for run in runs]
        assert losses[0] == losses[1]
    assert_same(*(run.state() for run in runs))
    assert [len(run.whole_steps) for run in runs] == [1, 0]


def test_random_operators_draw_anew_at_every_step():
    runs = [Training("dropout", 2, AllReduce, whole) for whole in (True, False)]
    (feed,) = batches(1)
    for _ in range(5):
        losses = [run.step(feed)[0].tobytes() for run in runs]
        assert losses[0] == losses[1]
    assert runs[0].whole_steps[0].is_random


def test_plain_executor_runs_whole_steps():
    run, (feed,) = Training(devices=0), batches(1)
    losses = [float(run.step(feed)[0]) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert len(run.whole_steps) == 1


def test_batches_of_several_sizes_in_turn():
    runs = [Training(whole=whole) for whole in (True, False)]
    for rows in (12, 8, 12, 8, 5, 12, 5, 8, 5):
        (feed,) = batches(1, rows)
        losses = [run.step(feed)[0].tobytes() for run in runs]
        assert losses[0] == losses[1]
    assert_same(*(run.state() for run in runs))
    assert len(runs[0].whole_steps) == 2  # of the first size, and of all others


def test_feeds_of_another_layout_and_results_of_every_kind():
    runs = [Training(whole=whole) for whole in (True, False)]
    weight = next(p.name for p in runs[0].net.main.all_parameters())
    for feed in batches(4):
        turned = {"x": np.asfortranarray(feed["x"]), "y": feed["y"]}
        found = [run.step(turned, [weight, "x", runs[0].net.prediction.name]) for run in runs]
        for one, other in zip(*found, strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(found[0][2], feed["x"])


def test_images_are_fetched_from_whole_steps():
    main, startup, exe = fluid.Program(), fluid.Program(), fluid.Executor(CPU)
    startup.random_seed = 1
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 3, 9, 7])
        first = fluid.layers.conv2d(x, 17, 3, padding=1, bias_attr=False)
        image = fluid.layers.conv2d(fluid.layers.relu(first), 5, 3, padding=1)
        loss = fluid.layers.mean(fluid.layers.square(image))
        fluid.optimizer.SGD(0.1).minimize(loss)
    runs = []
    for whole in (True, False):
        scope, (build, execution) = fluid.Scope(), strategies(use_experimental_executor=whole)
        exe.run(startup, scope=scope)
        program = fluid.CompiledProgram(main).with_data_parallel(
            loss.name, build, execution, places=[CPU] * 2
        )
        runs.append((program, scope))
    drawn = np.random.default_rng(0)
    for rows in (4, 4, 4, 6, 6, 8, 4):  # a size that has come before, and open sizes
        feed = {"x": drawn.normal(size=(rows, 3, 9, 7)).astype("float32")}
        found = [exe.run(p, feed, [loss, first, image], scope=scope) for p, scope in runs]
        for one, other in zip(*found, strict=True):
            assert one.flags.c_contiguous
            np.testing.assert_array_equal(one, other)
    assert found[0][1].shape == (4, 17, 9, 7)
    made = [program._engine.runner.code for program, _ in runs]
    assert made[1] is None
    assert {code is not None for code in made[0].by_binding.values()} == {True}


@pytest.mark.parametrize("change", ["set", "assign", "erase"])
def test_values_from_outside_are_noticed(change):
    runs = [Training(whole=whole) for whole in (True, False)]
    weight = next(p.name for p in runs[0].net.main.all_parameters())
    for number, feed in enumerate(batches(6)):
        if number == 3:
            for run in runs:
                value = np.full_like(np.array(run.tensor(weight)), 0.25)
                if change == "erase":
                    run.scope.erase([weight])
                    run.scope.var(weight)
                if change == "assign":
                    run.tensor(weight).array = value
                    run.tensor(weight).touch()
                else:
                    run.tensor(weight).set(value, CPU)
        losses = [run.step(feed)[0].tobytes() for run in runs]
        assert losses[0] == losses[1], number
    assert_same(*(run.state() for run in runs))


def test_refused_values_raise_as_ever_and_leave_no_trace():
    run = Training("sparse")
    for feed in word_batches(4):
        run.step(feed)
    before, bad = run.state(), {**feed, "x": feed["x"] + 7}
    assert run.whole_steps
    with pytest.raises(EnforceNotMet, match="lookup_table"):
        run.step(bad)
    assert_same(before, run.state())
    twin = Training("sparse", whole=False)
    for feed in word_batches(5):
        twin.step(feed)
    run.step(feed)
    assert_same(run.state(), twin.state())


def test_other_readers_of_a_written_variable_are_brought_up_to_date():
    """One executor reads less than another: that it looked does not mean that both did."""
    run, (feed,) = Training(), batches(1)
    twin = Training(whole=False)
    tests = []
    for one in (run, twin):
        one.step(feed)
        shared = fluid.CompiledProgram(one.net.test).with_data_parallel(
            share_vars_from=one.program, places=[CPU] * 2
        )
        tests.append(shared)
        one.exe.run(shared, feed, [one.net.loss.name], scope=one.scope)
    moment = next(name for name in run.state() if "moment1" in name and "w_0" in name)
    value = np.ones_like(np.array(run.tensor(moment)))
    for one, test in zip((run, twin), tests, strict=True):
        one.tensor(moment).set(value, CPU)
        if one is run:
            one.exe.run(test, feed, [one.net.loss.name], scope=one.scope)
        one.step(feed)
    devices = run.program._engine.replicas
    copies = [np.array(devices.tensor(device, moment)) for device in range(2)]
    np.testing.assert_array_equal(*copies)
    assert_same(run.state(), twin.state())


def test_programs_in_turn_on_one_scope_are_bound_once():
    """What another executor writes has the shapes that it had before."""
    run, (feed,) = Training(devices=0), batches(1)
    for _ in range(6):
        run.step(feed)
        run.exe.run(run.net.test, feed, [run.net.loss.name], scope=run.scope)
    engines = run.exe._engines.values()
    assert [len(engine.bindings.kept) for engine in engines if engine.graph.is_training] == [1]
    assert all(len(engine.bindings.kept) == 1 for engine in engines)


def test_interrupt_at_any_line_leaves_a_whole_step():
    """Ctrl-C at every line of Python that a step runs."""
    run, twin, (feed,) = Training(), Training(), batches(1)
    for one in (run, twin):
        for _ in range(3):
            one.step(feed)
    assert run.whole_steps
    steps = 0
    for position in itertools.count(1, 3):
        _, over = interrupted_step(run, feed, position)
        found, expected = run.state(), twin.state()
        if any((found[name] != value).any() for name, value in expected.items()):
            twin.step(feed)
            steps += 1
            expected = twin.state()
        assert_same(found, expected)
        if over:
            break
    assert 0 < steps < position // 3
    run.step(feed), twin.step(feed)
    assert_same(run.state(), twin.state())


def interrupted_step(run, feed, position):
    """Press Ctrl-C before a line; returns whether the step was interrupted, and had fewer lines.

    A ``with`` statement that is reached again is about to leave its block. Python looks for signals
    after the call of ``__exit__`` only, so that nothing can be interrupted there.
    """
    lines, entered = 0, set()

    def trace(frame, event, argument):
        nonlocal lines
        if "dpexec" not in frame.f_code.co_filename:
            return None
        place = frame, frame.f_lineno
        if event != "line" or place in entered:
            return trace
        if linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            entered.add(place)
        lines += 1
        if lines == position:
            signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        run.step(feed)
    except KeyboardInterrupt:
        return True, False
    finally:
        sys.settrace(None)
    return False, lines < position


def test_items_start_after_those_that_they_wait_for():
    from dpexec.engine.kernels.machine import Count, Integers, Rest, count, kernel
    from dpexec.engine.kernels.thread_team import Schedule
    from dpexec.engine.threads.prepared import Threads
    from dpexec.engine.threads.thread_team import ThreadTeam

    @kernel
    def see(done: Integers, number: Count, needed: Count, items: Rest):
        """Note how many of some items have ended."""
        found = 0
        for index in range(needed):
            found += done[count(items, index)] != 0
        done[number] = 1 + found
        return 0

    choice = random.Random(4)
    before = [choice.sample(range(i), min(i, choice.randrange(4))) for i in range(80)]
    done = np.zeros(80, np.int64)
    words = [
        np.array([done.ctypes.data, number, len(needed), *needed], np.int64)
        for number, needed in enumerate(before)
    ]
    tables = [np.array([[see.address, word.ctypes.data]], np.int64) for word in words]
    schedule = Schedule(tables, before, [number % 3 for number in range(80)])
    team = ThreadTeam(Threads(2), 3)
    for _ in range(200):
        done.fill(0)
        assert team.run(schedule)
        assert done.tolist() == [1 + len(needed) for needed in before]


def test_executors_in_several_threads():
    runs, (feed,) = [Training() for _ in range(3)], batches(1)

    def train(run):
        for _ in range(30):
            run.step(feed)

    threads = [threading.Thread(target=train, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same(runs[0].state(), runs[1].state())
    assert_same(runs[0].state(), runs[2].state())


def test_usual_steps_do_not_ask_the_system_for_its_processors(monkeypatch):
    training, feed = Training(), batches(8, 1)[0]
    training.step(feed)
    training.step(feed)
    monkeypatch.setattr("dpexec.engine.run.choice.available_cpus", pytest.fail)
    training.step(feed)
    assert training.whole_steps
