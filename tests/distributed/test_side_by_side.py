"""Replicas of one worker run at the same time, and beside tasks of the user."""

import threading

import pytest
from distributed import Client, Event

from dpexec.engine.cluster.client import replica_group
from dpexec.engine.cluster.worker.departure import LOOK_OF_OURS
from dpexec.engine.cluster.worker.side_by_side import helpers, side_by_side
from tests.distributed.nets import NETS
from tests.engine.run.nets import AllReduce, Reduce, assert_same_bits, train
from tests.waiting import until


@pytest.fixture(scope="module")
def client():
    options = {"processes": False, "dashboard_address": ":0", "set_as_default": False}
    with Client(n_workers=1, threads_per_worker=2, **options) as client:
        yield client


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
def test_replicas_have_threads_and_the_bits_of_threads(client, expected, mode):
    options = {"scheduler": client, "collectives": "gang", "trace": True}
    run = train(*NETS["mlp"](), 2, mode, **options)
    assert_same_bits(run, expected("mlp", 2))
    first = [e for e in run.compiled.trace if e.step == 0 and "forward" in e.name]
    assert len({event.device for event in first}) == len({event.thread for event in first}) == 2


def test_all_have_ended_when_one_has_failed():
    began, ended = threading.Event(), threading.Event()

    def run(numbers):
        if numbers == [1]:
            assert began.wait(10)
            raise ValueError("one")
        began.set()
        ended.set()

    pool = helpers(lists=2, threads=2)
    with pool, pytest.raises(ValueError, match="one"):
        side_by_side(run, [[1], [2]], pool)
    assert ended.is_set()


@pytest.mark.parametrize(("lists", "threads"), [(1, 4), (3, 1)])
def test_without_threads_or_lists_nobody_helps(lists, threads):
    assert helpers(lists, threads) is None


def wait_for(name):
    assert Event(name).wait(60)


def executing(dask_worker):
    return len(dask_worker.state.executing)


def forget_slots(dask_worker):
    """As a worker that has not trained yet."""
    look = dask_worker.periodic_callbacks.pop(LOOK_OF_OURS, None)
    dask_worker.extensions.pop(LOOK_OF_OURS, None)
    if look is not None:
        look.stop()


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
def test_long_tasks_of_the_user_are_not_waited_for(pair, expected, monkeypatch, collectives):
    """And no more of them run meanwhile than a worker has threads."""
    monkeypatch.setattr(replica_group, "_IMPORT", 0.1)
    pair.run(forget_slots)
    end = Event(f"end-{collectives}", client=pair)
    workers = [*pair.nthreads()] * 2
    waiting = [pair.submit(wait_for, end.name, workers=[w], pure=False) for w in workers]
    try:
        until(lambda: {*pair.run(executing).values()} == {1})
        run = train(*NETS["mlp"](), 2, scheduler=pair, collectives=collectives)
        until(lambda: {*pair.run(executing).values()} == {1})
        assert not any(future.done() for future in waiting)
    finally:
        end.set()
    pair.gather(waiting)
    assert_same_bits(run, expected("mlp", 2))
