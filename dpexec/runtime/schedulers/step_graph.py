"""The dask graph of a step: its jobs, pinned to the workers of their replicas.

What only one replica has goes on to the worker that mirrors it. In a graph of several steps, a
replica begins one when it has stored what the one before made, and its worker the mirrors that it
keeps; where that is not enough, when all have.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from dask._task_spec import Task as DaskTask
from dask._task_spec import TaskRef

from dpexec.runtime import cluster_jobs, cluster_state
from dpexec.runtime.cluster_jobs import Storing, Work
from dpexec.runtime.cluster_worker import BindingKey, Feeding, StepOf
from dpexec.runtime.held_feed import Fed
from dpexec.runtime.plan import Plan
from dpexec.runtime.schedulers.home_table import HomeTable
from dpexec.runtime.schedulers.jobs import Job, Jobs
from dpexec.runtime.steps import Shard

__all__ = ["StepGraph"]

_Key = tuple[str, str]


class StepGraph:
    """The tasks of a step.

    Args:
        plan: what runs.
        jobs: which tasks it consists of.
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
        jobs: Jobs,
        key: BindingKey,
        step: StepOf,
        homes: HomeTable,
        own: Sequence[Collection[str]],
        before: StepGraph | None = None,
        last: bool = True,
    ) -> None:
        self.tasks: dict[_Key, DaskTask] = {}
        self.where: dict[_Key, str] = {}
        self.ends: dict[int, _Key] = {}
        self.mirrors: dict[int, _Key] = {}
        self._plan, self._jobs, self._key, self._step = plan, jobs, key, step
        self._homes, self._own, self._before, self._last = homes, own, before, last
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
        keys: list[_Key] = []
        for job in self._jobs.found:
            feeding, refs = None, [TaskRef(keys[index]) for index in job.after]
            if job.feeds:
                fed, shard = feeds[job.device], shards[job.device]
                feeding = Feeding(shard, fed.values, fed.counts, recorded)
                refs = [*(TaskRef(block.key) for block in fed.blocks), *self._stored(job.device)]
            storing = self._storing(job, sorted(persistable))
            work = Work(job.device, feeding, job.parts, job.gives, storing)
            worker, run = self._homes.address[job.device], cluster_jobs.run_job
            keys.append(self._add(job.name, worker, run, self._key, work, *refs))
            if storing is not None:
                self._end(job.device, keys[-1])
        return self

    def _stored(self, device: int) -> list[TaskRef]:
        """What says that enough of the step before is stored for a replica to begin this one.

        A mirror also says so for its replica. None of these tasks has a result that is worth
        mentioning.
        """
        if self._before is None:
            return []
        mirrors, ends = self._before.mirrors, self._before.ends
        if not self._jobs.flows:
            return [TaskRef(mirrors.get(device, end)) for device, end in ends.items()]
        worker = self._homes.address[device]
        keys = [*ends.values(), *mirrors.values()]
        return [TaskRef(key) for key in keys if self._before.where[key] == worker]

    def _add(self, name: str, worker: str, function: Any, *args: Any) -> _Key:
        key = (name, self._tag)
        self.tasks[key] = DaskTask(key, function, self._step, *args)
        self.where[key] = worker
        return key

    def _storing(self, job: Job, fed: Sequence[str]) -> Storing | None:
        """What the last job of a replica stores."""
        if job.stores is None:
            return None
        plan, device = self._plan, job.device
        if not self._is_mirrored(device):
            return Storing(job.stores, fed, (), self._last)
        written = {name for where, name in (*plan.commits, *plan.overwritten) if where == device}
        own = sorted(written.union(fed).intersection(self._own[device]))
        return Storing(job.stores, fed, own, False)

    def _is_mirrored(self, device: int) -> bool:
        return self._homes.buddy(device) is not None and bool(self._own[device])

    def _end(self, device: int, stored: _Key) -> None:
        """What comes after the last job of a replica.

        If something is mirrored, the mirror takes its result, and another task what is fetched:
        dask's scheduler fails when a task is cancelled that others wait for whose results nobody
        wants.
        """
        worker, buddy = self._homes.address[device], self._homes.buddy(device)
        self.ends[device] = stored
        if self._is_mirrored(device):
            assert buddy is not None
            name, made = f"mirror_dev{device}", TaskRef(stored)
            self.mirrors[device] = self._add(name, buddy, cluster_state.mirror, device, made)
            if self._last:
                args = self._key, device, made
                fetch = f"fetch_dev{device}"
                self.ends[device] = self._add(fetch, worker, cluster_jobs.fetch, *args)
