"""Who is waited for is looked after: errors say who is gone, and slow is not silent."""

import asyncio
import os
import pickle
import time

import pytest

from dpexec.errors import SchedulerLostError, WorkerLostError
from dpexec.runtime.schedulers.waiting import Contact
from tests.distributed.clusters import workers


@pytest.fixture(scope="module")
def pair():
    with workers(2) as found:
        yield found


def homes_of(found):
    return {address: (number,) for number, address in enumerate(found.addresses())}


def slow(seconds=2.5):
    time.sleep(seconds)
    return seconds


def test_answers_by_address(pair):
    contact, homes = Contact(pair.client, 5.0), homes_of(pair)
    assert contact.ask(os.getpid, homes=homes, what="to say who they are") == pair.pids
    assert contact.workers() == sorted(homes)
    with pytest.raises(TypeError, match="getpid"):
        contact.ask(os.getpid, 1, homes=homes, what="")


def test_slow_tasks_are_not_silent(pair):
    contact, homes = Contact(pair.client, 1.0), homes_of(pair)
    futures = [pair.client.submit(slow, workers=[address], pure=False) for address in homes]
    assert contact.gather(futures, homes, "for a nap") == [2.5, 2.5]


def test_silent_worker_is_named_and_others_answer(pair):
    contact, homes = Contact(pair.client, 1.0), homes_of(pair)
    first, second = homes
    pair.stop(second)
    text = rf"worker {second} \(replica 1\) did not answer for 1 s, awaited to wake up"
    try:
        with pytest.raises(WorkerLostError, match=text) as caught:
            contact.ask(os.getpid, homes=homes, what="to wake up")
        assert list(caught.value.lost) == [second]
        assert pickle.loads(pickle.dumps(caught.value)).lost == caught.value.lost
        answers, lost = contact.reach(os.getpid, homes=homes, what="")
        assert (list(answers), list(lost)) == ([first], [second])
        future = pair.client.submit(slow, 0.0, workers=[second], pure=False)
        with pytest.raises(WorkerLostError, match=text):
            contact.gather([future], homes, "to wake up")
        assert future.cancelled()
    finally:
        pair.go_on(second)
    assert contact.ask(os.getpid, homes=homes, what="at last") == pair.pids


def test_lost_worker_is_named_soon():
    with workers(2) as found:
        contact, homes = Contact(found.client, 60.0), homes_of(found)
        lost = list(homes)[1]
        future = found.client.submit(slow, 30, workers=[lost], pure=False)
        began = time.monotonic()
        found.kill(lost)
        with pytest.raises(WorkerLostError, match=rf"{lost} \(replica 1\) has left the cluster"):
            contact.gather([future], homes, "for a nap")
        with pytest.raises(WorkerLostError, match=rf"{lost} \(replica 1\) has left the cluster"):
            contact.ask(os.getpid, homes=homes, what="to say who they are")
        assert time.monotonic() - began < 20.0


def test_scheduler_that_is_silent_is_named():
    with workers(1) as found:
        contact, address = Contact(found.client, 1.0), found.client.scheduler.address
        found.cluster.scheduler.handlers["ncores"] = _never
        with pytest.raises(SchedulerLostError, match=rf"{address} did not answer for 1 s"):
            contact.workers()


async def _never(workers=None):
    await asyncio.sleep(60)
