"""Of which dask tasks a step consists: few, as each of them costs messages and waits for them.

A job is one dask task. It runs tasks of the plan that follow each other on a worker when nobody
else waits for the first of them; the first job of a replica also takes what it is fed, and the
last one stores what the step computed. Jobs follow from the plan and the homes of its replicas,
and serve all steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpexec.engine.cluster.client.units import Unit, units_of
from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.cluster.messages import Value
from dpexec.engine.cluster.worker.actions import Action, Takes
from dpexec.engine.compile.plans.bucket_size import Link
from dpexec.engine.compile.plans.plan import Plan

__all__ = ["Job", "Jobs", "jobs_of", "joined_names"]


@dataclass(frozen=True)
class Job:
    """What a worker does at once.

    Args:
        name: groups it on dask's pages.
        device: for which replica.
        feeds: whether it takes what the replica is fed, before anything else.
        actions: the tasks of the plan that it runs, and shares of sums.
        stores: what it takes before it stores what the step computed; None if it does not.
        after: positions of the jobs that it waits for.
        gives: values that jobs on other workers need.
    """

    name: str
    device: int
    feeds: bool
    actions: tuple[Action, ...]
    stores: Takes | None
    after: tuple[int, ...]
    gives: tuple[Value, ...]


@dataclass(frozen=True)
class Jobs:
    """The jobs of a step.

    Args:
        found: each comes after those that it waits for.
        flows: whether a replica may begin the next step before all others have stored this one.
    """

    found: tuple[Job, ...]
    flows: bool


def jobs_of(plan: Plan, homes: HomeTable, link: Callable[[], Link]) -> Jobs:
    """The jobs of a plan.

    Args:
        plan: what runs.
        homes: the workers of its replicas.
        link: tells what is between them; called if it matters.
    """
    units = units_of(plan, homes, link)
    return Jobs(tuple(_jobs(_chains(units))), _flows(units))


def _chains(units: Iterable[Unit]) -> list[list[Unit]]:
    """Units that one job runs.

    A unit joins those before it if it is the only one that waits for the last of them, and if
    that makes the first of them wait for nothing that ends later than what it waits for anyhow.
    """
    followers: dict[Unit, list[Unit]] = {}
    chains: dict[Unit, list[Unit]] = {}  # by their last unit
    for unit in units:
        for before in unit.takes:
            followers.setdefault(before, []).append(unit)
    for unit in units:
        last = max(unit.takes, key=lambda before: before.depth, default=unit)
        chain = chains.get(last, [])
        others = [before for before in unit.takes if before not in chain]
        if (
            followers.get(last) == [unit]
            and (last.device, last.worker) == (unit.device, unit.worker)
            and all(before.depth < chain[0].depth for before in others)
        ):
            chains[unit] = [*chains.pop(last), unit]
        else:
            chains[unit] = [unit]
    return sorted(chains.values(), key=lambda chain: chain[0].depth)


def _jobs(chains: Sequence[Sequence[Unit]]) -> list[Job]:
    """The jobs that run chains of units."""
    place = {unit: index for index, chain in enumerate(chains) for unit in chain}
    gives: list[dict[Value, None]] = [{} for _ in chains]
    for unit in place:
        for maker, values in unit.takes.items():
            gives[place[maker]].update(dict.fromkeys(value for value, _ in values))
    return [_job(chain, place, given) for chain, given in zip(chains, gives, strict=True)]


def _job(chain: Sequence[Unit], place: Mapping[Unit, int], gives: Iterable[Value]) -> Job:
    first, last = chain[0], chain[-1]
    needed = (place[maker] for unit in chain for maker in unit.takes if maker not in chain)
    after = tuple(dict.fromkeys(needed))

    def taken(unit: Unit) -> Takes:
        found = ((place[maker], taken) for maker, values in unit.takes.items() for taken in values)
        return tuple((after.index(job), *taken) for job, taken in found)

    return Job(
        name=_name(chain),
        device=first.device,
        feeds=first.feeds,
        actions=tuple(u.action._replace(takes=taken(u)) for u in chain if u.action is not None),
        stores=taken(last) if last.stores else None,
        after=after,
        gives=tuple(gives),
    )


def _name(chain: Sequence[Unit]) -> str:
    """What groups a job on dask's pages, that is what its tasks do and where, and their numbers."""
    tasks = [f"{unit.label}-{unit.action.number}" for unit in chain if unit.action is not None]
    return functools.reduce(joined_names, tasks) if tasks else chain[0].label


def joined_names(one: str, other: str) -> str:
    """The name of a dask task that does what two jobs of a replica do.

    Args:
        one: the name of the first.
        other: of the second.
    """
    (label, *numbers), (more, *others) = one.split("-"), other.split("-")
    if label != more:
        more = f"{label.rpartition('_dev')[0] or label}_{more}"
    return "-".join((more, *numbers, *others))


def _flows(units: Sequence[Unit]) -> bool:
    """Whether a replica may begin the next step before all others have stored this one.

    What it needs for that comes by itself where values of all replicas meet: nobody overwrites
    or stores anything before all have begun the step, and so have stored the one before. And
    nobody computes again what another worker may still be reading.
    """
    feeds = {unit for unit in units if unit.feeds}
    late = [unit for unit in units if unit.overwrites or unit.stores]
    if not all(feeds <= unit.before for unit in late):
        return False
    for reader in units:
        for maker, values in reader.takes.items():
            begun = {unit.worker for unit in maker.before & feeds}
            done = any(e.stores and e.worker == maker.worker and reader in e.before for e in late)
            if values and not done and not (maker.is_collective and reader.worker in begun):
                return False
    return True
