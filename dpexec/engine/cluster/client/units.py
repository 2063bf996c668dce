"""The least that workers do in a step, and what waits for what.

Units are tasks of the plan or parts of them, and follow from it and the homes of its replicas. Jobs
are made of them, see :mod:`.jobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dpexec.engine.cluster.client.adding import Along, Divided, way_of
from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.cluster.messages import Value
from dpexec.engine.cluster.worker.actions import (
    Action,
    AddShare,
    CutShare,
    JoinShares,
    RunTask,
    share_name,
)
from dpexec.engine.cluster.worker.version_store import written_on
from dpexec.engine.compile.plans.bucket_size import Link
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.plans.plan import Plan

__all__ = ["Unit", "home_of", "units_of"]

_Taken = tuple[Value, Value]
"""What a value is where it comes from, and in the place of what it is put."""


@dataclass(eq=False)
class Unit:
    """The least that a job can do: an action, or what is done around the actions.

    Args:
        label: what people read.
        device: for which replica.
        worker: where.
        action: the action, if it is one; what it takes is added to it later.
        feeds: whether it takes what the replica is fed.
        stores: whether it stores what the step computed.
        overwrites: whether it overwrites variables.
        is_collective: whether values of several replicas meet here.
        makes: values of the plan that are complete with it.
        takes: what it waits for, with the values that travel from there.
        before: all that is sure to have ended when it begins.
        depth: the number of units on the longest way to it.
    """

    label: str
    device: int
    worker: str
    action: Action | None = None
    feeds: bool = False
    stores: bool = False
    overwrites: bool = False
    is_collective: bool = False
    makes: tuple[Value, ...] = ()
    takes: dict[Unit, list[_Taken]] = field(default_factory=dict)
    before: set[Unit] = field(default_factory=set)
    depth: int = 0

    def take(self, maker: Unit, value: Value) -> None:
        """Wait for a value, which need not travel if it is made on the same worker."""
        values = self.takes.setdefault(maker, [])
        if maker.worker != self.worker:
            values.append((value, value))

    def wait(self, *makers: Unit) -> None:
        """Wait for other units."""
        for maker in makers:
            self.takes.setdefault(maker, [])

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


def units_of(plan: Plan, homes: HomeTable, link: Callable[[], Link]) -> list[Unit]:
    """The units of a step, in a topological order.

    Args:
        plan: what runs.
        homes: the workers of its replicas.
        link: tells what is between them; called if it matters.
    """
    return _Units(plan, homes, link).all()


class _Units:
    """Makes the units of a step, see :func:`units_of`."""

    def __init__(self, plan: Plan, homes: HomeTable, link: Callable[[], Link]) -> None:
        self._plan, self._homes = plan, homes
        self._reads = _reads(plan)
        self._feeds = [
            Unit(f"feed_dev{d}", d, at, feeds=True) for d, at in enumerate(homes.address)
        ]
        self._units: list[Unit] = []
        self._ends: list[dict[str, Unit]] = []
        """What ends each task, by worker; it is the same unit for all, but for divided sums."""
        for task in plan.tasks:
            self._add(task, way_of(plan, task, homes, home_of(plan, task.id), link))

    def all(self) -> list[Unit]:
        """All units."""
        units = [*self._feeds, *self._units, *map(self._end, self._feeds)]
        for unit in units:
            unit.settle()
        return units

    def _add(self, task: Task, way: Along | Divided | None) -> None:
        """Add the units of a task."""
        if isinstance(way, Divided):
            made, ends = self._shares(task, way)
        else:
            made = [self._whole(task)] if way is None else self._along(task, way)
            ends = dict.fromkeys(self._homes.workers, made[-1])
        for unit in made:
            unit.is_collective = task.is_collective
        for unit in ends.values():
            unit.overwrites = task.id in self._plan.updates
        self._units += made
        self._ends.append(ends)

    def _maker(self, number: int, device: int) -> Unit:
        """What ends a task for a replica."""
        return self._ends[number][self._homes.address[device]]

    def _whole(self, task: Task) -> Unit:
        """A task that runs on one worker."""
        home = home_of(self._plan, task.id)
        unit = Unit(task.key[0], home, self._homes.address[home], RunTask(task.id))
        unit.makes = _made(task)
        unit.wait(self._feeds[home])
        for maker, (device, name) in self._reads[task.id]:
            unit.take(self._maker(maker, device), (device, name))
        unit.wait(*(self._maker(index, home) for index in task.after))
        return unit

    def _along(self, task: Task, way: Along) -> list[Unit]:
        """The parts of a sum: each adder adds values that lie on its worker to what comes to it."""
        units: list[Unit] = []
        first = way.adders[0].adds[0]
        for adder in way.adders:
            label = f"{task.nodes[0].kind}_dev{adder.device}"
            unit = Unit(label, adder.device, self._homes.address[adder.device])
            unit.wait(self._feeds[adder.device])
            leaves = []
            for maker, (device, name) in self._reads[task.id]:
                if device in adder.adds:
                    unit.take(self._maker(maker, device), (device, name))
                elif units and device == first:
                    unit.takes.setdefault(units[-1], []).append(
                        ((adder.gives, name), (device, name))
                    )
                else:
                    leaves.append((device, name))
            unit.action = RunTask(task.id, tuple(leaves))
            units.append(unit)
        units[-1].makes = _made(task)
        units[-1].wait(*(self._maker(index, units[-1].device) for index in task.after))
        return units

    def _shares(self, task: Task, way: Divided) -> tuple[list[Unit], dict[str, Unit]]:
        """The units of a divided sum, and those of them that end it, by worker."""
        cuts = [
            unit
            for worker, devices in self._homes.workers.items()
            for unit in self._cuts(task, way, worker, devices)
        ]
        adds = [self._adds(task, way, share, cuts) for share in range(len(way.devices))]
        ends = {
            worker: self._joins(task, way, devices, adds)
            for worker, devices in self._homes.workers.items()
        }
        return [*cuts, *adds, *ends.values()], ends

    def _cuts(self, task: Task, way: Divided, worker: str, devices: tuple[int, ...]) -> list[Unit]:
        """What a worker cuts out for others, one after another.

        The first one goes with the task that makes the gradients, if it is one.
        """
        units: list[Unit] = []
        for share, adder in enumerate(way.devices):
            if self._homes.address[adder] == worker:
                continue
            action = CutShare(task.id, share, len(way.devices), devices)
            unit = Unit(f"cut_share{share}_dev{devices[0]}", devices[0], worker, action)
            here = [self._maker(m, d) for m, (d, _) in self._reads[task.id] if d in devices]
            unit.wait(*(units[:1] or here))
            units.append(unit)
        return units

    def _adds(self, task: Task, way: Divided, share: int, cuts: Sequence[Unit]) -> Unit:
        """What adds up a share."""
        device = way.devices[share]
        worker = self._homes.address[device]
        action = AddShare(task.id, share, len(way.devices), self._homes.workers[worker])
        unit = Unit(f"reduce_scatter_dev{device}", device, worker, action)
        for cut in cuts:
            assert isinstance(cut.action, CutShare)
            if cut.worker == worker:
                unit.wait(cut)  # and so for what makes the gradients here
            elif cut.action.share == share:
                for name in way.names:
                    for source in cut.action.devices:
                        unit.take(cut, (source, share_name(name, share)))
        unit.wait(*(self._maker(index, device) for index in task.after))
        return unit

    def _joins(
        self, task: Task, way: Divided, devices: tuple[int, ...], adds: Sequence[Unit]
    ) -> Unit:
        """What joins the shares of the sums on a worker."""
        worker = self._homes.address[devices[0]]
        action = JoinShares(task.id, len(adds), devices)
        unit = Unit(f"all_gather_dev{devices[0]}", devices[0], worker, action)
        unit.makes = tuple(value for value in _made(task) if value[0] in devices)
        for share, add in enumerate(adds):
            for name in way.made:
                unit.take(add, (way.gives, share_name(name, share)))
        return unit

    def _end(self, feed: Unit) -> Unit:
        """The end of a step for a replica: it waits for all that was done for it, and there."""
        plan, device = self._plan, feed.device
        stored = written_on(plan, device)
        end = Unit(f"commit_dev{device}", device, feed.worker, stores=True, takes={feed: []})
        latest: dict[str, Unit] = {}
        for unit in self._units:
            made = [name for where, name in unit.makes if where == device]
            latest.update(dict.fromkeys(made, unit))
            if made or unit.device == device:
                end.wait(unit)
        for name, unit in latest.items():
            if name in stored.union(plan.fetch):
                end.take(unit, (device, name))
        return end


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


def _made(task: Task) -> tuple[Value, ...]:
    """The values that a task makes."""
    outputs = (var for node in task.nodes for var in node.outputs)
    return tuple((var.device, var.name) for var in outputs if var.kind == "var" and var.name)
