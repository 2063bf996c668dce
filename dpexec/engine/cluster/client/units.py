"""Units: the smallest pieces of work of a step on a cluster, and the waits among them.

Units are tasks of the plan or parts of them. They follow from the plan and the homes of its
replicas. Jobs are made of them, see :mod:`.jobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from dpexec.engine.core.light_dataclasses import dataclass, field

__all__ = ["Unit", "home_of", "units_of"]

_Taken = tuple[Value, Value]
"""A value on the worker that it comes from, and the value under which it is stored."""


@dataclass(eq=False)
class Unit:
    """The smallest piece of work: an action, or the begin or end of a step for a replica.

    Args:
        label: the name that people read.
        device: the replica that it works for.
        worker: the worker on which it runs.
        action: the action; None for begin and end. The values that it takes are added later.
        feeds: whether it takes the replica's feed.
        stores: whether it stores the results of the step.
        overwrites: whether it overwrites variables.
        is_collective: whether it combines values of several replicas.
        makes: values of the plan that are complete after it.
        takes: the units that it waits for, with the values that it gets from them.
        before: all units that have certainly ended when it begins.
        depth: the number of units on the longest path to it.
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
        """Wait for a value; it does not travel if it is made on the same worker."""
        values = self.takes.setdefault(maker, [])
        if maker.worker != self.worker:
            values.append((value, value))

    def wait(self, *makers: Unit) -> None:
        """Wait for other units."""
        for maker in makers:
            self.takes.setdefault(maker, [])

    def settle(self) -> None:
        """Drop waits that follow from others; called when all its waits are known."""
        self.before = set().union(*(unit.before for unit in self.takes))
        self.takes = {u: v for u, v in self.takes.items() if v or u not in self.before}
        self.before |= self.takes.keys()
        self.depth = 1 + max((unit.depth for unit in self.takes), default=0)


def home_of(plan: Plan, number: int) -> int:
    """The device on whose worker a task runs; for a collective, that of its first source."""
    task = plan.tasks[number]
    return task.nodes[0].inputs[0].device if task.device is None else task.device


def units_of(plan: Plan, homes: HomeTable, link: Callable[[], Link]) -> list[Unit]:
    """The units of a step, in a topological order.

    Args:
        plan: the plan that runs.
        homes: the workers of its replicas.
        link: gives the speed of the links between workers; called only if it matters.
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
        """By task and worker, the unit that ends the task; only divided sums have several."""
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
        """The unit that ends a task for a replica."""
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
        """The parts of a sum: each adder adds the values on its worker to the sum that comes."""
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
        """The units of a divided sum, and by worker the unit that ends it."""
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
        """The units that cut shares for other workers, one after another.

        The first one joins the job that makes the gradients, if one job makes them.
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
        """The unit that adds up a share."""
        device = way.devices[share]
        worker = self._homes.address[device]
        action = AddShare(task.id, share, len(way.devices), self._homes.workers[worker])
        unit = Unit(f"reduce_scatter_dev{device}", device, worker, action)
        for cut in cuts:
            assert isinstance(cut.action, CutShare)
            if cut.worker == worker:
                unit.wait(cut)  # and by that for the gradients on this worker
            elif cut.action.share == share:
                for name in way.names:
                    for source in cut.action.devices:
                        unit.take(cut, (source, share_name(name, share)))
        unit.wait(*(self._maker(index, device) for index in task.after))
        return unit

    def _joins(
        self, task: Task, way: Divided, devices: tuple[int, ...], adds: Sequence[Unit]
    ) -> Unit:
        """The unit that joins the shares of the sums on a worker."""
        worker = self._homes.address[devices[0]]
        action = JoinShares(task.id, len(adds), devices)
        unit = Unit(f"all_gather_dev{devices[0]}", devices[0], worker, action)
        unit.makes = tuple(value for value in _made(task) if value[0] in devices)
        for share, add in enumerate(adds):
            for name in way.made:
                unit.take(add, (way.gives, share_name(name, share)))
        return unit

    def _end(self, feed: Unit) -> Unit:
        """The end of a step for a replica: it waits for all units that work or compute for it."""
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
    """For each task, the tasks whose values it reads, with these values.

    A task takes each value from the task that made the version that it reads. Otherwise an older
    version could replace a newer one, if several replicas live on one worker.
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
