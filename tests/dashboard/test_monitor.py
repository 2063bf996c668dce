"""What is recorded about training on threads, and when."""

import gc
import time
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import dpexec as fluid
from dpexec.dashboard import boxes, monitor
from dpexec.dashboard.hub import HUB
from dpexec.dashboard.monitor import Told
from dpexec.dashboard.source import LocalSource
from dpexec.engine.trace import live
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    batches,
    classifier,
    strategies,
    train,
    word_batches,
    words,
)


@pytest.fixture
def hub():
    """The process-wide hub, joined."""
    number = HUB.join()
    yield HUB
    HUB.leave(number)
    assert not live.watchers()


def monitor_of(trainer):
    return trainer.compiled._engine.observers.counter


def report_of(trainer, told=None, samples=False):
    return monitor_of(trainer).report(told or Told(), samples)


class Trainer:
    """A small net that trains step by step on two devices."""

    def __init__(self, mode=None, **options):
        self.net, self.feeds = classifier(sizes=(8, 16, 3)), batches(3, rows=11)
        self.scope = fluid.Scope()
        build, execution = strategies(mode or fluid.BuildStrategy.ReduceStrategy.AllReduce)
        for name, value in options.items():
            setattr(build, name, value)
        self.compiled = fluid.CompiledProgram(self.net.main).with_data_parallel(
            self.net.loss.name, build, execution, places=[fluid.CPUPlace()] * 2
        )
        with fluid.scope_guard(self.scope):
            self.exe = fluid.Executor(fluid.CPUPlace())
            self.exe.run(self.net.startup)

    def step(self, number=0, fetch=True):
        with fluid.scope_guard(self.scope):
            names = [self.net.loss] if fetch else []
            return self.exe.run(self.compiled, feed=self.feeds[number % 3], fetch_list=names)


def test_counts_and_losses_are_exact(hub):
    trainer = Trainer()
    losses = [trainer.step(i)[0] for i in range(3)]
    report = report_of(trainer)
    assert (report["steps"], report["samples"], report["failed"]) == (3, 33, 0)
    means = [[i + 1, pytest.approx(np.mean(loss))] for i, loss in enumerate(losses)]
    assert report["loss"] == means
    assert report["loss_name"] == trainer.net.loss.name
    sizes = [8 * 16, 16, 16 * 3, 3]
    assert report["bytes"] == 3 * 2 * 4 * sum(sizes)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_sparse_sums_count_as_what_they_read(hub, mode, whole):
    net = words()
    build, execution = strategies(mode, use_experimental_executor=whole)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, execution, places=[fluid.CPUPlace()] * 2
    )
    exe, feeds = fluid.Executor(fluid.CPUPlace()), word_batches(4)
    feeds[3]["x"][:] = 7  # a single word
    exe.run(net.startup)
    for feed in feeds:
        exe.run(compiled, feed=feed)
    row, dense = 5 * 4 + 8, 2 * 4 * (5 * 3 + 3)
    rows = sum(len(np.unique(half)) for feed in feeds for half in np.split(feed["x"], 2))
    monitor = compiled._engine.observers.counter
    assert monitor.report(Told(), False)["bytes"] == 4 * dense + rows * row
    binding, most = monitor._binding, row * feeds[0]["x"].size
    assert boxes.collective_bytes(binding.plan.nodes, binding) == (dense, most)


def test_without_fetches_there_is_no_loss_but_a_count(hub):
    trainer = Trainer()
    trainer.step(fetch=False)
    report = report_of(trainer)
    assert (report["steps"], report["loss"], report["loss_name"]) == (1, [], "")


def test_moments_that_one_device_has_are_no_loss(hub):
    momentum = fluid.optimizer.Momentum(0.1, 0.9)
    run = train(classifier(momentum), batches(1), 2, Reduce, fetched=["fc_0.w_0_velocity_0"])
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        for name in ("fc_0.w_0_velocity_0", "fc_1.w_0_velocity_0"):
            exe.run(run.compiled, feed=batches(1)[0], fetch_list=[name])
    assert monitor_of(run).report(Told(), False)["steps"] == 3


