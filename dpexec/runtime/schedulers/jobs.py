"""Of which dask tasks a step consists: few, as each of them costs messages and waits for them.

A job is one dask task. It runs tasks of the plan that follow each other on a worker when nobody
else waits for the first of them; the first job of a replica also takes what it is fed, and the
last one stores what the step computed. Jobs follow from the plan and the homes of its replicas,
and serve all steps.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dpexec.runtime.cluster_jobs import Part, Takes
from dpexec.runtime.cluster_worker import Value
from dpexec.runtime.partition import Task
from dpexec.runtime.plan import Plan
from dpexec.runtime.schedulers.adding import Adder, adders_of
from dpexec.runtime.schedulers.home_table import HomeTable

__all__ = ["Job", "Jobs", "home_of", "jobs_of", "joined_names"]


@dataclass(frozen=True)
class Job:
    """What a worker does at once.

    Args:
        name: groups it on dask's pages.
        device: for which replica.
        feeds: whether it takes what the replica is fed, before anything else.
        parts: the tasks of the plan that it runs.
        stores: what it takes before it stores what the step computed; None if it does not.
        after: positions of the jobs that it waits for.
        gives: values that jobs on other workers need.
    """

    name: str
    device: int
    feeds: bool
    parts: tuple[Part, ...]
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


_Taken = tuple[Value, Value]
"""What a value is where it comes from, and in the place of what it is put."""


@dataclass(eq=False)
class _Unit:
    """The least that a job can do: a task of the plan, or what is done around them.

    Args:
        label: what people read.
        device: for which replica.
        worker: where.
        task: the task of the plan, if it is one.
        feeds: whether it takes what the replica is fed.
        stores: whether it stores what the step computed.
        overwrites: whether it overwrites variables.
        leaves: the values that a part of a sum leaves to others.
        takes: what it waits for, with the values that travel from there.
        before: all that is sure to have ended when it begins.
        depth: the number of units on the longest way to it.
    """

    label: str
    device: int
    worker: str
    task: Task | None = None
    feeds: bool = False
    stores: bool = False
    overwrites: bool = False
    leaves: list[Value] = field(default_factory=list)
    takes: dict[_Unit, list[_Taken]] = field(default_factory=dict)
    before: set[_Unit] = field(default_factory=set)
    depth: int = 0

    @property
    def is_collective(self) -> bool:
        """Whether values of several replicas meet here."""
        return self.task is not None and self.task.is_collective

    def take(self, maker: _Unit, value: Value) -> None:
        """Wait for a value, which need not travel if it is made on the same worker."""
        values = self.takes.setdefault(maker, [])
        if maker.worker != self.worker:
            values.append((value, value))

    def settle(self) -> None:
        """All that it takes is known: leave out what follows from the rest."""
        self.before = set().union(*(unit.before for unit in self.takes))
        self.takes = {u: v for u, v in self.takes.items() if v or u not in self.before}
        self.before |= self.takes.keys()
        self.depth = 1 + max((unit.depth for unit in self.takes), default=0)


def home_of(plan: Plan, number: int) -> int:
    """The device on whose worker a task runs: an all-reduce on that of the first source."""
    task = plan.tasks[number]
    return task.nodes[0].inputs[0].device if task.device is None else task.device


def jobs_of(plan: Plan, homes: HomeTable) -> Jobs:
    """The jobs of a plan.

    Args:
        plan: what runs.
        homes: the workers of its replicas.
    """
    units = _units(plan, homes)
    return Jobs(tuple(_jobs(_chains(units))), _flows(units))


def _units(plan: Plan, homes: HomeTable) -> list[_Unit]:
    """The units of a step, in a topological order."""
    feeds = [_Unit(f"feed_dev{d}", d, at, feeds=True) for d, at in enumerate(homes.address)]
    tasks: list[list[_Unit]] = []
    reads = _reads(plan)
    for task in plan.tasks:
        home = home_of(plan, task.id)
        adders = adders_of(plan, task, homes, home)
        if adders:
            units = _parts(task, adders, feeds, [(tasks[m][-1], v) for m, v in reads[task.id]])
        else:
            units = [_Unit(task.key[0], home, homes.address[home], task)]
            units[0].takes = {feeds[home]: []}
            for maker, value in reads[task.id]:
                units[0].take(tasks[maker][-1], value)
        for index in task.after:
            units[-1].takes.setdefault(tasks[index][-1], [])
        units[-1].overwrites = task.id in plan.updates
        tasks.append(units)
    units = list(itertools.chain.from_iterable(tasks))
    units = [*feeds, *units, *(_end(plan, feed, units) for feed in feeds)]
    for unit in units:
        unit.settle()
    return units


def _parts(
    task: Task,
    adders: Sequence[Adder],
    feeds: Sequence[_Unit],
    reads: Sequence[tuple[_Unit, Value]],
) -> list[_Unit]:
    """The parts of a sum: each adder adds values that lie on its worker to what comes to it."""
    units: list[_Unit] = []
    first = adders[0].adds[0]
    for adder in adders:
        label = f"{task.nodes[0].kind}_dev{adder.device}"
        unit = _Unit(label, adder.device, feeds[adder.device].worker, task)
        unit.takes = {feeds[adder.device]: []}
        for maker, (device, name) in reads:
            if device in adder.adds:
                unit.take(maker, (device, name))
            elif units and device == first:
                unit.takes.setdefault(units[-1], []).append(((adder.gives, name), (device, name)))
            else:
                unit.leaves.append((device, name))
        units.append(unit)
    return units


def _reads(plan: Plan) -> list[list[tuple[int, Value]]]:
    """Which value of which other task each task reads.

    A task takes just what its nodes read from the task that made that version: an older version
    must never replace a newer one, which would happen where several replicas live on one worker.
    """
    makers = {var: task.id for task in plan.tasks for node in task.nodes for var in node.outputs}
    return [
        [
            (makers[var], (var.device, var.name))
            for var in dict.fromkeys(var for node in task.nodes for var in node.inputs)
            if var.kind == "var" and var not in plan.missing and makers.get(var, task.id) != task.id
        ]
        for task in plan.tasks
    ]


def _end(plan: Plan, feed: _Unit, units: Sequence[_Unit]) -> _Unit:
    """The end of a step for a replica: it waits for all that was done for it, and there."""
    device = feed.device
    stored = {name for where, name in (*plan.commits, *plan.overwritten) if where == device}
    end = _Unit(f"commit_dev{device}", device, feed.worker, stores=True, takes={feed: []})
    latest: dict[str, _Unit] = {}
    for unit in units:
        assert unit.task is not None
        made = _made_for(unit.task, device)
        latest.update(dict.fromkeys(made, unit))
        if made or unit.device == device:
            end.takes[unit] = []
    for name, unit in latest.items():
        if name in stored.union(plan.fetch):
            end.take(unit, (device, name))
    return end


def _made_for(task: Task, device: int) -> list[str]:
    """The names of the values of a device that a task makes."""
    outputs = (var for node in task.nodes for var in node.outputs)
    return [var.name for var in outputs if var.device == device and var.kind == "var" and var.name]


def _chains(units: Iterable[_Unit]) -> list[list[_Unit]]:
    """Units that one job runs.

    A unit joins those before it if it is the only one that waits for the last of them, and if
    that makes the first of them wait for nothing that ends later than what it waits for anyhow.
    """
    followers: dict[_Unit, list[_Unit]] = {}
    chains: dict[_Unit, list[_Unit]] = {}  # by their last unit
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


def _jobs(chains: Sequence[Sequence[_Unit]]) -> list[Job]:
    """The jobs that run chains of units."""
    place = {unit: index for index, chain in enumerate(chains) for unit in chain}
    gives: list[dict[Value, None]] = [{} for _ in chains]
    for unit in place:
        for maker, values in unit.takes.items():
            gives[place[maker]].update(dict.fromkeys(value for value, _ in values))
    return [_job(chain, place, given) for chain, given in zip(chains, gives, strict=True)]


def _job(chain: Sequence[_Unit], place: Mapping[_Unit, int], gives: Iterable[Value]) -> Job:
    first, last = chain[0], chain[-1]
    needed = (place[maker] for unit in chain for maker in unit.takes if maker not in chain)
    after = tuple(dict.fromkeys(needed))

    def taken(unit: _Unit) -> Takes:
        found = ((place[maker], taken) for maker, values in unit.takes.items() for taken in values)
        return tuple((after.index(job), *taken) for job, taken in found)

    return Job(
        name=_name(chain),
        device=first.device,
        feeds=first.feeds,
        parts=tuple(
            Part(u.task.id, taken(u), tuple(u.leaves)) for u in chain if u.task is not None
        ),
        stores=taken(last) if last.stores else None,
        after=after,
        gives=tuple(gives),
    )


def _name(chain: Sequence[_Unit]) -> str:
    """What groups a job on dask's pages, that is what its tasks do and where, and their numbers."""
    tasks = [f"{unit.label}-{unit.task.id}" for unit in chain if unit.task is not None]
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


def _flows(units: Sequence[_Unit]) -> bool:
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
