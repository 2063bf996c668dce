"""Which steps of a gang are measured for dask's pages, and what members report about the others."""

from types import SimpleNamespace

import pytest

from dpexec.engine.cluster.worker import step_groups
from dpexec.engine.cluster.worker.step_groups import StepGroups
from dpexec.engine.core.cache import LIMITS, Limit
from dpexec.engine.core.places import CPUPlace, CUDAPlace


def bound(place):
    """A binding for a device."""
    plan = SimpleNamespace(graph=SimpleNamespace(places=[place]))
    return SimpleNamespace(recording=None, plan=plan)


RECORDED = bound(CPUPlace())


class Clock:
    """Time that passes when somebody says so."""

    def __init__(self):
        self.now, self.spent, self.cost = 1000.0, 0.0, 0.0

    def perf_counter(self):
        return self.now

    def thread_time(self):
        return self.spent


class Worker:
    """What members need of a dask worker, whose loop runs when it is told to."""

    scheduler_delay = 0.25

    def __init__(self):
        self.told, self.later = [], []
        self.loop = SimpleNamespace(
            add_callback=lambda call: call(),
            call_later=lambda seconds, call: self.later.append(call),
        )

    def log_event(self, topic, message):
        assert topic == step_groups.TOPIC
        self.told.append(message)

    def run_loop(self):
        calls, self.later = self.later, []
        for call in calls:
            call()


def task(number, name, device):
    return SimpleNamespace(id=number, key=(name, 0), device=device, is_collective=device is None)


TASKS = [task(0, "forward_dev0", 0), task(1, "all_reduce", None), task(2, "optimizer_dev0", 0)]


class Notes:
    """What a step of three tasks noted, a millisecond each."""

    count = 1

    def __init__(self, now):
        self.now = now

    def tasks_ran(self, row):
        for number, found in enumerate(TASKS):
            begin = int((self.now + number / 1000) * 1e9)
            yield found, begin, begin + 1_000_000


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(step_groups, "time", found)
    monkeypatch.setattr(step_groups, "wall_time", lambda: found.now + 5000.0)
    return found


@pytest.fixture
def groups(clock):
    return StepGroups(Worker(), "0123456789abcdef", 1)


def make(groups, clock, step, seconds, plan=0):
    """Make a step; returns whether it was measured."""
    watching = groups.begin(step, plan, RECORDED)
    clock.spent += clock.cost if watching else 0.0
    for keeper in watching:
        keeper.keep(Notes(clock.now))
    clock.now += seconds
    groups.end()
    return bool(watching)


@pytest.mark.parametrize(("seconds", "a_second"), [(0.0002, 12), (0.001, 12), (0.03, 10), (0.4, 3)])
def test_ten_steps_a_second_are_measured_at_most(groups, clock, seconds, a_second):
    steps = int(20 / seconds)
    found = [make(groups, clock, step, seconds) for step in range(steps)]
    assert all(found[:1]) and 20 * 2.5 < sum(found) + 1 <= 20 * a_second


def test_steps_on_gpus_are_not_measured(groups):
    on_gpu = bound(object.__new__(CUDAPlace))  # which this machine need not have
    for step in range(4):
        assert groups.begin(step, 0, on_gpu) == ()
        groups.end()


def test_members_that_go_at_about_the_same_pace_measure_the_same_steps(clock):
    found = []
    for pace in (0.0010, 0.0011):
        groups = StepGroups(Worker(), "0123456789abcdef", 1)
        found.append({step for step in range(5000) if make(groups, clock, step, pace)})
    few, many = sorted(found, key=len)
    assert len(few & many) > 0.8 * len(few) > 20


@pytest.mark.parametrize("count", [2, 3, 24])
def test_plans_that_take_turns_are_all_measured(groups, clock, count):
    found = [(step % count, make(groups, clock, step, 0.01, step % count)) for step in range(6000)]
    for plan in range(count):
        assert sum(measured for which, measured in found if which == plan) > 5
    assert sum(measured for _, measured in found) < 60 * 12


def test_plans_that_come_once_are_told_like_those_that_were_measured(groups, clock):
    """Each batch may have a plan of its own, as that of a loop over sequences."""
    found = [make(groups, clock, step, 0.03, step) for step in range(100)]
    assert 8 < sum(found) < 40
    assert groups.take()["groups"]["all_reduce"] == pytest.approx([0.1, 100])