def test_failed_step_is_counted_and_training_goes_on(hub):
    trainer = Trainer()
    trainer.step()
    bad = {**trainer.feeds[0], "y": trainer.feeds[0]["y"] + 50}
    trainer.feeds.insert(0, bad)
    with pytest.raises(fluid.core.EnforceNotMet):
        trainer.step(0)
    trainer.step(1)
    report = report_of(trainer)
    assert (report["steps"], report["failed"]) == (2, 1)


def test_a_step_is_sampled_when_somebody_asks(hub):
    trainer = Trainer()
    trainer.step()
    assert report_of(trainer)["sample"] is None
    trainer.step(1)
    assert report_of(trainer, samples=True)["sample"] is None
    for number in range(4):
        trainer.step(number)
        report_of(trainer, samples=True)
    found = report_of(trainer)["sample"]
    assert found["step"] == 3  # one of four steps: the next is due a second later
    tasks = {row[4] for row in found["slices"] if row[2] == "task"}
    assert tasks == {key for box in boxes.boxes(binding_of(trainer)) for key in box["keys"]}
    roles = {(row[3], row[1]) for row in found["slices"] if row[2] == "op"}
    assert {"forward", "backward", "optimize"} <= {role for _, role in roles}
    assert all(0 <= row[5] <= row[6] <= found["seconds"] for row in found["slices"])
    assert not trainer.compiled._engine.observers.recorders


def binding_of(trainer):
    return trainer.compiled._engine.bindings.kept[0]


def test_losses_of_many_steps_are_thinned_and_bounded(hub):
    trainer = Trainer()
    trainer.step()
    seen, told = monitor_of(trainer), Told()
    for number in range(2, 10_001):
        seen.begin(seen._binding)
        seen.end([3, 3], [np.float32([number])])
        assert len(seen._losses) <= monitor._LOSSES
    points = seen.report(told, False)["loss"]
    assert len(points) <= monitor._LOSSES_SENT and all(step == loss for step, loss in points)
    time.sleep(monitor._LOOK_EVERY)
    seen.begin(seen._binding)
    seen.end([3, 3], [np.float32([-1])])
    assert seen.report(told, False)["loss"] == [[10_001, -1.0]]


def test_batches_of_several_sizes_are_added_up(hub):
    trainer = Trainer()
    for rows in (11, 4, 4, 7, 11):
        trainer.feeds = batches(1, rows=rows)
        trainer.step(0)
    report = report_of(trainer)
    assert (report["steps"], report["samples"]) == (5, 37)
    assert report["bytes"] == 5 * 2 * 4 * sum([8 * 16, 16, 16 * 3, 3])


def test_long_step_says_what_has_ended(hub):
    trainer = Trainer()
    trainer.step()
    seen = monitor_of(trainer)
    report_of(trainer, samples=True)
    seen.begin(seen._binding)
    recording = seen._binding.recording
    recording.begin()
    recording.begin_tasks()
    assert report_of(trainer)["current"] is None  # it has only begun
    for name in ("ended", "_recorded_from", "began"):  # as it will be in ten seconds
        setattr(seen, name, getattr(seen, name) - 10.0)
    recording._ran[1] = 0, 1, 0
    current = report_of(trainer)["current"]
    task = binding_of(trainer).plan.tasks[1]
    assert current["step"] == 2 and current["since"] >= 10.0
    assert current["done"] == [f"{task.key[0]}-1"]


def test_latest_is_what_trains_rather_than_what_starts_up(hub):
    trainer = Trainer()
    assert hub.latest() is None or not hub.latest().trains
    trainer.step()
    Trainer()
    assert hub.latest() is monitor_of(trainer)


