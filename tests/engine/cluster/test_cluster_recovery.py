"""A step that loses workers is repeated a limited number of times, and then fails."""

import threading
from types import SimpleNamespace

import pytest

from dpexec.engine.cluster.client.recovery import Recovery
from dpexec.engine.core.errors import WorkerLostError
from dpexec.engine.trace import between


class Group:
    """Replicas without a cluster, that note for which of them new homes were sought."""

    def __init__(self):
        self.complete, self.regrouped = 3, []

    def regroup(self, lost, attempt):
        self.regrouped.append(lost)


@pytest.fixture
def group():
    return Group()


@pytest.fixture
def recovery(group):
    return Recovery(group, lambda: None, threading.RLock())


def failing(group, losses, completing=()):
    """What loses a worker so many times; before some of these it completes a step."""
    calls = iter(range(losses))

    def action():
        for call in calls:
            group.complete += call in completing
            raise WorkerLostError(f"loss {call}", {f"worker {call}": "is gone"})
        return "made"

    return action


def test_lost_workers_are_replaced_before_it_is_tried_again(recovery, group):
    assert recovery.surviving(failing(group, 3)) == "made"
    assert group.regrouped == [{f"worker {call}": "is gone"} for call in range(3)]


def test_a_step_that_loses_workers_again_and_again_is_an_error(recovery, group):
    with pytest.raises(WorkerLostError, match=r"lost 5 times at the same step.*loss 4") as caught:
        recovery.surviving(failing(group, 9))
    assert caught.value.lost == {"worker 4": "is gone"}


def test_steps_that_were_completed_in_between_are_not_the_same(recovery, group):
    assert recovery.surviving(failing(group, 9, completing={3, 6})) == "made"


def test_steps_that_were_repeated_are_told_apart_from_slow_ones():
    """Traces have the time from the first attempt to the last one, if replicas moved."""
    group = SimpleNamespace(complete=0, regroup=lambda lost, attempt: None)
    recovery = Recovery(group, lambda: None, threading.RLock())
    lost = [WorkerLostError("gone", {})]

    def action():
        if lost:
            raise lost.pop()
        return "made"

    spans = between.spans["recovering"]
    known = len(spans)
    assert recovery.surviving(action) == "made" and len(spans) == known + 1
    assert spans[-1][0] < spans[-1][1]
    assert recovery.surviving(action) == "made" and len(spans) == known + 1
