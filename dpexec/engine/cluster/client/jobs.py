"""The dask tasks of a step: as few as possible, since each costs messages and waits for them.

A job is one dask task. It runs several tasks of the plan, one after another on a worker, if no
other job waits for the earlier ones. The first job of a replica also takes its feed; the last one
stores the results of the step. Jobs follow from the plan and the homes of its replicas, and are the
same for all steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from dpexec.engine.cluster.client.units import Unit, units_of
from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.cluster.messages import Value
from dpexec.engine.cluster.worker.actions import Action, Takes
from dpexec.engine.compile.plans.bucket_size import Link
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.core.light_dataclasses import dataclass

__all__ = ["Job", "Jobs", "jobs_of", "joined_names"]


@dataclass(frozen=True)
class Job:
    """The work of one dask task.

    Args:
        name: the name under which dask's pages group it.
        device: the replica that it works for.
        feeds: whether it first takes the feed of the replica.
        actions: the tasks of the plan that it runs, and shares of sums.
        stores: the values that it takes before it stores the results of the step; None if it does
            not store them.
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
        found: the jobs; each comes after those that it waits for.
        flows: whether a replica may begin the next step before all others have stored this one.
    """

    found: tuple[Job, ...]
    flows: bool


def jobs_of(plan: Plan, homes: HomeTable, link: Callable[[], Link]) -> Jobs:
    """The jobs of a plan.

    Args:
        plan: the plan that runs.
        homes: the workers of its replicas.
        link: gives the speed of the links between workers; called only if it matters.
    """
    units = units_of(plan, homes, link)
    return Jobs(tuple(_jobs(_chains(units))), _flows(units))


def _chains(units: Iterable[Unit]) -> list[list[Unit]]:
    """Chains of units, each of which one job runs.

    A unit joins the chain of its latest predecessor if no other unit waits for that, and if the
    chain's first unit does not have to wait longer for it.
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
    """The name of a job on dask's pages: its tasks, their device, and their numbers."""
    tasks = [f"{unit.label}-{unit.action.number}" for unit in chain if unit.action is not None]
    return functools.reduce(joined_names, tasks) if tasks else chain[0].label


def joined_names(one: str, other: str) -> str:
    """The name of a dask task that does the work of two jobs of a replica.

    Args:
        one: the name of the first job.
        other: the name of the second job.
    """
    (label, *numbers), (more, *others) = one.split("-"), other.split("-")
    if label != more:
        more = f"{label.rpartition('_dev')[0] or label}_{more}"
    return "-".join((more, *numbers, *others))


def _flows(units: Sequence[Unit]) -> bool:
    """Whether a replica may begin the next step before all others have stored this one.

    This needs two properties, which a plan has if values of all replicas meet in it. No replica
    overwrites or stores anything before all have begun the step, and so have stored the one before.
    And no worker computes a value again while another may still be reading it.
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
