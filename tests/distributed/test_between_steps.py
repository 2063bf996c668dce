"""What workers and Dask do between the steps of a gang."""

import gc
import sys
from types import SimpleNamespace

import pytest

from dpexec.engine.cluster.worker import wakeups
from dpexec.engine.cluster.worker.departure import LOOK_OF_OURS
from tests.engine.run.nets import AllReduce, batches, classifier, train
from tests.waiting import until


@pytest.fixture(autouse=True)
def _patient(request):
    """Members stay on their workers until their gang ends."""

    def stay(seconds):
        from dpexec.engine.cluster.worker import resident

        resident._IDLE = seconds

    found = "pair" in request.fixturenames and request.getfixturevalue("pair")
    if found:
        found.run(stay, 60.0)
    yield
    if found:
        found.run(stay, 1.0)


def test_event_loops_wake_up_less_often_while_members_reside(monkeypatch):
    class Worker:  # can be referred to weakly, unlike a SimpleNamespace
        pass

    def periods():
        return {name: each.callback_time for name, each in worker.periodic_callbacks.items()}

    worker, usual = Worker(), {"profile": 10, "tick": 500, "heartbeat": 1, LOOK_OF_OURS: 50}
    worker.periodic_callbacks = {n: SimpleNamespace(callback_time=t) for n, t in usual.items()}
    monkeypatch.setattr(wakeups, "get_worker", lambda: worker)
    slowed = usual | {"profile": 100, LOOK_OF_OURS: 250}  # who has set more keeps that
    with wakeups.fewer_wakeups():
        with wakeups.fewer_wakeups():  # of another program
            assert periods() == slowed
        assert periods() == slowed
    assert periods() == usual
    worker.periodic_callbacks = {}  # no profiler
    with wakeups.fewer_wakeups():
        pass


def test_workers_look_less_often_whether_they_are_closed_while_members_reside(pair):
    def periods(dask_worker):
        return dask_worker.periodic_callbacks[LOOK_OF_OURS].callback_time

    run = train(classifier(), batches(2), 2, AllReduce, scheduler=pair, collectives="gang")
    assert set(pair.run(periods).values()) == {250}
    assert all(turn < 0.001 for turn in pair.run(sys.getswitchinterval).values())
    for nanny in pair.cluster.workers.values():
        assert nanny.periodic_callbacks["tick"].callback_time >= 500
    del run
    gc.collect()
    until(lambda: set(pair.run(periods).values()) == {50}, 10)
    until(lambda: all(turn > 0.004 for turn in pair.run(sys.getswitchinterval).values()), 10)


def test_turns_are_short_until_the_last_member_leaves():
    usual = sys.getswitchinterval()
    one, other = wakeups.short_turns(), wakeups.short_turns()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(0.0005)
    other.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(usual)
