"""Waits for workers: slow ones are waited for, silent and lost ones are named in errors."""

import asyncio
import gc
import os
import pickle
import re
import time
import weakref

import pytest
from distributed import Client

from dpexec.engine.core.errors import SchedulerLostError, WorkerLostError
from dpexec.engine.dask.waiting import Contact
from tests.distributed.clusters import workers
from tests.waiting import until


@pytest.fixture(scope="module")
def pair():
    with workers(2) as found:
        yield found


def homes_of(found):
    return {address: (number,) for number, address in enumerate(found.addresses())}


def pids_of(found):
    return {address: found.pid(address) for address in found.addresses()}


def test_answers_by_address(pair):
    contact, homes = Contact(pair.client, 30.0), homes_of(pair)
    assert contact.ask(os.getpid, homes=homes, what="to say who they are") == pids_of(pair)
    assert contact.workers() == sorted(homes)
    with pytest.raises(TypeError, match="getpid"):
        contact.ask(os.getpid, 1, homes=homes, what="")


def test_slow_tasks_are_not_silent(pair):
    contact, homes = Contact(pair.client, 2.0), homes_of(pair)
    nap = 2.5
    futures = [pair.client.submit(time.sleep, nap, workers=[w], pure=False) for w in homes]
    assert contact.gather(futures, homes, "for a nap") == [None, None]


def test_client_keeps_no_error_of_a_task_whose_frames_hold_the_run(pair):
    future = pair.client.submit(int, "no number", pure=False)
    with pytest.raises(ValueError, match="no number"):
        Contact(pair.client, 30.0).gather([future], homes_of(pair), "to read a number")
    until(lambda: future.key not in pair.client.futures)


def test_silent_worker_is_named_and_others_answer(pair):
    contact, homes = Contact(pair.client, 2.0), homes_of(pair)
    first, second = homes
    pair.stop(second)
    try:
        answers, lost = contact.reach(os.getpid, homes=homes, what="")
        assert (list(answers), lost) == ([first], {second: "did not answer for 2 s"})
        future = pair.client.submit(time.sleep, 0.0, workers=[second], pure=False)
        text = rf"worker {second} \(replica 1\) did not answer for 2 s, awaited to wake up"
        with pytest.raises(WorkerLostError, match=text) as caught:
            contact.gather([future], homes, "to wake up")
        assert pickle.loads(pickle.dumps(caught.value)).lost == caught.value.lost == lost
        assert future.cancelled()
        began = time.monotonic()  # it is known: no program of this client waits for it again
        for limit in (2.0, 60.0):
            assert list(Contact(pair.client, limit).missing(homes, "")) == [second]
        assert contact.silent() == {second} and time.monotonic() - began < 2.0
    finally:
        pair.go_on(second)
    until(lambda: not contact.silent())
    assert Contact(pair.client, 30.0).ask(os.getpid, homes=homes, what="") == pids_of(pair)


def test_lost_worker_is_named_soon():
    with workers(2) as found:
        contact, homes = Contact(found.client, 60.0), homes_of(found)
        lost = list(homes)[1]
        future = found.client.submit(time.sleep, 30, workers=[lost], pure=False)
        began = time.monotonic()
        found.kill(lost)
        with pytest.raises(WorkerLostError, match=rf"{lost} \(replica 1\) has left the cluster"):
            contact.gather([future], homes, "for a nap")
        with pytest.raises(WorkerLostError, match=rf"{lost} \(replica 1\) has left the cluster"):
            contact.ask(os.getpid, homes=homes, what="to say who they are")
        assert time.monotonic() - began < 20.0


def test_wait_that_was_too_short_does_not_hold_the_task(pair):
    contact = Contact(pair.client, 30.0)
    gc.collect()
    gc.disable()
    try:
        futures = [pair.client.submit(time.sleep, 0.5, pure=False)]
        known = weakref.ref(futures[0])
        assert not contact.ended(futures, 0.05)
        until(lambda: contact.ended(futures, 5.0))
        futures.clear()
        until(lambda: known() is None)
    finally:
        gc.enable()


def test_scheduler_that_is_silent_is_named():
    with workers(1) as found:
        contact, address = Contact(found.client, 1.0), found.client.scheduler.address
        future = found.client.submit(os.getpid)
        asked = {"ncores": contact.workers, "who_has": lambda: contact.holders([future.key])}
        for name, ask in asked.items():
            found.cluster.scheduler.handlers[name] = _never
            with pytest.raises(SchedulerLostError, match=rf"{address} did not answer for 1 s"):
                ask()


def test_client_that_is_closed_is_named():
    with workers(1) as found, Client(found.client.scheduler.address, set_as_default=False) as own:
        contact, homes = Contact(own, 1.0), homes_of(found)
        address = re.escape(own.scheduler.address)
        own.close()
        for use in (
            contact.workers,
            lambda: contact.ask(os.getpid, homes=homes, what="to say who they are"),
            lambda: contact.client.submit(os.getpid),
        ):
            with pytest.raises(SchedulerLostError, match=f"Client of {address} is closed"):
                use()
        with pytest.raises(SchedulerLostError, match="is closed"):
            Contact(own, 1.0)


async def _never(**asked):
    await asyncio.sleep(60)
