"""Collectives that wait for processes which are not in the trace: by hand, and of real trainers."""

import threading
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from dpexec.viz.compare import compare
from dpexec.viz.findings import analyse
from dpexec.viz.measured.critical_path import critical_path
from dpexec.viz.measured.schedule import Schedule

import dpexec as fluid
from dpexec import layers
from dpexec.engine.exchange.party import part_all
from tests.engine.run.trainers.pair import Trainer, free_endpoint, together, two
from tests.viz.traces import event, task, trace, two_replicas


def waiting(steps=3, **waits):
    """Two devices work for 2 s; the sum, with trainer 1, is there after 6 s; updates take 1 s."""
    events = []
    start = 5.5 if "awaited" in waits else 2
    for step in range(steps):
        at = 10 * step
        for d in range(2):
            key = f"forward_backward_dev{d}-{d}"
            events += [
                task(key, d, at, at + 2, d, step),
                event("mul", "op", d, key, at, at + 1, d, 2 * d, step),
                event("mul_grad", "op", d, key, at + 1, at + 2, d, 2 * d + 1, step),
            ]
        facts = {**waits, "for": "trainer 1"}
        events += [
            task("all_reduce-2", None, at + start, at + 6, 0, step),
            event("all_reduce", "collective", None, "all_reduce-2", at + start, at + 6, 0, 4, step),
        ]
        events[-1].args.update(facts)
        for d in range(2):
            key = f"optimizer_dev{d}-{3 + d}"
            events += [
                task(key, d, at + 6, at + 7, d, step),
                event("sgd", "op", d, key, at + 6, at + 7, d, 5 + d, step),
            ]
    return trace(events, two_replicas(), num_threads=2, scheduler="threads")


@pytest.mark.parametrize("waits", [{"waited": 3.5}, {"awaited": 3.5}], ids=str)
def test_a_wait_for_another_process_is_no_work_of_the_collective(waits):
    schedule = Schedule(waiting(**waits))
    path = critical_path(schedule)
    assert path.parts["straggler"] == pytest.approx(3.5)
    assert path.parts["communication"] == pytest.approx(0.5)
    assert sum(path.parts.values()) == pytest.approx(path.seconds) == pytest.approx(7.0)
    assert [link.name for link in path.links if link.part == "straggler"] == [
        "waiting for trainer 1"
    ]
    found = analyse(waiting(**waits))
    assert found.what_if("all_reduce", float("inf")) == pytest.approx(6.5)
    assert found.what_if("waiting for trainer 1", float("inf")) == pytest.approx(3.5)
    for use in found.analysis.devices:
        assert (use.straggler, use.communication) == (pytest.approx(0.5), pytest.approx(0.5 / 7))
        assert sum(use.parts.values()) == pytest.approx(1)
    assert "3.50 s went by waiting for trainer 1" in str(found)
    assert any("for trainer 1, whose values come last" in str(one) for one in found.analysis.advice)


def test_work_that_ends_late_in_the_wait_is_what_was_waited_for():
    """So it is where a trace is of all processes: another replica is to blame, by its work."""
    made = waiting(waited=3.5)
    late = [
        event(e.name, e.kind, 1, e.key, e.start, e.stop + 3.4, e.thread, e.node, e.step)
        if e.key == "forward_backward_dev1-1" and e.name != "mul"
        else e
        for e in made.events
    ]
    path = critical_path(Schedule(trace(late, two_replicas(), num_threads=2)))
    assert path.parts["straggler"] == 0 and path.links[1].name == "mul_grad"
    assert path.links[1].device == 1


@pytest.mark.parametrize("waited", [3.5, 3.3])  # it waited after work of its own of 0.2 s
def test_work_that_begins_in_the_wait_is_what_was_waited_for(waited):
    """A worker that begins late is on the path, with its work; a forecast makes that longer."""
    made = waiting(waited=waited)
    late = [
        event(e.name, e.kind, 1, e.key, e.start + 3.4, e.stop + 3.4, e.thread, e.node, e.step)
        if e.key == "forward_backward_dev1-1"
        else e
        for e in made.events
    ]
    found = analyse(trace(late, two_replicas(), num_threads=2))
    path = found.analysis.path
    assert path.parts["straggler"] == 0
    assert path.parts["communication"] == pytest.approx(0.5 if waited == 3.5 else 0.6)
    assert [(link.name, link.device) for link in path.links[:2]] == [("mul", 1), ("mul_grad", 1)]
    assert path.links[0].delay == pytest.approx(3.4)
    assert found.what_if("mul", 0.5) == pytest.approx(path.seconds + 1)
    assert found.what_if("mul", float("inf")) == pytest.approx(path.seconds - 1)


def test_time_in_which_others_have_not_begun_a_step_is_not_the_scripts():
    """Of 3 seconds between steps, 2 are waits for others."""
    made = waiting(3, waited=3.5)
    made.meta["meetings"] = [[10.0 * step + 8, 10.0 * step + 10] for step in range(3)]
    found = analyse(made)
    texts = [str(one) for one in found.analysis.advice]
    assert any(text.startswith("for 15% of the whole time, this trainer waits") for text in texts)
    assert any(text.startswith("7.4% of the whole time passes between the steps") for text in texts)
    assert compare(made, made)._rhythms[0].between.median == pytest.approx(1.0)
    made.meta["meetings"] = []
    made.meta["preparing"] = [[8.0, 9.5], [18.0, 19.0]]
    found = analyse(made)
    assert "Before step" not in str(found)  # it takes less than a step
    assert any("steps are prepared for new shapes" in str(one) for one in found.analysis.advice)
    made.meta["preparing"] = [[-5.0, 9.5]]
    made.meta["preparing"][0][0] = 7.0
    assert [step.prepared for step in analyse(made).analysis.steps] == [2.5, 0.0, 0.0]


