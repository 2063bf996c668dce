"""Coroutines on a client's event loop: results, errors, and interrupts that end them."""

import asyncio
import gc
import logging
import os
import signal
import threading
import time
import weakref
from types import SimpleNamespace

import pytest

from dpexec.engine.dask.calling import call
from tests.waiting import until


@pytest.fixture
def client():
    """What a ``distributed.Client`` has of it: an event loop in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield SimpleNamespace(loop=SimpleNamespace(asyncio_loop=loop))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _sum(*numbers):
    await asyncio.sleep(0)
    return sum(numbers)


class _Value:
    pass


async def _fail(value):
    raise ValueError("not this one")


def test_results_and_errors_come_through(client):
    assert call(client, _sum, 1, 2, 3) == 6
    with pytest.raises(TypeError, match="unsupported operand"):
        call(client, _sum, "a")


def test_errors_keep_nothing_alive(client):
    value = _Value()
    known = weakref.ref(value)
    gc.disable()
    try:
        with pytest.raises(ValueError, match="not this one") as caught:
            call(client, _fail, value)
        del value, caught
        until(lambda: known() is None)
    finally:
        gc.enable()


def test_an_interrupt_ends_the_coroutine(client):
    ended = []

    async def wait():
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        call(client, wait)
    until(lambda: ended)


def test_an_interrupt_comes_before_the_loop_has_begun(client, caplog):
    began = []

    async def begin():
        began.append(True)

    client.loop.asyncio_loop.call_soon_threadsafe(time.sleep, 0.3)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt):
        call(client, begin)
    assert call(client, _sum, 1) == 1  # the loop has done what came before
    assert (began, caplog.records) == ([], [])


def test_a_loop_that_has_ended_is_named(client):
    async def never():
        asyncio.get_running_loop().stop()
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="event loop of the client"):
        call(client, never)
    restarted = threading.Thread(target=client.loop.asyncio_loop.run_forever)
    restarted.start()
    client.loop.asyncio_loop.call_soon_threadsafe(client.loop.asyncio_loop.stop)
    restarted.join()
