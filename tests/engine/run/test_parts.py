"""Every combination of store, order and launch has the same bits."""

import itertools

import numpy as np
import pytest

from dpexec.engine.cluster.worker.version_store import VersionStore, _CodeVariables
from dpexec.engine.cluster.worker.versions import StaleTaskError, StepArrays
from dpexec.engine.run.orders import Inline
from dpexec.engine.run.step_runner import StepRunner
from dpexec.engine.run.whole_code import WholeCode
from dpexec.engine.threads.thread_team import ThreadTeam
from tests.engine.run.nets import batches
from tests.engine.run.stepping import LAUNCHES, ORDERS, STORES, Stepping


@pytest.fixture(scope="module")
def expected():
    return Stepping("scope", "inline", "host").train()


@pytest.mark.parametrize(
    ("store", "order", "launch"), [*itertools.product(STORES, ORDERS, LAUNCHES)]
)
def test_same_bits_with_all_parts(store, order, launch, expected):
    assert Stepping(store, order, launch).train() == expected


@pytest.mark.parametrize(("store", "launch"), [*itertools.product(STORES, LAUNCHES)])
def test_steps_of_code_have_the_same_bits_in_all_stores(store, launch, expected):
    assert Stepping(store, "inline", launch, in_code=True).train() == expected


def broken(*args):
    raise ZeroDivisionError("when code had updated")


@pytest.mark.parametrize("copied", [False, True])
def test_versions_stay_what_they_were_when_code_fails(copied, expected, monkeypatch):
    stepping = Stepping("versions", "inline", "worker", in_code=True)
    first, second, *rest = batches(4)
    stepping.step(1, first)
    stepping.step(2, second)
    before = stepping.state()
    with monkeypatch.context() as patch:
        patch.setattr(stepping, "fetch", broken)
        if not copied:
            stepping.code.by_binding.clear()
            patch.setattr(ThreadTeam, "run", broken)
        with pytest.raises(ZeroDivisionError):
            stepping.step(3, rest[0])
    assert stepping.state() == before
    assert stepping.versions.steps == ((2,) if copied else (2, 1))
    for number, feed in enumerate(rest, 3):
        stepping.step(number, feed)
    assert stepping.state() == expected[1]


class Failing:
    """An order that fails where updates may begin, or behind them."""

    def __init__(self, late):
        self.late = late

    def run(self, tasks):
        for task in tasks.plan.tasks:
            if task.id in tasks.plan.updates and not self.late:
                raise ZeroDivisionError("before updates")
            tasks.run(task.id)
        raise ZeroDivisionError("after updates")


@pytest.mark.parametrize("late", [False, True])
def test_versions_stay_what_they_were_when_a_step_fails(late, expected):
    stepping = Stepping("versions", "inline", "host")
    first, *rest = batches(4)
    stepping.step(1, first)
    before = stepping.state()
    with pytest.raises(ZeroDivisionError):
        stepping.step(2, rest[0], Failing(late))
    assert stepping.state() == before and stepping.versions.step == 1
    stepping.order = Inline()
    for number, feed in enumerate(rest, 2):
        stepping.step(number, feed)
    assert stepping.state() == expected[1]
    with pytest.raises(StaleTaskError):
        stepping.versions.stand_at(1)


def test_a_scope_stays_what_it_was_when_a_step_fails_before_updates():
    stepping = Stepping("scope", "inline", "host")
    before = stepping.state()
    with pytest.raises(ZeroDivisionError, match="before updates"):
        stepping.step(1, batches(1)[0], Failing(late=False))
    assert stepping.state() == before


class Staying(Stepping):
    """The same with one store and one step of code for all steps, as members of gangs have them."""

    def __init__(self):
        super().__init__("versions", "inline", "worker", in_code=True)
        self.kept = VersionStore({0: self.versions}, 0)
        code = WholeCode(self.kept, self.fetch, None, 1)
        self.runner = StepRunner(self.kept, self.order, self.launch, code=code)

    def step(self, number, feed):
        engine = self.engine
        feeds = engine.feeding.feeds_of(feed)
        binding = engine.bindings.of(feeds, (self.loss,), True)
        engine.replicas.scope.set_run_count(engine.label, number - 1)
        self.kept.go_on(number)
        (found,) = self.runner.step(binding, feeds, lambda: engine._shards(feeds), True)
        return found[self.loss]


def test_arrays_that_take_turns_are_looked_at_once(monkeypatch):
    found, find = [], _CodeVariables._find
    monkeypatch.setattr(_CodeVariables, "_find", lambda *a: found.append(a) or find(*a))
    stepping, feeds = Staying(), batches(1)[0]
    for number in range(1, 12):
        stepping.step(number, feeds)
    assert 0 < len(found) <= 5  # the first steps make the second array of each variable


@pytest.mark.parametrize("what", ["set", "step back", "shared", "forgotten"])
def test_arrays_that_take_turns_no_more(what):
    """Whatever happens to values between steps, code finds those that there are."""
    seen, feeds = [], batches(1)[0]
    for stepping in (Staying(), Stepping("versions", "inline", "worker")):
        versions = stepping.versions
        name = next(n for n in stepping.names if n.endswith("w_0"))
        for number in range(1, 12):
            stepping.step(number, feeds)
            if number in (7, 8) and what == "set":
                versions.set({name: versions.values[name] + 1}, StepArrays())
            if number == 7 and what == "step back":
                versions.stand_at(6)
            if number in (7, 8) and what == "shared":
                for array in versions.before.values():
                    array.flags.writeable = False
                kept = versions.before, {n: a.copy() for n, a in versions.before.items()}
            if number in (7, 8) and what == "forgotten":
                versions.forget_before()
        if what == "shared":
            for n, array in kept[1].items():
                np.testing.assert_array_equal(kept[0][n], array)
        seen.append(stepping.state())
    assert seen[0] == seen[1]
