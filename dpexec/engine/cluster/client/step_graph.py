"""The dask graph of a step: its jobs, pinned to the workers of their replicas.

A replica's own state also goes to the worker that mirrors it. In a graph of several steps, a
replica begins a step when it has stored the results of the step before, and its worker has stored
the mirrors that it keeps; for some plans, only when all replicas have done so. If there is nothing
else to wait for, the task that stores goes on with the next step.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from dask._task_spec import Task as DaskTask
from dask._task_spec import TaskRef

from dpexec.engine.cluster.client.jobs import Job, Jobs, joined_names
from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.cluster.messages import BindingKey, Feeding, StepOf
from dpexec.engine.cluster.worker import jobs as cluster_jobs
from dpexec.engine.cluster.worker import state as cluster_state
from dpexec.engine.cluster.worker.jobs import JobOf, Storing, Work
from dpexec.engine.cluster.worker.version_store import written_on
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Shard
from dpexec.engine.dask.deliveries import Fed, rows_of

__all__ = ["StepGraph"]

_Key = tuple[str, str]


class _Ended(NamedTuple):
    """The task that ends a step for a replica.

    Args:
        key: of the task.
        name: of the job.
        jobs: the jobs that the task runs.
        refs: the tasks that it waits for.
    """

    key: _Key
    name: str
    jobs: list[JobOf]
    refs: list[TaskRef]


class StepGraph:
    """The tasks of a step.

    Args:
        plan: the plan that runs.
        jobs: its jobs.
        key: the name of its binding on the workers.
        step: the step.
        homes: the workers of the devices.
        own: per device, names of mirrored variables.
        before: the step before, if it is in the same dask graph.
        last: whether the fetched values are wanted.

    Attributes:
        tasks: the tasks by their keys.
        where: the worker of each task.
        ends: the key of each device's last task.
        mirrors: the keys of the tasks that mirror, by device.
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
        self._keys: list[_Key] = []
        self._ended: dict[int, _Ended] = {}
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
            feeds: the feed of each device.
            persistable: names of feeds that also set a persistable variable.
            shards: every device's part of the run.
            recorded: whether to note when tasks run.
        """
        for job in self._jobs.found:
            feeding, refs = None, [TaskRef(self._keys[index]) for index in job.after]
            if job.feeds:
                fed, shard = feeds[job.device], shards[job.device]
                blocks: dict[Any, Any] = {}
                feeding = Feeding(shard, fed.values, rows_of([fed], blocks), recorded)
                refs = [TaskRef(key) for key in blocks]
            storing = self._storing(job, sorted(persistable))
            work = Work(job.device, feeding, job.actions, job.gives, storing)
            self._add_job(job, work, refs)
            if storing is not None:
                self._end(job.device)
        return self

    def _add_job(self, job: Job, work: Work, refs: list[TaskRef]) -> None:
        """Add a job as a task of its own, or to the task in which its replica ended a step."""
        name, jobs = job.name, [JobOf(self._step, self._key, work)]
        if job.feeds and self._before is not None:
            if self._goes_on(job, refs):
                ended = self._before.take_end(job.device)
                name, refs = joined_names(ended.name, name), ended.refs
                jobs = [*ended.jobs, *jobs]
            else:
                refs += self._stored(job.device)
        worker = self._homes.address[job.device]
        self._keys.append(self._add(name, worker, cluster_jobs.run_jobs, jobs, *refs))
        if work.storing is not None:
            self._ended[job.device] = _Ended(self._keys[-1], job.name, jobs, refs)

    def _goes_on(self, job: Job, blocks: Sequence[TaskRef]) -> bool:
        """Whether a replica waits only for itself before it begins the step."""
        assert self._before is not None
        alone = len(self._homes.workers[self._homes.address[job.device]]) == 1
        free = self._flows and not self._before.mirrors and not blocks
        return alone and free and job.stores is None

    @property
    def _flows(self) -> bool:
        assert self._before is not None
        return self._jobs.flows and self._before._jobs.flows

    def take_end(self, device: int) -> _Ended:
        """Take a replica's last task out of the graph; its jobs join those of the next step."""
        ended = self._ended[device]
        del self.tasks[ended.key], self.where[ended.key]
        return ended

    def _stored(self, device: int) -> list[TaskRef]:
        """The tasks that a replica waits for before it begins this step: those that store.

        A mirror's task comes after its replica's, so it stands for both. Their results are tiny.
        """
        assert self._before is not None
        mirrors, ends = self._before.mirrors, self._before.ends
        if not self._flows:
            return [TaskRef(mirrors.get(device, end)) for device, end in ends.items()]
        worker = self._homes.address[device]
        stored = [ends[other] for other in self._homes.workers[worker]]
        kept = [key for other, key in mirrors.items() if self._homes.buddy(other) == worker]
        return [TaskRef(key) for key in (*stored, *kept)]

    def _add(self, name: str, worker: str, function: Any, *args: Any) -> _Key:
        key = (name, self._tag)
        self.tasks[key] = DaskTask(key, function, *args)
        self.where[key] = worker
        return key

    def _storing(self, job: Job, fed: Sequence[str]) -> Storing | None:
        """What the last job of a replica stores; None for other jobs."""
        if job.stores is None:
            return None
        plan, device = self._plan, job.device
        if not self._is_mirrored(device):
            return Storing(job.stores, fed, (), self._last)
        own = sorted(written_on(plan, device).union(fed).intersection(self._own[device]))
        return Storing(job.stores, fed, own, False)

    def _is_mirrored(self, device: int) -> bool:
        return self._homes.buddy(device) is not None and bool(self._own[device])

    def _end(self, device: int) -> None:
        """Add the tasks after the last job of a replica.

        If state is mirrored, the mirror takes the job's result, and another task the fetched
        values. Dask's scheduler fails if a wanted task is cancelled while tasks that nobody wants
        wait for it.
        """
        worker, buddy = self._homes.address[device], self._homes.buddy(device)
        stored = self.ends[device] = self._ended[device].key
        if self._is_mirrored(device):
            assert buddy is not None
            name, made = f"mirror_dev{device}", TaskRef(stored)
            mirror = cluster_state.mirror, self._step, device, made
            self.mirrors[device] = self._add(name, buddy, *mirror)
            if self._last:
                fetch = cluster_jobs.fetch, self._step, self._key, device, made
                self.ends[device] = self._add(f"fetch_dev{device}", worker, *fetch)
