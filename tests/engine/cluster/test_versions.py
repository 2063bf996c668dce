"""A worker keeps the state of a replica after each of the last two steps."""

import numpy as np
import pytest

from dpexec.engine.cluster.worker.versions import (
    LateUpdates,
    StaleTaskError,
    StepArrays,
    Versions,
    parts,
)


def stepped(versions, step, value, overwrites=True):
    """Make a step that adds to ``w``, in place or not, and leaves ``c`` alone."""
    arrays = StepArrays()
    scratch = versions.scratch(["w"] if overwrites else [], arrays)
    made = scratch.get("w", versions.values["w"].copy())
    made += value
    versions.commit(step, {"w": made}, arrays)


def start():
    return Versions(0, {"w": np.zeros(3), "c": np.ones(2)})


@pytest.mark.parametrize("overwrites", [True, False])
def test_the_step_before_can_be_gone_back_to(overwrites):
    versions = start()
    for step in range(1, 5):
        stepped(versions, step, 1, overwrites)
    assert versions.steps == (4, 3)
    np.testing.assert_array_equal(versions.at(3)["w"], [3, 3, 3])
    versions.stand_at(3)
    assert versions.steps == (3,)
    stepped(versions, 7, 10, overwrites)
    np.testing.assert_array_equal(versions.values["w"], [13, 13, 13])
    np.testing.assert_array_equal(versions.at(3)["w"], [3, 3, 3])
    np.testing.assert_array_equal(versions.values["c"], [1, 1])


@pytest.mark.parametrize("overwrites", [True, False])
def test_two_arrays_take_turns(overwrites):
    versions, seen = start(), set()
    kept = []  # arrays that are alive have addresses of their own
    for step in range(1, 8):
        stepped(versions, step, 1, overwrites)
        kept.append(versions.values["w"])
        seen.add(id(versions.values["w"]))
    assert len(seen) == 2


def test_variable_that_is_not_written_is_not_overwritten_later():
    versions = start()
    versions.commit(1, {}, StepArrays())  # both versions have the same array now
    stepped(versions, 2, 1)
    np.testing.assert_array_equal(versions.at(1)["w"], [0, 0, 0])


def test_older_and_newer_steps_are_refused():
    versions = start()
    stepped(versions, 1, 1)
    stepped(versions, 2, 1)
    for step in (0, 3):
        with pytest.raises(StaleTaskError, match=f"after step 2, not after step {step}"):
            versions.stand_at(step)


def test_values_from_outside_are_copied_and_final():
    versions, value = start(), np.full(3, 5.0)
    stepped(versions, 1, 1)
    versions.set({"w": value}, StepArrays())
    value[:] = 0
    np.testing.assert_array_equal(versions.values["w"], [5, 5, 5])
    assert versions.steps == (1,)


def step_of_owner(owner, others, step, value):
    """Make a step in which one replica updates ``w`` in place, and all get what it made."""
    arrays = StepArrays()
    scratch = owner.scratch(["w"], arrays)
    for other in others:
        other.scratch([], arrays)
    scratch["w"] += value
    for versions in (*others, owner):
        versions.commit(step, dict(scratch), arrays)


def test_replicas_of_a_worker_share_what_is_broadcast():
    owner, *others = replicas = [start() for _ in range(3)]
    for step in range(1, 5):
        step_of_owner(owner, others, step, 1)
    for step, total in (4, 4), (3, 3):
        assert len({id(versions.at(step)["w"]) for versions in replicas}) == 1
        np.testing.assert_array_equal(owner.at(step)["w"], [total] * 3)
    assert len({id(versions.values["c"]) for versions in replicas}) == 3


def test_what_is_shared_is_not_overwritten():
    owner, other = replicas = [start(), start()]
    for step in (1, 2, 3):
        step_of_owner(owner, [other], step, 1)
    arrays = StepArrays()
    scratches = [versions.scratch(["w"], arrays) for versions in replicas]  # each on its own
    for number, (versions, scratch) in enumerate(zip(replicas, scratches, strict=True), 1):
        scratch["w"] += number * 10
        versions.commit(4, scratch, arrays)
    for number, versions in enumerate(replicas, 1):
        np.testing.assert_array_equal(versions.at(3)["w"], [3] * 3)
        np.testing.assert_array_equal(versions.at(4)["w"], [3 + number * 10] * 3)


