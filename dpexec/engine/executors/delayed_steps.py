"""Steps as nodes of the user's own dask graphs: what ``Executor.delayed`` returns.

A node makes its step when dask comes to it, once: whoever computes it again, or because a worker
was lost on the way, gets what it made. Steps of a program happen in the order in which they were
delayed, so the graph of each holds those before it that were not made yet.

Variables lie in scopes of this process. So a step that dask sends to a worker asks this process to
make it (on the workers, if that is how the program runs), and waits for what it gives.
"""

from __future__ import annotations

import functools
import sys
import threading
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from dask.delayed import Delayed, delayed

from dpexec.engine.core.cache import LimitedCache
from dpexec.engine.core.scope import Scope
from dpexec.engine.executors.compiled_program import CompiledProgram
from dpexec.engine.ir.program import Program
from dpexec.engine.run.fetch import wanted

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["DelayedStep", "Delaying"]

_WAIT = 1  # seconds between looks at whether the process that makes a step is still there

_steps: weakref.WeakValueDictionary[str, DelayedStep] = weakref.WeakValueDictionary()
"""Steps of this process, by token: workers ask for them."""

_sent: LimitedCache[str, DelayedStep] = LimitedCache(1000)
"""The latest that went to workers: whoever loses what one gave asks again."""

_served: weakref.WeakSet[Client] = weakref.WeakSet()
"""Clients of clusters whose workers can ask for steps."""

_TOPIC = f"dpexec-steps-{uuid.uuid4().hex}"
"""The topic of the events by which workers ask for steps of this process."""


class DelayedStep:
    """Makes a step with what it is fed, the first time that it is called.

    Args:
        make: makes it.
        scope: where the variables of its program live.

    Attributes:
        scope: as given.
        node: its node in the user's graphs, with all that comes before; None once it is made.
    """

    def __init__(self, make: Callable[[Any], list[Any]], scope: Scope) -> None:
        self.scope = scope
        self.node: Delayed | None = None
        self._make: Callable[[Any], list[Any]] | None = make
        self._results: list[Any] = []
        self._lock = threading.Lock()
        self.token = uuid.uuid4().hex
        _steps[self.token] = self

    def __call__(self, feed: Any, before: Any = None) -> list[Any]:
        """Make the step, unless it was made.

        Args:
            feed: see :meth:`Executor.run`.
            before: what the step before it gave, which is not used: it only comes first.

        Raises:
            EnforceNotMet: the step failed, so it is not made yet; no variable has changed.
        """
        with self._lock:
            if self._make is not None:
                self._results = self._make(feed)
                self._make = self.node = None
            return list(self._results)

    def __reduce__(self) -> tuple[Any, ...]:
        asked = _ask_here()
        if not asked:
            raise PicklingError(
                "a delayed step is made by the process that has its variables: compute it with "
                "scheduler='threads' or 'sync', or on a Client of dask"
            )
        _sent[self.token] = self
        return _Elsewhere, (self.token, _TOPIC, asked)


