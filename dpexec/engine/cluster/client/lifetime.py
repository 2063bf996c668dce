"""How long workers keep the state of a run: until nobody can ask for it any more.

A run ends when nobody can reach its workers any more, or when it is closed; then the client tells
the workers. A client that was killed tells nobody: its scheduler does, by a plugin, when the client
does not come back in the time in which dask's clients try to.
"""

from __future__ import annotations

import contextlib
import uuid
import warnings
import weakref
from collections.abc import Collection, Sequence
from typing import Any

import dask
from dask.utils import parse_timedelta
from distributed import SchedulerPlugin
from distributed.protocol.pickle import dumps

from dpexec.engine.cluster.client.demand import Demand, count_demands, workers_for
from dpexec.engine.cluster.worker import worker as cluster_worker
from dpexec.engine.cluster.worker.gang import leave
from dpexec.engine.core.places import Place
from dpexec.engine.dask.plugins import install

__all__ = ["ClientWatch", "begin_run", "end_run", "forget", "tell_homes", "topic_of"]


def begin_run(owner: object, client: Any, limit: float, places: Sequence[Place]) -> str:
    """Name a run, and let workers forget it when its owner is gone.

    Args:
        owner: lives as long as somebody may ask for the run's state.
        client: a connected ``distributed.Client``.
        limit: seconds in which the scheduler has to answer.
        places: of the replicas.

    Returns:
        The token of the run.
    """
    token = uuid.uuid4().hex
    watch = ClientWatch(client.id, token, workers_for(places))
    why = install(client, watch, watch.name, limit)
    if why:
        text = "workers will not notice if this process is killed, and keep its replicas"
        warnings.warn(f"{text}: the scheduler refused a plugin ({why})", stacklevel=2)
    weakref.finalize(owner, end_run, weakref.ref(client), token).atexit = False
    return token


def end_run(found: weakref.ref[Any], token: str) -> None:
    """Let workers forget a run, soon: the garbage collector calls it, so it waits for nothing.

    Args:
        found: a client, if it is still there.
        token: of the run.
    """
    client = found()
    if client is not None and client.status == "running":
        client.loop.add_callback(_tell_workers, client, token)


async def _tell_workers(client: Any, token: str) -> None:
    with contextlib.suppress(ValueError):  # nobody listened
        client.unsubscribe_topic(topic_of(token))
    with contextlib.suppress(Exception):  # who cannot be told now is told when the client leaves
        await client.run(forget, token, on_error="ignore", asynchronous=True)
        await client.unregister_scheduler_plugin(topic_of(token))


class ClientWatch(SchedulerPlugin):
    """Lets workers forget a run when its client has left the scheduler.

    Args:
        client: its identity.
        token: of the run.
        workers: how many it has use for.
    """

    def __init__(self, client: str, token: str, workers: int) -> None:
        self.client, self.token = client, token
        self.demand = Demand(client, token, workers)
        self.name = topic_of(token)

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Called by the scheduler when it has lost a client.

        Args:
            scheduler: who calls.
            client: its identity.
        """
        if client == self.client:
            patience = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
            scheduler.loop.call_later(patience, self._check, scheduler)

    def remove_worker(self, scheduler: Any, worker: str, **rest: Any) -> None:
        """Called by the scheduler when a worker has left; the client of the run is told.

        Args:
            scheduler: who calls.
            worker: its address.
            rest: why.
        """
        scheduler.log_event(self.name, worker)

    async def start(self, scheduler: Any) -> None:
        """Called by the scheduler when it takes this in.

        Args:
            scheduler: who calls.
        """
        count_demands(scheduler, lambda: [w.demand for w in _watches(scheduler)])

    def update_graph(self, scheduler: Any, *, client: str, keys: Any, **rest: Any) -> None:
        """Called by the scheduler when it gets tasks.

        Args:
            scheduler: who calls.
            client: who wants them.
            keys: of those that are wanted.
            rest: not used.
        """
        if client == self.client:
            self.demand.note(keys)

    def log_event(self, topic: str, msg: Any) -> None:
        """Called by the scheduler when somebody tells something.

        Args:
            topic: what it is about.
            msg: the workers of all replicas, if it is about these.
        """
        if topic == _homes_topic(self.token):
            self.demand.homes = frozenset(msg)

    def valid_workers_downscaling(self, scheduler: Any, workers: list[Any]) -> list[Any]:
        """Called by the scheduler when fewer workers are wanted; says which may be closed.

        Args:
            scheduler: who asks.
            workers: that may be closed for all that others know.
        """
        return self.demand.closable(scheduler, workers)

    def _check(self, scheduler: Any) -> None:
        if self.client not in scheduler.clients and self.name in scheduler.plugins:
            scheduler.remove_plugin(name=self.name)
            scheduler.loop.add_callback(self._tell_workers, scheduler)

    async def _tell_workers(self, scheduler: Any) -> None:
        message = {"op": "run", "function": dumps(forget), "args": dumps((self.token,))}
        message |= {"kwargs": dumps({}), "wait": True}
        await scheduler.broadcast(msg=message, on_error="ignore")


def _watches(scheduler: Any) -> list[ClientWatch]:
    """Those of all runs."""
    return [it for it in scheduler.plugins.values() if isinstance(it, ClientWatch)]


def topic_of(token: str) -> str:
    """The topic of events that tell the client of a run which workers have left."""
    return f"dpexec-{token}"


def tell_homes(client: Any, token: str, homes: Collection[str]) -> None:
    """Let the scheduler know which workers have the state of a run; waits for nothing.

    Args:
        client: a connected ``distributed.Client``.
        token: of the run.
        homes: their addresses.
    """
    client.loop.add_callback(_tell_scheduler, client, _homes_topic(token), list(homes))


async def _tell_scheduler(client: Any, topic: str, homes: list[str]) -> None:
    with contextlib.suppress(OSError):  # whoever needs the scheduler next says that it is gone
        await client.scheduler.log_event(topic=topic, msg=homes)


def _homes_topic(token: str) -> str:
    return f"dpexec-homes-{token}"


def forget(token: str, dask_worker: Any) -> None:
    """Free what a worker holds of a run; called on workers.

    Args:
        token: of the run.
        dask_worker: of this process.
    """
    leave(token, dask_worker)
    cluster_worker.release(token, dask_worker)
