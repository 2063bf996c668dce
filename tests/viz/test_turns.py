"""Operators in Python that wait for each other: known answers, and what is recorded."""

from dataclasses import replace

import pytest
from dpexec.viz.compare import cause_text, compare
from dpexec.viz.findings import analyse
from dpexec.viz.measured.activities import activities_of
from dpexec.viz.measured.replay import Replay
from dpexec.viz.measured.schedule import Schedule

from tests.viz.test_what_if import recorded
from tests.viz.traces import event, task, trace, two_replicas


def taking_turns(late=0.0, busy=(2.0, 2.0), worker=(None, None), end=4.0):
    """Two operators of 2 seconds of Python each, side by side, so that both are over after 4.

    Then, on all devices: all-reduce and updates of a second each. Device 1 begins `late` seconds
    later, as its thread waits for the Python of device 0.
    """
    events = []
    for d, start in ((0, 0.0), (1, late)):
        key, where = f"forward_backward_dev{d}-{d}", {"worker": worker[d]} if worker[d] else {}
        events += [
            replace(task(key, d, start, end, d), args=where),
            event("mul", "op", d, key, start, end, d, 2 * d, busy=busy[d], **where),
        ]
    met = end + 1
    events.append(event("all_reduce", "collective", None, "all_reduce-2", end, met, 0, 4))
    for d in range(2):
        key = f"optimizer_dev{d}-{3 + d}"
        events.append(event("sgd", "op", d, key, met, met + 1, d, 5 + d))
    return trace(events, two_replicas(), num_threads=2, scheduler="threads", cpus=2)


def of_device(made, device, factor):
    """Seconds of the step if the operator of a device takes another time."""
    schedule = Schedule(made)
    replay = Replay(activities_of(schedule, schedule.typical))
    members = [
        at
        for at, one in enumerate(replay.activities.all)
        if one.piece.event.name == "mul" and one.piece.event.device == device
    ]
    assert members
    return replay.each([members], factor)[0]


@pytest.mark.parametrize("late", [0.0, 1.0])
def test_what_waits_for_python_becomes_shorter_with_it(late):
    view = analyse(taking_turns(late))
    for faster, seconds in ((2, 4.0), (0.5, 10.0), (float("inf"), 2.0), (1, 6.0)):
        assert view.what_if("mul", faster) == pytest.approx(seconds, abs=1e-4), faster


def test_one_of_two_made_faster_leaves_the_wait_for_the_other():
    # a second of Python less, in whichever order they come
    assert of_device(taking_turns(), 0, 0.5) == pytest.approx(5.0)
    assert of_device(taking_turns(), 0, 2.0) == pytest.approx(8.0)
    assert of_device(taking_turns(), 0, 1.0) == pytest.approx(6.0)


def test_what_sleeps_waits_for_nobody():
    """Both sleep at the same time; without one, the other still does."""
    asleep = taking_turns(busy=(0.0, 0.0))
    assert of_device(asleep, 0, 0.0) == pytest.approx(6.0)
    assert analyse(asleep).what_if("mul", 2) == pytest.approx(4.0)


def test_processes_do_not_wait_for_each_others_python():
    apart = taking_turns(worker=("a", "b"))
    assert of_device(apart, 0, 0.0) == pytest.approx(6.0)
    assert analyse(apart).what_if("mul", 2) == pytest.approx(4.0)


def test_an_operator_that_slept_says_its_processor_time():
    found = [e for e in recorded((0.02, 0.02), "threads").trace.events if e.name == "py_func"]
    assert len(found) == 10
    for one in found:
        assert 0 <= one.args["busy"] < one.duration - 0.015


def test_waiting_for_python_is_a_part_of_its_own_and_has_its_advice():
    found = analyse(taking_turns()).analysis
    assert found.path.parts["turn"] == pytest.approx(2.0, abs=1e-4)
    assert found.path.parts["compute"] == pytest.approx(3.0, abs=1e-4)
    assert sum(found.path.parts.values()) == pytest.approx(found.path.seconds)
    for use in found.devices:
        assert (use.turn, use.compute) == pytest.approx((2 / 6, 3 / 6), abs=1e-4)
        assert sum(use.parts.values()) == pytest.approx(1.0)
    texts = [str(one) for one in found.advice]
    (said,) = (text for text in texts if "for Python of other threads" in text)
    assert "device 0 waits 33% of the step" in said and "a step takes 33% less" in said
    assert any("mul takes 4.00 s of the critical path; twice" in text for text in texts)


def test_a_task_that_begins_late_for_python_of_others_does_not_wait_for_the_scheduler():
    found = analyse(taking_turns(late=1.0)).analysis
    assert found.path.parts["scheduler"] == pytest.approx(0.0, abs=1e-4)
    # a second before the begin, and one inside
    assert found.devices[1].turn == pytest.approx(2 / 6, abs=1e-4)
    assert found.devices[1].scheduler == pytest.approx(0.0, abs=1e-4)
    assert not any("until forward_backward_dev1 starts" in str(one) for one in found.advice)


def test_what_is_not_on_the_path_gains_where_the_path_waits_for_its_python():
    """Device 1 ends last, since it waits between its operators for Python of device 0."""
    events = []
    for d, (name, first, gap, rest) in enumerate((("relu", 4, 0, 1), ("mul", 1, 3, 3))):
        key = f"forward_backward_dev{d}-{d}"
        busy = {"busy": float(first)} if name == "relu" else {}
        events += [
            task(key, d, 0, first + gap + rest, d),
            event(name, "op", d, key, 0, first, d, 2 * d, **busy),
            event("mul_grad", "op", d, key, first + gap, first + gap + rest, d, 2 * d + 1),
        ]
    found = analyse(trace(events, two_replicas(), num_threads=2, scheduler="threads", cpus=2))
    assert [use.turn for use in found.analysis.devices] == pytest.approx([0.0, 3 / 7], abs=1e-4)
    assert "between operators" not in str(found)
    relu = next(e for e in found.analysis.effects if e.name == "relu")
    assert (relu.path, relu.frees_threads) == (0.0, True)
    assert relu.none == pytest.approx(3.0, abs=1e-4)
    assert "- other threads wait for Python of relu; twice as fast" in str(found)
    assert "Other threads wait for Python of relu." in str(found)


def test_waits_for_python_are_causes_of_longer_steps():
    def causes(before, after):
        found = compare(before, after)
        assert sum(cause.difference for cause in found.causes) == pytest.approx(
            found.steps[1] - found.steps[0]
        )
        return {
            cause_text(one): pytest.approx(one.difference, abs=1e-4)
            for one in found.causes
            if abs(one.difference) > 1e-3
        }

    # the same work, which two processes do side by side
    apart = taking_turns(busy=(2.0, 2.0), worker=("a", "b"), end=2.0)
    assert causes(apart, taking_turns()) == {"waiting for Python of another thread": 2.0}
    # of an operator that takes longer, the waits for it do, too
    longer = taking_turns(busy=(3.0, 3.0), end=6.0)
    assert causes(taking_turns(), longer) == {"mul → h": 2.0}
    assert causes(taking_turns(late=1.0), taking_turns()) == {}