class Delaying(ABC):
    """What an executor has to delay runs."""

    run: Callable[..., list[Any]]

    @abstractmethod
    def _checked(
        self, program: Program | CompiledProgram | None, scope: Scope | None
    ) -> tuple[Program | CompiledProgram, Scope]:
        """The program and the scope that are meant."""

    def delayed(
        self,
        program: Program | CompiledProgram | None = None,
        feed: Any = None,
        fetch_list: Any = None,
        scope: Scope | None = None,
        **options: Any,
    ) -> Delayed:
        """A run as a node of a dask graph, which makes it when it is computed.

        Values of ``feed`` may be dask collections and delayed values, and the fetches may be inputs
        of others. Any scheduler computes it: threads, ``"sync"``, or a Client, whose workers ask
        this process to make the run. The results have the same bits as those of :meth:`run`, and
        variables change once, however often it is computed. Runs of a program happen in the order
        in which they were delayed: who computes one also computes those before it. A run that fails
        can be computed again.

        Args:
            program: see :meth:`run`.
            feed: see :meth:`run`.
            fetch_list: see :meth:`run`.
            scope: see :meth:`run`; None takes what is the global scope now.
            options: other arguments of :meth:`run`.

        Returns:
            As many delayed values as there are fetches: ``loss, = exe.delayed(...)``.

        Raises:
            RuntimeError: the executor was closed.
            TypeError: not a program or scope, or a fetch of a wrong type.

        Example:
            >>> import numpy as np
            >>> import dpexec as fluid
            >>> x = fluid.data("x", [None, 2])
            >>> mean = fluid.layers.mean(x)
            >>> exe = fluid.Executor(fluid.CPUPlace())
            >>> (found,) = exe.delayed(feed={"x": np.ones((3, 2), "float32")}, fetch_list=[mean])
            >>> (found * 2).compute()
            array([2.], dtype=float32)
        """
        program, scope = self._checked(program, scope)
        original = program if isinstance(program, Program) else program._original
        fetches, _ = wanted(fetch_list)
        how = {"fetch_list": fetch_list, "scope": scope, **options}
        waiting = [step for step in original._delayed if step.node is not None]
        before = next((step.node for step in waiting if step.scope is scope), None)
        step = DelayedStep(lambda fed: self.run(program, fed, **how), scope)
        call = delayed(step, name=f"step-of-{step.token}", pure=False, nout=len(fetches))
        step.node = call(feed, before, dask_key_name=f"train_step-{step.token}")
        original._delayed = [*(other for other in waiting if other.scope is not scope), step]
        return step.node


# ---- between processes


class _Elsewhere:
    """A step of another process, as a worker knows it.

    Args:
        token: of the step.
        topic: of the events by which its process is asked.
        clients: names of the clients of that process, one of which is of this cluster.
    """

    def __init__(self, token: str, topic: str, clients: Collection[str]) -> None:
        self._token, self._topic, self._clients = token, topic, frozenset(clients)

    def __call__(self, feed: Any, before: Any = None) -> list[Any]:
        """Let the step be made, and wait for it.

        Raises:
            RuntimeError: who was asked is gone.
        """
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
                    text = "the process that has the variables of a delayed step is gone"
                    raise RuntimeError(text)
            error, results = answer.get().result()
            answered.clear()
            fed.delete()
            answer.delete()
        if error is not None:
            raise error
        return list(results)


def _names(request: str) -> tuple[str, str]:
    """The variables of the cluster that hold what a step is fed, and what it gives."""
    return f"dpexec-feed-{request}", f"dpexec-step-{request}"


def _clients(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.clients)


def _ask_here() -> list[str]:
    """Let the workers of all clients ask for steps here; names of the clients.

    Who pickles a graph does not say for which of them.
    """
    distributed = sys.modules.get("distributed")  # nobody has a client who has not imported it
    if distributed is None:
        return []
    known = distributed.Client._instances  # of all; the public way knows the current one alone
    found = [it for it in known if it.status == "running" and not it.asynchronous]
    for client in set(found) - set(_served):
        _served.add(client)
        client.subscribe_topic(_TOPIC, functools.partial(_asked, weakref.ref(client)))
    return [client.id for client in found]


_requests: LimitedCache[str, None] = LimitedCache(1000)
"""The latest that came: workers repeat them."""


def _asked(client: weakref.ref[Client], event: tuple[float, tuple[str, str]]) -> None:
    """Make a step in a thread of its own, as whoever handles events must not wait."""
    known, (token, request) = client(), event[1]
    if known is not None and request not in _requests:
        _requests[request] = None
        threading.Thread(target=_answer, args=(known, token, request), daemon=True).start()


def _answer(client: Client, token: str, request: str) -> None:
    """Make a step, and tell the worker that asked."""
    from distributed import Event, Variable

    from dpexec.engine.cluster.worker.telling import copy_to_send  # needs distributed

    step, (feed, answer) = _steps.get(token), _names(request)
    found: tuple[BaseException | None, list[Any]]
    try:
        if step is None:
            raise RuntimeError("nobody keeps the delayed step any more")
        found = None, step(Variable(feed, client=client).get().result())
    except Exception as error:
        found = copy_to_send(error), []
    Variable(answer, client=client).set(client.scatter([found], hash=False)[0])
    Event(request, client=client).set()
