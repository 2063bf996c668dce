"""Connects a dask client to its scheduler again where dask itself has given up.

Dask's client connects again by itself when its connection breaks. It expects that the first message
is the scheduler's greeting alone (``Client._ensure_connected``). A scheduler that is busy may have
more to say at once, such as that a task has ended. That ends the attempt with an AssertionError
which is only logged. From then on the client neither sends what it is given nor hears of tasks, and
whoever waits for one waits for ever. The scheduler still answers its calls, on other connections.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

__all__ = ["hear_again"]

_PAUSE = 0.1  # seconds between attempts
_LEAST = 1.0  # seconds that an attempt may take at least

_logger = logging.getLogger(__name__)


def hear_again(client: Any) -> None:
    """Connect a client with its scheduler again, soon, if nothing else does so any more.

    As after any lost connection, the tasks that it had sent are given up.

    Args:
        client: a ``distributed.Client``, on whose event loop this is called.
    """
    listening = getattr(client, "_handle_report_task", None)
    is_wanted = client.status in ("running", "connecting")
    if is_wanted and listening is not None and listening.done():
        error = None if listening.cancelled() else listening.exception()
        why = "" if error is None else f" ({type(error).__name__}: {error})"
        _logger.warning("%s did not hear its scheduler any more%s: connecting again", client, why)
        client._handle_report_task = asyncio.ensure_future(_listen(client))


async def _listen(client: Any) -> None:
    """Connect, and then do what the task did that has ended; fails as dask does."""
    client.status = "connecting"
    if client.scheduler_comm is not None:
        client.scheduler_comm.abort()
    client.scheduler_comm = None
    for state in client.futures.values():
        state.cancel(reason="scheduler-connection-lost", msg="The client lost its scheduler.")
    client.futures.clear()
    until = time.monotonic() + client._timeout
    while client.status == "connecting":
        left = until - time.monotonic()
        if left < 0:
            _logger.error("%s does not find its scheduler again, and is closed", client)
            await client._close()
            return
        try:
            await client._ensure_connected(timeout=max(left, _LEAST))
        except (OSError, AssertionError) as error:
            _logger.info("%s is not connected yet (%s: %s)", client, type(error).__name__, error)
        except Exception:  # such as a scheduler of another version
            await client._close()
            raise
        if client.status == "connecting":
            await asyncio.sleep(_PAUSE)
    await client._handle_report()
