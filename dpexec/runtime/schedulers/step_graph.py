"""The dask graph of a step: a task per segment and collective, pinned to the worker of its device.

The first task of a device takes what it is fed, the last one stores what the step computed. What
only one replica has goes on to the worker that mirrors it. In a graph of several steps, one begins
when all replicas, and their mirrors, have stored what the one before made.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from dask._task_spec import Task as DaskTask
from dask._task_spec import TaskRef

from dpexec.runtime import cluster_state, cluster_worker
from dpexec.runtime.cluster_worker import BindingKey, StepOf, Value
from dpexec.runtime.held_feed import Fed
from dpexec.runtime.plan import Plan
from dpexec.runtime.schedulers.home_table import HomeTable
from dpexec.runtime.steps import Shard

__all__ = ["StepGraph", "home_of"]

_Key = tuple[str, str]


class StepGraph:
    """The tasks of a step.

    Args:
        plan: what runs.
        key: what the workers know its binding by.
        step: the step.
        homes: the workers of the devices.
        own: per device, names of what is mirrored.
        before: the step before, if it is made in the same graph.
        last: whether what is fetched is wanted.

    Attributes:
        tasks: by their keys.
        where: the worker of each.
        ends: the last task of each device.
        mirrors: the tasks that mirror, by device.
    """

    def __init__(
        self,
        plan: Plan,
        key: BindingKey,
        step: StepOf,
        homes: HomeTable,
        own: Sequence[Collection[str]],
        before: StepGraph | None = None,
        last: bool = True,
    ) -> None:
        self.tasks: dict[_Key, DaskTask] = {}
        self.where: dict[_Key, str] = {}
        self.ends: list[_Key] = []
        self.mirrors: dict[int, _Key] = {}
        self._plan, self._key, self._step, self._homes, self._own = plan, key, step, homes, own
        self._before, self._last = before, last
        self._tag = f"{step.epoch.token[:8]}-{step.epoch.number}-{step.number}"

    def fill(
        self,
        feeds: Sequence[Fed],
        persistable: Collection[str],
        shards: Sequence[Shard],
        recorded: bool,
    ) -> StepGraph:
        """Add the tasks.

        Args:
            feeds: what the devices are fed.
            persistable: names of what is fed that also sets a variable.
            shards: every device's part of the run.
            recorded: whether to note when tasks run.
        """
        devices, stored = range(len(self._homes.address)), self._stored()
        feed_keys = [
            self._add(
                f"feed_dev{device}",
                self._homes.address[device],
                cluster_worker.feed,
                self._key,
                device,
                shards[device],
                feeds[device].values,
                recorded,
                feeds[device].counts,
                *(TaskRef(block.key) for block in feeds[device].blocks),
                *stored,
            )
            for device in devices
        ]
        keys = self._add_tasks(feed_keys)
        fed = sorted(persistable)
        for device in devices:
            self._add_end(device, fed, self._results(device, keys, feed_keys[device]))
        return self

    def _stored(self) -> list[TaskRef]:
        """What says that the step before is stored: a mirror also says so for its replica.

        A replica that begins a step gives up its oldest version, which nobody may still need.
        None of these tasks has a result that is worth mentioning.
        """
        if self._before is None:
            return []
        mirrored = self._before.mirrors
        ends = [key for device, key in enumerate(self._before.ends) if device not in mirrored]
        return [TaskRef(key) for key in (*ends, *mirrored.values())]

    def _add(self, name: str, worker: str, function: Any, *args: Any) -> _Key:
        key = (name, self._tag)
        self.tasks[key] = DaskTask(key, function, self._step, *args)
        self.where[key] = worker
        return key

    def _add_tasks(self, feed_keys: Sequence[_Key]) -> list[_Key]:
        """The tasks of the plan."""
        exports, imports = _flows(self._plan)
        keys: list[_Key] = []
        for task in self._plan.tasks:
            home = home_of(self._plan, task.id)
            wanted = [imports.get((index, task.id), []) for index in task.after]
            refs = [TaskRef(keys[index]) for index in task.after]
            args = (task.id, exports[task.id], wanted, *refs, TaskRef(feed_keys[home]))
            worker = self._homes.address[home]
            name = f"{task.key[0]}-{task.id}"
            keys.append(self._add(name, worker, cluster_worker.run_task, self._key, *args))
        return keys

    def _results(self, device: int, keys: Sequence[_Key], feed_key: _Key) -> tuple[Any, ...]:
        """What the end of a device takes of the tasks that made something for it."""
        plan = self._plan
        made = [(t.id, _made_for(plan, t.id, device)) for t in plan.tasks]
        made = [(index, names) for index, names in made if names]
        wanted = [names if plan.tasks[i].is_collective else [] for i, names in made]
        return wanted, *(TaskRef(keys[index]) for index, _ in made), TaskRef(feed_key)

    def _add_end(self, device: int, fed: Sequence[str], results: Sequence[Any]) -> None:
        """The end of a device.

        If something is mirrored, the last task has two halves, and the mirror takes the result of
        the first one: dask's scheduler fails when a task is cancelled that others wait for whose
        results nobody wants. Steps that others follow in the graph have the first half alone.
        """
        worker, buddy = self._homes.address[device], self._homes.buddy(device)
        plan, mirrored = self._plan, buddy is not None and bool(self._own[device])
        name = f"finish_dev{device}"
        if self._last and not mirrored:
            function, args = cluster_worker.finish, (self._key, device, fed, *results)
            self.ends.append(self._add(name, worker, function, *args))
            return
        written = {name for where, name in (*plan.commits, *plan.overwritten) if where == device}
        own = sorted(written.union(fed).intersection(self._own[device])) if mirrored else []
        args = (self._key, device, own, fed, *results)
        end = self._add(f"commit_dev{device}", worker, cluster_worker.commit, *args)
        made = TaskRef(end)
        if self._last:
            end = self._add(name, worker, cluster_worker.fetch, self._key, device, made)
        self.ends.append(end)
        if mirrored:
            assert buddy is not None
            name = f"mirror_dev{device}"
            self.mirrors[device] = self._add(name, buddy, cluster_state.mirror, device, made)


def home_of(plan: Plan, number: int) -> int:
    """The device on whose worker a task runs: an all-reduce on that of the first source."""
    task = plan.tasks[number]
    return task.nodes[0].inputs[0].device if task.device is None else task.device


def _made_for(plan: Plan, number: int, device: int) -> list[Value]:
    """The values of a device that a task makes."""
    outputs = (var for node in plan.tasks[number].nodes for var in node.outputs)
    names = dict.fromkeys(var.name for var in outputs if var.device == device and var.kind == "var")
    return [(device, name) for name in names if name]


def _flows(plan: Plan) -> tuple[list[list[Value]], dict[tuple[int, int], list[Value]]]:
    """What travels between collectives and segments.

    A task imports just what its nodes read from the task that made that version: an older version
    must never replace a newer one, which would happen where several replicas live on one worker.

    Returns:
        The values that each task hands out, and by (maker, reader) those that the reader takes.
    """
    made_by = {var: task.id for task in plan.tasks for node in task.nodes for var in node.outputs}
    exports: list[dict[Value, None]] = [{} for _ in plan.tasks]
    imports: dict[tuple[int, int], list[Value]] = {}
    for task in plan.tasks:
        for var in dict.fromkeys(var for node in task.nodes for var in node.inputs):
            maker = made_by.get(var)
            if var.kind != "var" or var in plan.missing or maker in (None, task.id):
                continue
            assert maker is not None
            if task.is_collective or plan.tasks[maker].is_collective:
                exports[maker][(var.device, var.name)] = None
                imports.setdefault((maker, task.id), []).append((var.device, var.name))
        if task.is_collective:
            values = ((v.device, v.name) for n in task.nodes for v in n.outputs if v.kind == "var")
            exports[task.id].update(dict.fromkeys(values))
    return [list(names) for names in exports], imports
