"""Operators in Python that wait for each other: known answers, and what is recorded."""

from dataclasses import replace

import pytest
from dpexec.viz.findings import analyse
from dpexec.viz.measured.activities import activities_of
from dpexec.viz.measured.replay import Replay
from dpexec.viz.measured.schedule import Schedule

from tests.viz.test_what_if import recorded
from tests.viz.traces import event, task, trace, two_replicas


def taking_turns(late=0.0, busy=(2.0, 2.0), worker=(None, None)):
    """Two operators of 2 seconds of Python each, side by side, so that both are over after 4.

    Then, on all devices: all-reduce and updates of a second each. Device 1 begins `late` seconds
    later, as its thread waits for the Python of device 0.
    """
    events = []
    for d, start in ((0, 0.0), (1, late)):
        key, where = f"forward_backward_dev{d}-{d}", {"worker": worker[d]} if worker[d] else {}
        events += [
            replace(task(key, d, start, 4, d), args=where),
            event("mul", "op", d, key, start, 4, d, 2 * d, busy=busy[d], **where),
        ]
    events.append(event("all_reduce", "collective", None, "all_reduce-2", 4, 5, 0, 4))
    for d in range(2):
        events.append(event("sgd", "op", d, f"optimizer_dev{d}-{3 + d}", 5, 6, d, 5 + d))
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
