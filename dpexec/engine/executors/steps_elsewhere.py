"""Delayed steps in other processes: there, a step asks the process that has its variables.

Workers of a cluster ask by events of dask's scheduler, and get the results as data of the cluster.
Other processes of this machine, such as those of dask's scheduler ``"processes"``, which bags use,
ask over a socket.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import sys
import threading
import uuid
import weakref
from collections.abc import Callable, Collection
from multiprocessing import connection
from multiprocessing.connection import Connection, Listener
from multiprocessing.context import AuthenticationError
from typing import TYPE_CHECKING, Any, NamedTuple

from dpexec.engine.core.cache import LimitedCache, limit_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Elsewhere", "keep", "offer"]

Step = Callable[[Any], list[Any]]

_WAIT = 1  # seconds between looks at whether the process that makes a step is still there

_steps: weakref.WeakValueDictionary[str, Step] = weakref.WeakValueDictionary()
"""Steps of this process, by token: others ask for them."""

_sent: LimitedCache[str, Step] = LimitedCache(limit_of("delayed steps"))
"""The latest steps that were sent elsewhere: if a result is lost, it is asked for again."""

_served: weakref.WeakSet[Client] = weakref.WeakSet()
"""Clients of clusters whose workers can ask for steps."""

_requests: LimitedCache[str, None] = LimitedCache(limit_of("delayed steps"))
"""The latest requests that came: workers repeat them."""

_TOPIC = f"dpexec-steps-{uuid.uuid4().hex}"
"""The topic of the events by which workers ask for steps of this process."""


class _Door(NamedTuple):
    """The socket at which processes of this machine ask.

    Args:
        address: address of the socket.
        key: a secret of both sides.
    """

    address: Any
    key: bytes


def keep(token: str, step: Step) -> None:
    """Let other processes find a step as long as this one has it."""
    _steps[token] = step


def offer(token: str, step: Step) -> tuple[Any, ...]:
    """How to make the :class:`Elsewhere` of a step in another process."""
    _sent[token] = step
    return Elsewhere, (token, _TOPIC, _ask_here(), _door())


class Elsewhere:
    """A step of another process.

    Args:
        token: token of the step.
        topic: topic of the events by which its process is asked.
        clients: names of the clients of that process, one of which may be of this cluster.
        door: the socket at which processes of its machine ask.
    """

    def __init__(self, token: str, topic: str, clients: Collection[str], door: _Door) -> None:
        self._token, self._topic, self._door = token, topic, door
        self._clients = frozenset(clients)

    def __call__(self, feed: Any, before: Any = None) -> list[Any]:
        """Ask for the step, and wait for its result.

        Raises:
            RuntimeError: the process that was asked is gone.
        """
        error, results = self._by_events(feed) if _on_a_worker() else self._by_connection(feed)
        if error is not None:
            raise error
        return list(results)

    def _by_connection(self, feed: Any) -> Any:
        door = self._door
        try:
            with connection.Client(door.address, authkey=door.key) as owner:
                owner.send((self._token, feed))
                return owner.recv()
        except (OSError, EOFError) as error:
            raise _gone() from error

    def _by_events(self, feed: Any) -> Any:
        from distributed import Event, Variable, worker_client  # there is one on workers

        request = uuid.uuid4().hex
        with worker_client() as client:
            fed, answer = (Variable(name, client=client) for name in _names(request))
            fed.set(client.scatter([feed], hash=False)[0])
            answered = Event(request, client=client)
            while True:
                client.log_event(self._topic, (self._token, request))  # nobody may listen yet
                if answered.wait(_WAIT):
                    break
                if self._clients.isdisjoint(client.run_on_scheduler(_clients)):
                    raise _gone()
            found = answer.get().result()
            answered.clear()
            fed.delete()
            answer.delete()
        return found


def _gone() -> RuntimeError:
    return RuntimeError("the process that has the variables of a delayed step is gone")


def _on_a_worker() -> bool:
    distributed = sys.modules.get("distributed")  # a worker has imported it
    if distributed is None:
        return False
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True


def _outcome(token: str, fed: Callable[[], Any]) -> tuple[BaseException | None, list[Any]]:
    """The outcome of a step that another process asked for: its result, or an error."""
    from dpexec.engine.cluster.worker.telling import copy_to_send  # imports distributed

    step = _steps.get(token)
    try:
        if step is None:
            raise RuntimeError("nobody keeps the delayed step any more")
        return None, step(fed())
    except Exception as error:
        return copy_to_send(error), []


# ---- workers of clusters


def _names(request: str) -> tuple[str, str]:
    """Names of the cluster's variables with the feed of a step, and with its result."""
    return f"dpexec-feed-{request}", f"dpexec-step-{request}"


def _clients(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.clients)


def _ask_here() -> list[str]:
    """Let the workers of all clients ask for steps here; names of the clients.

    Pickling a graph does not tell for which client it is.
    """
    distributed = sys.modules.get("distributed")  # nobody has a client who has not imported it
    if distributed is None:
        return []
    known = distributed.Client._instances  # of all; the public way knows the current one alone
    found = [it for it in known if it.status == "running"]
    for client in set(found) - set(_served):
        _served.add(client)
        client.subscribe_topic(_TOPIC, functools.partial(_asked, weakref.ref(client)))
    return [client.id for client in found]


def _asked(client: weakref.ref[Client], event: tuple[float, tuple[str, str]]) -> None:
    """Run a step in a thread of its own, as the handler of events must not wait."""
    known, (token, request) = client(), event[1]
    if known is not None and request not in _requests:
        _requests[request] = None
        threading.Thread(target=_tell_worker, args=(known, token, request), daemon=True).start()


def _tell_worker(client: Client, token: str, request: str) -> None:
    """Run a step, and send the result to the worker that asked."""
    from distributed import Event, Variable

    feed, answer = _names(request)
    found = _outcome(token, lambda: Variable(feed, client=client).get().result())
    Variable(answer, client=client).set(client.scatter([found], hash=False)[0])
    Event(request, client=client).set()


# ---- processes of this machine


@functools.cache
def _door() -> _Door:
    """The socket at which they ask; it stays open until this process ends."""
    address = f"\0dpexec-{uuid.uuid4().hex}" if sys.platform == "linux" else None
    listener, key = Listener(address), secrets.token_bytes(32)
    threading.Thread(target=_admit, args=(listener, key), daemon=True).start()
    return _Door(listener.address, key)


def _admit(listener: Listener, key: bytes) -> None:
    while True:
        with contextlib.suppress(ConnectionError):
            caller = listener.accept()
            threading.Thread(target=_tell_caller, args=(caller, key), daemon=True).start()


def _tell_caller(caller: Connection, key: bytes) -> None:
    """Run a step, and answer the process that asked, if it knows the key and still runs."""
    with contextlib.suppress(OSError, EOFError, AuthenticationError), caller:
        connection.deliver_challenge(caller, key)
        connection.answer_challenge(caller, key)
        token, feed = caller.recv()
        caller.send(_outcome(token, lambda: feed))
