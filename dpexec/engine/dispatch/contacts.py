"""The connection to the cluster on which a program runs."""

from __future__ import annotations

from typing import Any

from dpexec.engine.dask.waiting import Contact
from dpexec.engine.strategy.placement import scheduler_in_force
from dpexec.engine.strategy.strategies import ExecutionStrategy

__all__ = ["contact_for"]


def contact_for(
    strategy: ExecutionStrategy, client: Any, before: Contact | None
) -> tuple[Any, Contact]:
    """The client and the connection for a program that has no replicas on workers.

    A program that was closed goes on with the client of that time, if its own is closed.

    Args:
        strategy: the program's strategy.
        client: the program's own client.
        before: the connection through that client; None: there is none yet.
    """
    if client.status == "closed":
        found = scheduler_in_force(strategy.scheduler)
        if not isinstance(found, str) and found is not client:
            client, before = found, None
    return client, before or Contact(client, float(strategy.collective_timeout))
