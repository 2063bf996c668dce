"""``dask.annotate`` around a run: which workers it may use, and how urgent its tasks are.

Workers and resources determine where replicas live. Tasks that train take the resources, too. Tasks
that move state take none, because they run while training tasks hold them. Dask passes priorities
on to all tasks.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import dask

from dpexec.engine.core.errors import ClusterError, SchedulerLostError

__all__ = ["ANYWHERE", "OURS", "Wanted", "of_ours", "those_wanted", "wanted_here"]

OURS = "dpexec"
"""Annotation of tasks that workers begin beside those of the user."""
_PINNED: dict[str, Any] = {"allow_other_workers": False, "retries": 0, OURS: True}


class Wanted(NamedTuple):
    """Which workers a run may use.

    Args:
        workers: addresses, names or hosts; empty for all.
        resources: resources that each of them must have, with amounts.
        others: whether other workers are allowed if none of these is there.
    """

    workers: tuple[Any, ...] = ()
    resources: tuple[tuple[str, float], ...] = ()
    others: bool = False

    def __str__(self) -> str:
        told: list[str] = []
        if self.workers:
            told.append(f"workers={list(self.workers)}")
        if self.resources:
            told.append(f"resources={dict(self.resources)}")
        return f"dask.annotate({', '.join(told)})"


ANYWHERE = Wanted()


def wanted_here() -> Wanted:
    """The workers that the annotations around this call ask for.

    Raises:
        TypeError: an annotation is a function of keys, which replicas do not have.
    """
    notes = dask.get_annotations()
    if not notes:
        return ANYWHERE
    if notes.get("retries"):
        warnings.warn(
            "dask.annotate(retries=...) does not apply to the tasks of a run: steps that lose "
            "workers are made again anyhow, and what an operator raises is raised at once",
            stacklevel=2,
        )
    found = {name: notes.get(name) or () for name in ("workers", "resources")}
    for name, value in found.items():
        if callable(value):
            raise TypeError(
                f"dask.annotate({name}=...) around a run takes no function: replicas live on "
                "workers, and have no keys"
            )
    resources = tuple(sorted(dict(found["resources"]).items()))
    others = notes.get("allow_other_workers") is True
    return Wanted(tuple(found["workers"]), resources, others) if any(found.values()) else ANYWHERE


@contextlib.contextmanager
def of_ours(takes_resources: bool = False) -> Iterator[None]:
    """Tasks made in here stay on the workers that they are sent to.

    The user's annotations could let dask run them elsewhere, repeat them, or wait for resources
    that are taken.

    Args:
        takes_resources: whether they wait for the resources nevertheless, as tasks that train do.
    """
    with dask.annotate(**_PINNED, **({} if takes_resources else {"resources": {}})):
        yield


def those_wanted(client: Any, wanted: Wanted, there: Collection[str]) -> list[str]:
    """The workers that a run may use.

    Args:
        client: a connected ``distributed.Client``.
        wanted: the workers to use.
        there: all workers.

    Raises:
        ClusterError: no worker meets the annotations.
        SchedulerLostError: the scheduler does not answer.
    """
    if wanted == ANYWHERE:
        return list(there)
    try:
        known: dict[str, str] = client.run_on_scheduler(_known, wanted, list(there))
    except OSError as error:
        raise SchedulerLostError(f"the scheduler did not say who meets {wanted}") from error
    found = [worker for worker, lacks in known.items() if not lacks]
    if not found and wanted.others and not wanted.resources:
        return list(there)
    if not found:
        text = "; ".join(f"{worker} {lacks}" for worker, lacks in known.items())
        raise ClusterError(f"no worker meets {wanted}: {text or 'there are none'}")
    return found


def _known(wanted: Wanted, there: Collection[str], dask_scheduler: Any) -> dict[str, str]:
    """What each worker lacks, in words; called on the scheduler."""
    addresses, hosts = set(), set()
    for worker in wanted.workers:  # as dask itself reads them
        try:
            addresses.add(dask_scheduler.coerce_address(worker))
        except (OSError, TypeError, ValueError):
            hosts.add(worker)
    states = dask_scheduler.workers
    known = {}
    for state in (states[worker] for worker in there if worker in states):
        lacks = _lacks(state.resources, dict(wanted.resources))
        if wanted.workers and state.address not in addresses and state.host not in hosts:
            lacks = "is another one"
        name = "" if state.name == state.address else f"({state.name}) "
        known[state.address] = lacks and f"{name}{lacks}"
    return known


def _lacks(has: Mapping[str, float], needs: Mapping[str, float]) -> str:
    """What a worker lacks of some resources; empty if nothing."""
    lacking = [name for name, amount in needs.items() if has.get(name, 0) < amount]
    return ", ".join(f"has {has.get(name, 0):g} {name}" for name in lacking)