def test_waits_for_batches_are_told_apart_from_time_of_the_script():
    """Of 3 seconds between steps, 2 are waits for a loader."""
    made = waiting(3, waited=3.5)
    made.meta["reading"] = [[10.0 * step + 8, 10.0 * step + 10] for step in range(3)]
    found = analyse(made)
    texts = [str(one) for one in found.analysis.advice]
    assert any(text.startswith("for 15% of the whole time, 2.00 s a step, steps") for text in texts)
    assert any(text.startswith("7.4% of the whole time passes between the steps") for text in texts)
    assert compare(made, made)._rhythms[0].between.median == pytest.approx(1.0)


def test_waits_for_a_reader_that_begins_are_told_apart_from_slow_reading():
    """Of six steps, one waits 3 s for its batch, as the first of an epoch does."""
    made = waiting(6, waited=3.5)
    made.meta["reading"] = [[37.0, 40.0]]
    (text,) = (str(one) for one in analyse(made).analysis.advice if "wait for batches" in str(one))
    assert "nearly all of it before 1 step (at most 3.00 s): there a reader begins" in text


def test_a_loader_that_is_slower_than_steps_is_the_cause_of_their_rhythm():
    x = layers.data("x", [4])
    loss = layers.mean(layers.fc(x, 2))
    loader = fluid.io.DataLoader.from_generator([x], capacity=2)
    done = threading.Semaphore(1)

    def batches():
        for _ in range(4):
            done.acquire()  # reading begins when the step before has ended
            time.sleep(0.02)
            yield [np.ones((2, 4), np.float32)]

    loader.set_batch_generator(batches, places=fluid.cpu_places(1))
    how = fluid.ExecutionStrategy()
    how.trace = True
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    one = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, exec_strategy=how, places=fluid.cpu_places(1)
    )
    for feed in fluid.io.buffered(loader, 1)():  # a thread that reads ahead delays no step
        exe.run(one, feed=feed, fetch_list=[loss])
        done.release()
    waits = [stop - start for start, stop in one.trace.meta["reading"]]
    assert len(waits) == 3  # the first batch comes before the first step
    assert min(waits) > 0.01 and "steps wait for batches" in str(analyse(one))


def sleeping():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = layers.data("x", [4])
        slept = main.global_block().create_var(name="slept", dtype="float32", shape=[-1, 4])

        def sleep(value):
            time.sleep(float(np.max(value)))
            return value

        layers.py_func(sleep, x, slept)
        loss = layers.mean(layers.fc(slept, 8))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return SimpleNamespace(main=main, startup=startup, loss=loss)


def test_trainers_say_for_whom_they_waited(monkeypatch):
    monkeypatch.setenv("DPEXEC_SECRET", "of this test")
    slow, fast = 0.08, 0.01
    trainers = two(sleeping(), [free_endpoint() for _ in range(2)], trace=True, devices=1)
    feeds = [[{"x": np.full((2, 4), seconds, np.float32)}] * 3 for seconds in (fast, slow)]
    together(trainers, feeds)
    assert [trainer.error for trainer in trainers] == [None, None]
    part_all()
    early, late = (analyse(trainer.compiled, steps=[1, 2]) for trainer in trainers)
    waited = [e.args for e in trainers[0].compiled.trace if "waited" in e.args and e.step]
    assert len(waited) == 2 and {args["for"] for args in waited} == {"trainer 1"}
    for args in waited:
        assert args["waited"] == pytest.approx(slow - fast, abs=0.05)
    for trainer in trainers:  # they also met before each step
        assert len(trainer.compiled.trace.meta["meetings"]) >= 2
    share = early.analysis.path.parts["straggler"] / early.analysis.path.seconds
    assert share > 0.4 and late.analysis.path.parts["straggler"] < 0.4 * slow


def test_whole_steps_of_three_trainers_name_who_was_late(monkeypatch):
    """The late one has fifteen thousand times the rows; who that is changes from step to step."""
    monkeypatch.setenv("DPEXEC_SECRET", "of this test")
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = layers.data("x", [64])
        loss = layers.mean(layers.fc(layers.fc(x, 64, act="relu"), 64))
        fluid.optimizer.SGD(0.1).minimize(loss)
    net, places = SimpleNamespace(main=main, startup=startup, loss=loss), range(3)
    endpoints = [free_endpoint() for _ in places]
    trainers = [Trainer(net, endpoints, rank, trace=True, devices=1) for rank in places]
    for trainer in trainers:
        trainer.start()
    late = [0, 1, 2] * 4
    sizes = [[60_000 if rank == slow else 4 for slow in late] for rank in places]
    ones = np.ones((60_000, 64), np.float32)
    feeds = [[{"x": ones[:rows]} for rows in own] for own in sizes]
    together(trainers, feeds)
    assert [trainer.error for trainer in trainers] == [None] * 3
    part_all()
    for rank, trainer in enumerate(trainers):
        waits = {slow: Counter() for slow in places}
        for found in trainer.compiled.trace:
            facts = found.args
            if found.kind == "collective" and "for" in facts:
                seconds = facts.get("awaited", facts.get("waited", 0))
                waits[late[found.step]][facts["for"]] += seconds
        for slow in set(places) - {rank}:
            assert max(waits[slow], key=waits[slow].__getitem__) == f"trainer {slow}"
