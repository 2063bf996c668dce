"""The live view of training: a page on dask's dashboard, or on a small local server.

On a cluster no setup is needed: with ``ExecutionStrategy.scheduler = client`` the scheduler's
dashboard gets the page ``/dpexec``, JupyterLab's dask extension its panels, ``/metrics`` the
counters, and ``distributed.performance_report`` a summary of training. Dask tasks are named after
their kind and device, such as ``forward_dev0`` or ``all_reduce``, so that dask's own pages group
them; members of gangs report their tasks. With ``dask scheduler --preload dpexec.dashboard`` the
page exists from the start.

On threads, serve the page from the training process::

    with dpexec.dashboard.serve(executor) as server:
        print(server.url)
        train()

In a notebook, ``dpexec.viz.live(executor)`` shows the same panels below the cell.

A separate process draws both. It asks the training process for news, uses only processors that
training leaves idle, and ends with the training process.

The page is updated at most twice a second. It shows the tasks of a step (running, done, or slower
than usual), the groups of tasks in steps, each device's operators in the latest recorded step,
loss, samples and bytes per second, and memory per process. Recording costs a few counters per step;
only while a page is open, about one step per second is recorded operator by operator.

Pages need bokeh and metrics need prometheus_client: ``pip install 'dpexec[dashboard]'``.
"""

from __future__ import annotations

from typing import Any

from dpexec.dashboard.server import LiveServer, serve

__all__ = ["LiveServer", "attach", "dask_setup", "serve"]


def attach(client: Any, engine: Any, token: str) -> Any:
    """Show an engine's training on a cluster on the scheduler's dashboard.

    Args:
        client: a connected ``distributed.Client``.
        engine: the engine that trains.
        token: prefix of its tasks' tags.

    Returns:
        The publisher of reports; close it to end them.

    Example:
        >>> from dpexec import dashboard
        >>> publisher = dashboard.attach(client, engine, "mine")  # doctest: +SKIP
        >>> publisher.close()  # doctest: +SKIP
    """
    from dpexec.dashboard.cluster import Publisher

    return Publisher(client, engine, token)


async def dask_setup(scheduler: Any) -> None:
    """Put the page ``/dpexec`` on a scheduler's dashboard.

    ``dask scheduler --preload dpexec.dashboard`` calls it. Without that option, the page appears
    when the first program trains on the cluster.

    Args:
        scheduler: the ``distributed.Scheduler`` of this process.

    Example:
        >>> from dpexec import dashboard
        >>> await dashboard.dask_setup(scheduler)  # doctest: +SKIP
    """
    from dpexec.dashboard.plugin import NAME, DashboardPlugin

    await scheduler.register_scheduler_plugin(DashboardPlugin(), name=NAME, idempotent=True)