def test_one_that_goes_back_leaves_the_others_as_they_are():
    owner, other = start(), start()
    for step in (1, 2):
        step_of_owner(owner, [other], step, 1)
    other.stand_at(1)
    stepped(other, 5, 10)
    np.testing.assert_array_equal(owner.values["w"], [2] * 3)
    np.testing.assert_array_equal(owner.at(1)["w"], [1] * 3)
    np.testing.assert_array_equal(other.values["w"], [11] * 3)


def stepped_late(replicas, step, value, made=None):
    """Make a step that is to add to ``w`` where it lies; ``made`` notes that it did."""

    def update():
        for versions in replicas:
            versions.values["w"][:] += value
        if made is not None:
            made.append(step)

    late = LateUpdates(update, replicas)
    for versions in replicas:
        versions.commit(step, {"c": versions.values["c"] + 1}, StepArrays())
        versions.late = late


def test_updates_that_wait_are_made_when_somebody_needs_them():
    replicas, made = [start(), start()], []
    stepped_late(replicas, 1, 5, made)
    assert [versions.steps for versions in replicas] == [(1, 0)] * 2 and not made
    np.testing.assert_array_equal(replicas[0].at(0)["w"], [0, 0, 0])
    np.testing.assert_array_equal(replicas[0].at(1)["w"], [5, 5, 5])
    for versions in replicas:  # their updates are one piece of code
        assert versions.steps == (1,)
        np.testing.assert_array_equal(versions.at(1)["w"], [5, 5, 5])
        np.testing.assert_array_equal(versions.at(1)["c"], [2, 2])
        with pytest.raises(StaleTaskError):
            versions.stand_at(0)
    assert made == [1]


def test_updates_that_wait_are_not_made_when_replicas_go_back():
    replicas, made = [start(), start()], []
    stepped_late(replicas, 1, 5, made)
    for versions in replicas:
        versions.stand_at(0)
        versions.settle()
        assert versions.steps == (0,)
        np.testing.assert_array_equal(versions.values["w"], [0, 0, 0])
        np.testing.assert_array_equal(versions.values["c"], [1, 1])
    assert not made


def test_replica_cannot_have_the_updates_that_another_one_has_left():
    one, other = replicas = [start(), start()]
    stepped_late(replicas, 1, 5)
    one.stand_at(0)
    with pytest.raises(StaleTaskError, match="went back"):
        other.at(1)
    other.stand_at(0)
    np.testing.assert_array_equal(other.at(0)["w"], [0, 0, 0])


def test_nobody_goes_back_to_values_that_another_thread_overwrites_meanwhile(monkeypatch):
    versions, leave = start(), LateUpdates.leave
    stepped_late([versions], 1, 5)

    def make_and_leave(late):
        late.make()
        leave(late)

    monkeypatch.setattr(LateUpdates, "leave", make_and_leave)
    with pytest.raises(StaleTaskError, match="after step 1, not after step 0"):
        versions.stand_at(0)
    np.testing.assert_array_equal(versions.at(1)["w"], [5, 5, 5])


def test_updates_that_failed_leave_no_values_to_go_on_from():
    versions = start()
    versions.commit(1, {}, StepArrays())
    versions.late = LateUpdates(lambda: 1 // 0, [versions])
    with pytest.raises(ZeroDivisionError):
        versions.settle()
    for step in (0, 1):
        with pytest.raises(StaleTaskError):
            versions.at(step)


def test_parts_have_both_versions_though_updates_wait():
    """The updates of all replicas are made at once, and forget the step before of all."""
    replicas = {device: start() for device in range(2)}
    stepped_late([*replicas.values()], 1, 5)
    found = parts(replicas, [["w"], ["w"]])
    for part in found.values():
        assert part.steps == (1, 0)
        np.testing.assert_array_equal(part.at(1)["w"], [5, 5, 5])
        np.testing.assert_array_equal(part.at(0)["w"], [0, 0, 0])
    assert not parts(replicas, [[], []])


def test_array_that_a_step_overwrites_is_nobody_elses():
    versions, known = start(), start().values["w"]
    versions.values["w"] = known
    assert not versions.own(["w", "missing"]) and versions.values["w"] is known
    known.flags.writeable = False  # as what replicas of a worker have in common
    assert versions.own(["w"]) and versions.values["w"] is not known
    before = versions.values
    assert versions.keep_originals(["w"])["w"] is before["w"]
    assert versions.values["w"] is not before["w"]  # who reads them sees that
