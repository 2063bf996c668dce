"""The live view of training: a page on dask's dashboard, or on a small server of one's own.

On a cluster nothing has to be done: with ``ExecutionStrategy.scheduler = client`` the scheduler's
dashboard gets the page ``/dpexec``, JupyterLab's dask extension its panels, ``/metrics`` the
counters, and ``distributed.performance_report`` a summary of training. All dask tasks are named
after what they do and where, ``forward_dev0`` or ``all_reduce``, so that dask's own pages group
them; members of gangs tell of theirs. ``dask scheduler --preload dpexec.dashboard`` has the page
from the start.

On threads, serve the page from the training process::

    with dpexec.dashboard.serve(executor) as server:
        print(server.url)
        train()

In a notebook, ``dpexec.viz.live(executor)`` shows the same panels below the cell.

Both are drawn by a process of their own. It asks the one that trains for what is new, uses only the
processors that training leaves, and ends with it.

The page shows at most twice a second: the tasks of a step with what runs, what is done and what
takes longer than usual; what steps consist of; what each device did in the latest recorded step;
loss, samples and bytes per second; memory per process. Recording costs a few counters a step; only
while a page is open about one step a second is recorded operator by operator.

Pages need bokeh and metrics need prometheus_client: ``pip install 'dpexec[dashboard]'``.
"""

from __future__ import annotations

from typing import Any

from dpexec.dashboard.server import LiveServer, serve

__all__ = ["LiveServer", "attach", "dask_setup", "serve"]


def attach(client: Any, engine: Any, token: str) -> Any:
    """Show an engine that trains on a cluster on the scheduler's dashboard.

    Args:
        client: a connected ``distributed.Client``.
        engine: what trains.
        token: what the tags of its tasks begin with.

    Returns:
        What sends the reports; closing it ends them.
    """
    from dpexec.dashboard.cluster import Publisher

    return Publisher(client, engine, token)


async def dask_setup(scheduler: Any) -> None:
    """Called by ``dask scheduler --preload dpexec.dashboard``."""
    from dpexec.dashboard.plugin import NAME, DashboardPlugin

    await scheduler.register_scheduler_plugin(DashboardPlugin(), name=NAME, idempotent=True)
