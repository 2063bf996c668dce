"""Which workers cannot take replicas, as they have no dpexec, or another than the client."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpexec.engine.core.errors import ClusterError, SchedulerLostError
from dpexec.engine.dask import installed

if TYPE_CHECKING:
    from dpexec.engine.dask.waiting import Contact

__all__ = ["fitting", "misfits", "nobody_fits"]

_logger = logging.getLogger(__name__)
_known: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
"""By client, the workers that were found to fit, and what was said of others."""
_asked: weakref.WeakKeyDictionary[Any, dict[str, Future[Any]]] = weakref.WeakKeyDictionary()
"""By client, the workers that still have to say what they have."""
_SOON = 0.2  # seconds for the answer of a new worker, while others can do the work


def misfits(contact: Contact, workers: Collection[str], soon: bool = False) -> dict[str, str]:
    """Those of some workers that cannot take replicas, and why; the log says it once of each.

    Args:
        contact: talks to the workers.
        workers: their addresses.
        soon: if some are known to fit, a new one that does not answer soon is left out until it
            does: it may be silent for long. Else all have the time of the limit.

    Raises:
        SchedulerLostError: the scheduler does not answer.
        ClusterError: it has no dpexec, or another, so that it cannot read any tasks.
    """
    known = _known.setdefault(contact.client, set())
    new = [worker for worker in workers if worker not in known]
    if not new:
        return {}
    mine, found = installed.installed(), dict[str, str]()
    if not known:
        _check_scheduler(contact, mine)
        known.add("the scheduler")
    if soon and len(new) < len(workers):
        answers = _said_so_far(contact.client, new)
        found = {w: "has not said yet which dpexec it has" for w in new if w not in answers}
    else:
        homes: Mapping[str, tuple[int, ...]] = dict.fromkeys(new, ())
        answers, _ = contact.reach(eval, _question(), homes=homes, what="to say what it has")
    for worker, theirs in answers.items():
        if why := _why_not(mine, theirs):
            found[worker] = why
            if (text := f"worker {worker} {why}") not in known:
                known.add(text)
                _logger.warning("%s: it gets no replicas", text)
            continue
        known.add(worker)
        if others := _differences(mine, theirs):
            text = "worker %s has %s: the last digits of results may depend on who computes them"
            _logger.warning(text, worker, others)
    return found


def fitting(contact: Contact, workers: Collection[str], soon: bool = False) -> list[str]:
    """Those of some workers that can take replicas.

    Args:
        contact: talks to the workers.
        workers: their addresses.
        soon: see :func:`misfits`.

    Raises:
        ClusterError: none of them can.
    """
    found = misfits(contact, workers, soon)
    if found and len(found) == len(workers):
        raise nobody_fits(found)
    return [worker for worker in workers if worker not in found]


def nobody_fits(found: Mapping[str, str]) -> ClusterError:
    """The error that no worker can take replicas.

    Args:
        found: why not, by address.
    """
    told = "; ".join(f"worker {worker} {why}" for worker, why in found.items())
    return ClusterError(f"no worker can take replicas: {told}")


def _said_so_far(client: Any, workers: Sequence[str]) -> dict[str, Mapping[str, str]]:
    """What workers say that they have; those that have not answered soon are asked on."""
    asked, answers = _asked.setdefault(client, {}), {}
    for worker in workers:
        if worker not in asked:
            run = client.run(
                eval, _question(), workers=[worker], on_error="return", asynchronous=True
            )
            asked[worker] = asyncio.run_coroutine_threadsafe(run, client.loop.asyncio_loop)
    wait([asked[worker] for worker in workers], _SOON)
    for worker in [worker for worker, answer in asked.items() if answer.done()]:
        answer = asked.pop(worker)
        failed = answer.cancelled() or answer.exception() is not None
        said = None if failed else answer.result().get(worker)
        if isinstance(said, Mapping) and worker in workers:
            answers[worker] = said  # others are gone, or not ready, and may be asked again
    return answers


def _check_scheduler(contact: Contact, mine: Mapping[str, str]) -> None:
    client = contact.client
    asked = client._run_on_scheduler, eval, _question()
    try:
        theirs = client.sync(*asked, callback_timeout=contact.limit)
    except OSError as error:
        why = f"{type(error).__name__}: {error}"
        raise SchedulerLostError(
            f"the scheduler did not say which dpexec it has ({why})"
        ) from error
    if why := _why_not(mine, theirs):
        raise ClusterError(f"the scheduler {client.scheduler.address} {why}")


def _question() -> str:
    """A text that workers evaluate: one without dpexec could not load a function of ours."""
    source = Path(installed.__file__).read_text()
    return f"(lambda names: exec({source!r}, names) or names['installed']())({{}})"


def _why_not(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Why a worker fits not, and what to do; empty if it does."""
    version = mine["dpexec"]
    if theirs["dpexec"] == version:
        return ""
    has = f"dpexec {theirs['dpexec']}" if theirs["dpexec"] else "no dpexec"
    return f"has {has}; install the client's there, dpexec {version}, and start it again"


def _differences(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """The packages of a worker that are others than the client's."""
    told = []
    for name, version in mine.items():
        if theirs[name] != version and (name != "python" or _minor(theirs) != _minor(mine)):
            told.append(f"{name} {theirs[name]}" if theirs[name] else f"no {name}")
            told[-1] += f" (the client {version or 'none'})"
    return ", ".join(told)


def _minor(found: Mapping[str, str]) -> str:
    return found["python"].rpartition(".")[0]