def test_monitor_goes_with_its_engine(hub):
    trainer = Trainer()
    trainer.step()
    seen = weakref.ref(monitor_of(trainer))
    report_of(trainer)
    del trainer
    gc.collect()
    assert seen() is None


def test_nobody_watches_when_the_last_source_is_closed():
    one, other = LocalSource(), LocalSource()
    one.close()
    assert live.watchers() == (HUB,)
    other.close()
    assert not live.watchers()


def test_everybody_is_told_once_what_is_new(hub):
    trainer = Trainer()
    one, other = LocalSource(trainer.compiled), LocalSource(trainer.compiled)
    one.show(1)
    trainer.step()
    first = one.report()
    assert first["graph"] and first["sample"] is None and len(first["loss"]) == 1
    trainer.step()
    news = one.report()
    assert (news["graph"], news["sample"]["step"], news["steps"]) == (None, 2, 2)
    assert [step for step, _ in news["loss"]] == [2]
    late = other.report()
    assert late["graph"] == first["graph"] and late["sample"] == news["sample"]
    assert [step for step, _ in late["loss"]] == [1, 2]
    for source in (one, other):
        report = source.report()
        assert (report["loss"], report["sample"]) == ([], None)
        source.close()


def test_steps_are_recorded_while_they_are_slow_and_looked_at(hub, monkeypatch):
    monkeypatch.setattr(monitor, "_SAMPLE_EVERY", 0.0)  # as if all steps took longer
    trainer = Trainer()
    trainer.step()
    observers, seen = trainer.compiled._engine.observers, monitor_of(trainer)
    report_of(trainer, samples=True)
    seen._asked += 60.0  # somebody has just looked
    trainer.step()
    assert observers.recorders == (seen,)
    seen._asked -= 120.0
    trainer.step()
    assert observers.recorders == ()


@pytest.mark.parametrize("options", [{}, {"task_granularity": "op"}, {"mode": Reduce}])
def test_boxes_hold_every_task_and_rows_follow_dependencies(options, monkeypatch):
    trainer = Trainer(**options)
    trainer.step()
    binding = binding_of(trainer)
    plan = binding.plan
    for most in (boxes.MOST_BOXES, 3):
        monkeypatch.setattr(boxes, "MOST_BOXES", most)
        found = boxes.boxes(binding)
        keys = [key for box in found for key in box["keys"]]
        assert sorted(keys) == sorted(f"{t.key[0]}-{t.id}" for t in plan.tasks)
        assert sum(box["ops"] for box in found) == len(plan.nodes)
        row = {key: box["row"] for box in found for key in box["keys"]}
        for task in plan.tasks:
            for before in task.after:
                earlier = plan.tasks[before]
                assert row[f"{earlier.key[0]}-{before}"] <= row[f"{task.key[0]}-{task.id}"]
    total = sum(box["bytes"] for box in found)
    assert (total, 0) == boxes.collective_bytes(plan.nodes, binding) > (0, 0)


def test_watching_begins_and_ends_between_steps():
    trainer = Trainer()
    trainer.step()
    source = LocalSource(trainer.compiled)
    assert source.report()["steps"] == 0
    trainer.step()
    assert source.report()["steps"] == 1
    source.close()
    trainer.step()


def test_nothing_is_told_of_what_never_ran():
    compiled = Trainer().compiled
    source = LocalSource(compiled)
    assert source.report() is None
    source.close()


def test_a_box_does_not_name_roles_of_hardly_any_operator():
    """A constant of the update that is made early does not make a task one of the update."""
    nodes = [SimpleNamespace(role=role) for role in ["forward"] * 60 + ["optimize"]]
    task = SimpleNamespace(is_collective=False, nodes=nodes)
    assert boxes._largest_roles([task]) == {"forward": 60}
    task.nodes = nodes[50:]
    assert boxes._largest_roles([task]) == {"forward": 10, "optimize": 1}
