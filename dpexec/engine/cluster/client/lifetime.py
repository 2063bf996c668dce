"""How long workers keep the state of a run: until nobody can ask for it any more.

A run ends when it is closed, or when no object refers to it any more; then the client tells the
workers. If the client was killed, a plugin of the scheduler tells them, when the client does not
reconnect within dask's timeout.
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
from dpexec.engine.core.memory import free_unreachable
from dpexec.engine.core.places import Place
from dpexec.engine.dask.plugins import install

__all__ = [
    "ClientWatch",
    "begin_run",
    "end_run",
    "forget",
    "tell_homes",
    "topic_of",
    "watch_client",
]

_LATE = 1.0  # seconds in which the last messages about a run have come
_ENDS = 2.0  # seconds in which the task of a gang's member sees that it is over


def begin_run(owner: object, client: Any, limit: float, places: Sequence[Place]) -> str:
    """Name a run, and let workers forget it when its owner is gone.

    Args:
        owner: an object that lives as long as somebody may ask for the run's state.
        client: a connected ``distributed.Client``.
        limit: seconds for the scheduler to answer.
        places: the places of the replicas.

    Returns:
        The token of the run.
    """
    token = uuid.uuid4().hex
    watch_client(client, token, limit, places)
    weakref.finalize(owner, end_run, weakref.ref(client), token).atexit = False
    return token


def watch_client(client: Any, token: str, limit: float, places: Sequence[Place]) -> None:
    """Let the scheduler tell workers to forget a run when the client is gone.

    Args:
        client: a connected ``distributed.Client``.
        token: of the run.
        limit: seconds for the scheduler to answer.
        places: the places of the replicas.
    """
    watch = ClientWatch(client.id, token, workers_for(places))
    why = install(client, watch, watch.name, limit)
    if why:
        text = "workers will not notice if this process is killed, and keep its replicas"
        warnings.warn(f"{text}: the scheduler refused a plugin ({why})", stacklevel=3)


def end_run(found: weakref.ref[Any], token: str) -> None:
    """Let workers forget a run soon. The garbage collector may call it, so it does not wait.

    Args:
        found: refers to the client, if that still exists.
        token: of the run.
    """
    client = found()
    if client is not None and client.status == "running":
        client.loop.add_callback(_tell_workers, client, token)


async def _tell_workers(client: Any, token: str) -> None:
    with contextlib.suppress(ValueError):  # the topic was not subscribed to
        client.unsubscribe_topic(topic_of(token))
    with contextlib.suppress(Exception):  # else the plugin tells workers when the client leaves
        await client.run(forget, token, on_error="ignore", asynchronous=True)
        await client._run_on_scheduler(_end, token)


class ClientWatch(SchedulerPlugin):
    """Lets workers forget a run when its client has left the scheduler.

    Args:
        client: the id of the client.
        token: of the run.
        workers: how many workers the run can use.
    """

    idempotent = True  # a scheduler that has it keeps it when the run's replicas begin anew

    def __init__(self, client: str, token: str, workers: int) -> None:
        self.client, self.token = client, token
        self.demand = Demand(client, token, workers)
        self.name = topic_of(token)

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Called by the scheduler when it has lost a client.

        Args:
            scheduler: the scheduler.
            client: the id of the client.
        """
        if client == self.client:
            patience = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
            scheduler.loop.call_later(patience, self._check, scheduler)

    def remove_worker(self, scheduler: Any, worker: str, **rest: Any) -> None:
        """Called by the scheduler when a worker has left; tells the client of the run.

        Args:
            scheduler: the scheduler.
            worker: address of the worker.
            rest: the reason; not used.
        """
        scheduler.log_event(self.name, worker)

    async def start(self, scheduler: Any) -> None:
        """Called by the scheduler when the plugin is installed.

        Args:
            scheduler: the scheduler.
        """
        count_demands(scheduler, lambda: [w.demand for w in _watches(scheduler)])

    def update_graph(self, scheduler: Any, *, client: str, keys: Any, **rest: Any) -> None:
        """Called by the scheduler when it gets tasks.

        Args:
            scheduler: the scheduler.
            client: the id of the client that wants them.
            keys: keys of the wanted tasks.
            rest: not used.
        """
        if client == self.client:
            self.demand.note(keys)

    def log_event(self, topic: str, msg: Any) -> None:
        """Called by the scheduler for every event; takes those of :func:`tell_homes`.

        Args:
            topic: the topic of the event.
            msg: the message; in the topic of the run's homes, the addresses of these workers.
        """
        if topic == _homes_topic(self.token):
            self.demand.homes = frozenset(msg)

    def valid_workers_downscaling(self, scheduler: Any, workers: list[Any]) -> list[Any]:
        """Called by the scheduler when fewer workers are wanted; returns those to be closed.

        Args:
            scheduler: the scheduler.
            workers: the workers that may be closed as far as others know.
        """
        return self.demand.closable(scheduler, workers)

    def _check(self, scheduler: Any) -> None:
        if self.client not in scheduler.clients and self.name in scheduler.plugins:
            _end(self.token, scheduler)
            scheduler.loop.add_callback(self._tell_workers, scheduler)

    async def _tell_workers(self, scheduler: Any) -> None:
        message = {"op": "run", "function": dumps(forget), "args": dumps((self.token,))}
        message |= {"kwargs": dumps({}), "wait": True}
        await scheduler.broadcast(msg=message, on_error="ignore")


def _end(token: str, dask_scheduler: Any) -> None:
    """Remove what the scheduler has of a run: the plugin, and topics with their latest events.

    Topics once more a moment later: the client unsubscribes over another connection, and dask then
    makes a topic that it does not know.
    """
    if topic_of(token) in dask_scheduler.plugins:
        dask_scheduler.remove_plugin(name=topic_of(token))
    _free_topics(token, dask_scheduler)
    dask_scheduler.loop.call_later(_LATE, _free_topics, token, dask_scheduler)


def _free_topics(token: str, scheduler: Any) -> None:
    topics = scheduler._broker._topics  # there is no public way to free them
    for topic in topic_of(token), _homes_topic(token):
        topics.pop(topic, None)


def _watches(scheduler: Any) -> list[ClientWatch]:
    """The plugins of all runs."""
    return [it for it in scheduler.plugins.values() if isinstance(it, ClientWatch)]


def topic_of(token: str) -> str:
    """The topic of events that tell the client of a run which workers have left."""
    return f"dpexec-{token}"


def tell_homes(client: Any, token: str, homes: Collection[str]) -> None:
    """Tell the scheduler which workers have the state of a run; does not wait.

    Args:
        client: a connected ``distributed.Client``.
        token: of the run.
        homes: addresses of the workers.
    """
    client.loop.add_callback(_tell_scheduler, client, _homes_topic(token), list(homes))


async def _tell_scheduler(client: Any, topic: str, homes: list[str]) -> None:
    with contextlib.suppress(OSError):  # the next call of the scheduler raises that it is gone
        await client.scheduler.log_event(topic=topic, msg=homes)


def _homes_topic(token: str) -> str:
    return f"dpexec-homes-{token}"


def forget(token: str, dask_worker: Any) -> None:
    """Free a worker's state of a run; runs on workers.

    Args:
        token: of the run.
        dask_worker: the dask worker of this process.
    """
    leave(token, dask_worker)
    cluster_worker.end(token, dask_worker)
    dask_worker.loop.call_later(_ENDS, free_unreachable)  # plans know themselves
