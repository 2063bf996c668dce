"""Waits for coroutines on a client's event loop, in a way that Ctrl-C can break off.

``Client.sync`` waits for a condition. Python may raise an interrupt while that has given up its
lock; the program then gets "release unlocked lock" instead. And an interrupt that comes before the
loop has begun the coroutine does not end it, but leaves an error in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
from _thread import allocate_lock
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["call", "looked_at"]

_LOOK = 1.0  # seconds between looks whether the event loop still runs

_T = TypeVar("_T")


def call(client: Any, function: Callable[..., Coroutine[Any, Any, _T]], *args: Any) -> _T:
    """Run a coroutine on the event loop of a client, and wait for its result.

    Args:
        client: a ``distributed.Client``.
        function: the coroutine's function.
        args: its arguments.

    Raises:
        RuntimeError: the event loop has ended.
        KeyboardInterrupt: the wait was interrupted; the coroutine is cancelled.
        Exception: what the coroutine raised.
    """
    loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop
    task: asyncio.Task[_T] | None = None
    ended, over = allocate_lock(), False
    ended.acquire()

    def begin() -> None:
        nonlocal task
        if not over:
            task = loop.create_task(function(*args))
            task.add_done_callback(lambda _: ended.release())

    def end() -> None:
        nonlocal task
        begun, task = task, None  # an error's frames would keep what it waited for
        if begun is not None and not begun.done():
            begun.add_done_callback(looked_at)
            begun.cancel()

    try:
        loop.call_soon_threadsafe(begin)
        while not ended.acquire(timeout=_LOOK):
            if not loop.is_running():
                raise RuntimeError("the event loop of the client has ended")
        if task is None or task.cancelled():
            raise RuntimeError("the event loop of the client was about to end")
        return task.result()
    except BaseException:
        over = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(end)
        raise


def looked_at(task: asyncio.Task[Any]) -> None:
    """Look at a task's error, else asyncio says that nobody has."""
    if not task.cancelled():
        task.exception()