def test_all_steps_of_a_plan_count_while_others_come_and_go(monkeypatch, clock):
    monkeypatch.setitem(LIMITS, "usual steps", Limit(4, ""))
    groups, told = StepGroups(Worker(), "0123456789abcdef", 1), 0
    for step in range(30):
        make(groups, clock, 2 * step, 0.01, 0)
        make(groups, clock, 2 * step + 1, 0.01, step + 1)
        if step % 3 == 2:
            told += groups.take()["steps"]
    assert told == 60


class CodeNotes(Notes):
    """Notes of steps of code, which go on until the steps are for somebody else."""

    def __init__(self, now):
        super().__init__(now)
        self.count, self.watching = 0, ()

    def run(self, watching, now):
        """Make a step as :class:`WholeCode` does."""
        if watching is not self.watching:
            self.watching = watching
            for keeper in watching:
                keeper.follow(self)
        self.now = now
        self.count += bool(watching)


def test_steps_of_code_are_measured_also_one_after_another(groups, clock):
    notes = CodeNotes(clock.now)
    for step in range(5):
        notes.run(groups.begin(step, 0, RECORDED), clock.now)
        clock.now += 0.12
        groups.end()
    assert {span[2] for span in groups.take()["spans"]} == {0, 1, 2, 3, 4}


def test_dear_steps_are_measured_rarely(groups, clock):
    clock.cost = 0.004  # seconds of a processor more than other steps
    found = [make(groups, clock, step, 0.001) for step in range(20_000)]
    assert 0.004 * sum(found[2000:]) < 0.02 * 18.0


def test_first_step_that_takes_long_to_make_is_no_measure_of_the_others(groups, clock):
    clock.cost = 30.0
    assert make(groups, clock, 0, 30.0)
    clock.cost = 0.0
    assert sum(make(groups, clock, step, 0.001) for step in range(1, 1000)) > 8


def test_told_is_what_all_steps_consist_of_as_far_as_measured_ones_tell(groups, clock):
    for step in range(100):
        make(groups, clock, step, 0.01)
    groups.worker.run_loop()
    (told,) = groups.worker.told
    assert told["steps"] == 100 and told["tag"] == "01234567"
    assert told["groups"].keys() == {"forward_dev0", "all_reduce", "optimizer_dev0"}
    for seconds, runs in told["groups"].values():
        assert runs == 100 and seconds == pytest.approx(0.1, rel=1e-6)
    assert told["running"] is None and told["failed"] == []
    key, device, step, every, start, stop = told["spans"][1]
    assert (key, device, step, every) == ("all_reduce-1", None, 0, 1)
    assert start == pytest.approx(6000.25 + 0.001) and stop - start == pytest.approx(0.001)
    for step in range(100, 103):  # none of which is measured
        make(groups, clock, step, 0.001)
    groups.worker.run_loop()
    assert groups.worker.told[1]["steps"] == 3
    assert groups.worker.told[1]["groups"]["all_reduce"][1] == 3


def test_nothing_is_told_when_nothing_happens(groups, clock):
    make(groups, clock, 0, 0.01)
    groups.worker.run_loop()
    assert len(groups.worker.told) == 1 and not groups.worker.later
    assert groups.take() is None


def test_step_that_takes_long_is_told_while_it_runs(groups, clock):
    groups.begin(7, 0, RECORDED)
    for _ in range(2):
        clock.now += 1.0
        groups.worker.run_loop()
    assert [told["running"] for told in groups.worker.told] == [[7, 1.0], [7, 2.0]]
    groups.end()
    groups.worker.run_loop()
    assert groups.worker.told[2]["running"] is None and groups.worker.told[2]["steps"] == 1


def test_failed_step_is_told_with_its_reason_and_does_not_count(groups, clock):
    groups.begin(7, 0, RECORDED)
    clock.now += 0.1
    groups.fail(ValueError("no such word\nand more"), "gang_dev0")
    groups.fail(ValueError("again"), "gang_dev0")  # between steps
    groups.worker.run_loop()
    (told,) = groups.worker.told
    ((name, step, start, stop, why),) = told["failed"]
    assert (name, step, why, told["steps"]) == ("gang_dev0", 7, "ValueError: no such word", 0)
    assert stop - start == pytest.approx(0.1)


def test_plan_of_many_tasks_tells_the_longest(groups, clock, monkeypatch):
    many = [task(number, f"forward_dev{number}", number) for number in range(300)]

    def ran(notes, row):
        return ((found, 0, found.id + 1) for found in many)

    monkeypatch.setattr(Notes, "tasks_ran", ran)
    make(groups, clock, 0, 0.01)
    told = groups.take()
    assert len(told["spans"]) == 100 and len(told["groups"]) == 300
    assert min(int(span[0].rpartition("-")[2]) for span in told["spans"]) == 200
