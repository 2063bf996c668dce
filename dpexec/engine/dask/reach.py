"""Which other workers a worker reaches: the client may reach all while they do not each other."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

__all__ = ["awaited", "unreachable"]

_FETCHING = ("fetch", "flight")  # states of data that another worker has


async def unreachable(peers: Collection[str], limit: float, dask_worker: Any) -> dict[str, str]:
    """Which other workers do not answer this one.

    Args:
        peers: addresses; its own does not count.
        limit: seconds.
        dask_worker: of this process.

    Returns:
        What is wrong, by address.
    """
    others = [peer for peer in peers if peer != dask_worker.address]
    found = await asyncio.gather(*(_why_not(dask_worker, peer, limit) for peer in others))
    return {peer: why for peer, why in zip(others, found, strict=True) if why}


async def _why_not(dask_worker: Any, peer: str, limit: float) -> str:
    try:
        async with asyncio.timeout(limit):
            await dask_worker.rpc(peer).identity()
    except TimeoutError:
        return f"no answer for {limit:g} s"
    except OSError as error:
        return str(error) or type(error).__name__
    return ""


def awaited(dask_worker: Any) -> set[tuple[str, ...]]:
    """Whom tasks of a worker wait for: for all that it has to fetch, the workers that hold it.

    Args:
        dask_worker: of this process.
    """
    tasks = dask_worker.state.tasks.values()
    return {tuple(task.who_has) for task in tasks if task.state in _FETCHING and task.who_has}
