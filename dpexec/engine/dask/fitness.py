"""Which workers cannot take replicas, as they have no dpexec, or another than the client."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Collection, Mapping
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


def misfits(contact: Contact, workers: Collection[str]) -> dict[str, str]:
    """Those of some workers that cannot take replicas, and why; the log says it once of each.

    Args:
        contact: talks to the workers.
        workers: their addresses.

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


def fitting(contact: Contact, workers: Collection[str]) -> list[str]:
    """Those of some workers that can take replicas.

    Args:
        contact: talks to the workers.
        workers: their addresses.

    Raises:
        ClusterError: none of them can.
    """
    found = misfits(contact, workers)
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
