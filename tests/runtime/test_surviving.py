"""A step is made again when workers were lost, but not for ever: it may be what kills them."""

from types import SimpleNamespace

import pytest

from dpexec.errors import WorkerLostError
from dpexec.runtime.schedulers.distributed import ClusterRunner


@pytest.fixture
def runner():
    """A runner without a cluster, that notes for whom it has sought new homes."""
    made = ClusterRunner.__new__(ClusterRunner)
    made.group, made._disturbed = SimpleNamespace(complete=3), False
    made.regrouped = []
    made._regroup = made.regrouped.append
    return made


def failing(runner, losses, completing=()):
    """What loses a worker so many times; before some of these it completes a step."""
    calls = iter(range(losses))

    def action():
        for call in calls:
            runner.group.complete += call in completing
            raise WorkerLostError(f"loss {call}", {f"worker {call}": "is gone"})
        return "made"

    return action


def test_lost_workers_are_replaced_before_it_is_tried_again(runner):
    assert runner._surviving(failing(runner, 3)) == "made"
    assert runner.regrouped == [{f"worker {call}": "is gone"} for call in range(3)]


def test_a_step_that_loses_workers_again_and_again_is_an_error(runner):
    with pytest.raises(WorkerLostError, match=r"lost 4 times at the same step.*loss 3") as caught:
        runner._surviving(failing(runner, 9))
    assert caught.value.lost == {"worker 3": "is gone"}


def test_steps_that_were_completed_in_between_are_not_the_same(runner):
    assert runner._surviving(failing(runner, 9, completing={3, 6})) == "made"
