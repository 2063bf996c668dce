"""Which other workers a worker reaches; the client may reach more than its workers do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from distributed import Status
from distributed.comm import CommClosedError

__all__ = ["awaited", "have_ended", "let_go", "refusal", "unreachable"]

_FETCHING = ("fetch", "flight")  # states of data that another worker has
_LOOK = 0.02  # seconds between looks whether something is over
_KNOCK = 0.25  # seconds between looks whether anybody listens
_ANSWER = 1.0  # seconds in which a host answers that nobody listens


async def unreachable(peers: Collection[str], limit: float, dask_worker: Any) -> dict[str, str]:
    """Finds the workers that do not answer this one.

    Args:
        peers: addresses; its own does not count.
        limit: seconds.
        dask_worker: of this process.

    Returns:
        What is wrong, by address.

    Raises:
        CommClosedError: this worker is closed meanwhile.
    """
    others = [peer for peer in peers if peer != dask_worker.address]
    found = await asyncio.gather(*(_why_not(dask_worker, peer, limit) for peer in others))
    return {peer: why for peer, why in zip(others, found, strict=True) if why}


async def _why_not(dask_worker: Any, peer: str, limit: float) -> str:
    asked = asyncio.ensure_future(dask_worker.rpc(peer).identity())
    try:
        async with asyncio.timeout(limit):
            while not (await asyncio.wait([asked], timeout=_KNOCK))[0]:
                if why := await refusal(peer):
                    return why
            await asked
    except TimeoutError:
        return f"no answer for {limit:g} s"
    except OSError as error:
        return str(error) or type(error).__name__
    except RuntimeError as error:  # of dask's connections
        if dask_worker.rpc.status == Status.running:
            raise
        raise CommClosedError(f"worker {dask_worker.address} is closed") from error
    finally:
        asked.cancel()
    return ""


async def refusal(address: str) -> str:
    """Why nothing listens at an address, as its process has ended; empty if something may.

    Dask tries again for long: the process may be about to begin.

    Args:
        address: of a worker or a scheduler.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("tcp", "tls") or parts.port is None:
        return ""
    try:
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except ConnectionRefusedError as error:
        return error.strerror or "refused"
    except OSError:
        return ""  # the network may come back
    writer.close()
    return ""


async def have_ended(addresses: Collection[str]) -> bool:
    """Whether nothing listens at any of some addresses; a worker does until it has been closed.

    Args:
        addresses: of workers.
    """
    try:
        async with asyncio.timeout(_ANSWER):
            return all(await asyncio.gather(*map(refusal, addresses)))
    except TimeoutError:
        return False


def awaited(dask_worker: Any) -> dict[Any, tuple[str, ...]]:
    """All data that a worker has to fetch, by key, and the workers that hold it.

    Args:
        dask_worker: of this process.
    """
    tasks = dask_worker.state.tasks.values()
    return {t.key: tuple(t.who_has) for t in tasks if t.state in _FETCHING and t.who_has}


async def let_go(
    keys: Collection[Any], apart: Collection[frozenset[str]], limit: float, dask_worker: Any
) -> None:
    """Wait until tasks that are not needed any more, and their waits for data, have ended.

    Dask tries for half a minute to reach the holder of data, even if the task that needs it is
    gone. Meanwhile it throws away such data that a client brings (``WorkerState`` has nothing to do
    from "cancelled" to "memory"). Without its connections to that worker it gives up at once.

    Args:
        keys: of the tasks; others may want some of them nevertheless.
        apart: pairs of workers that do not reach each other.
        limit: seconds that this takes at most.
        dask_worker: of this process.
    """
    here, tasks = dask_worker.address, dask_worker.state.tasks
    peers = {peer for pair in apart if here in pair for peer in pair} - {here}

    def is_over() -> bool:
        there = any(key in tasks and tasks[key].state != "memory" for key in keys)
        return not there and not any(task.coming_from in peers for task in tasks.values())

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit):
            while not is_over():
                for peer in peers:
                    dask_worker.rpc.remove(peer)
                await asyncio.sleep(_LOOK)
