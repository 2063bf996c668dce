"""A gang on its workers: one task that makes some steps, with the collectives inside.

Every member runs the tasks of the plan that belong to its replicas, in the order of the plan, and
takes part in all collectives. Nothing is overwritten before all members have done what can fail
in a step: a failed step leaves the state of all of them as it was before it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from dpexec.engine.cluster.worker.gang_tasks import BoundPlan
from dpexec.engine.cluster.worker.gpus import run_timed
from dpexec.engine.cluster.worker.telling import copy_to_send
from dpexec.engine.cluster.worker.versions import StepArrays, Versions
from dpexec.engine.cluster.worker.worker import (
    BindingKey,
    Epoch,
    WorkerReplicas,
    at_work,
    fed_on,
    made_by,
    replicas_at,
)
from dpexec.engine.compile.env import Env, Shard
from dpexec.engine.compile.plan import Plan
from dpexec.engine.core.places import CUDAPlace, Place
from dpexec.engine.dask.held import put_together
from dpexec.engine.exchange.gpus import gpu_of
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.nccl import Exchange
from dpexec.engine.exchange.rendezvous import Door, Member
from dpexec.engine.exchange.side_by_side import Stretch, helpers, side_by_side
from dpexec.engine.exchange.wire import GangError, last_words
from dpexec.engine.run.fetch import host_copy
from dpexec.engine.threads.kernel_threads import one_kernel_thread

if TYPE_CHECKING:
    from dpexec.engine.cluster.worker.recording import Noted

__all__ = ["GangRunOf", "GangStep", "Outcome", "leave", "open_door", "run_gang"]


class GangRunOf(NamedTuple):
    """A run of some steps, for one member.

    Args:
        epoch: when it was sent.
        base: number of the step before the first, on whose values it works.
        rank: which of the members it is for.
        limit: seconds that a member may be silent when it is waited for.
        mirrored: per device, names of what goes to the member that mirrors it.
        by_nccl: whether GPUs exchange values by NCCL.
    """

    epoch: Epoch
    base: int
    rank: int
    limit: float
    mirrored: Sequence[Collection[str]]
    by_nccl: bool


@dataclass(frozen=True)
class GangStep:
    """A step of a gang, for one member.

    Args:
        key: names the binding.
        number: of the step.
        values: what its devices are fed.
        counts: of how many blocks the rest of that is put together, see :class:`Fed`.
        shards: their parts of the run.
        persistable: names of what is fed that also set a variable.
        recorded: whether to note when tasks run.
    """

    key: BindingKey
    number: int
    values: Mapping[int, Mapping[str, Any]]
    counts: Mapping[int, Mapping[str, int]]
    shards: Mapping[int, Shard]
    persistable: frozenset[str]
    recorded: bool = False

    def with_blocks(self, blocks: Iterator[Any]) -> GangStep:
        """The step with all that its devices are fed."""
        fed = {d: put_together(v, self.counts[d], blocks) for d, v in self.values.items()}
        return replace(self, values=fed)


@dataclass
class Outcome:
    """What became of a gang task.

    Args:
        done: how many steps were completed.
        fetched: what is fetched of the last one, per device.
        bytes_sent: to other members, through sockets.
        noted: what was recorded.
        error: why it ended early.
    """

    done: int = 0
    fetched: dict[int, dict[str, Any]] = field(default_factory=dict)
    bytes_sent: int = 0
    noted: Noted | None = None
    error: BaseException | None = None


class _Seat:
    """A member on its worker, between runs.

    Args:
        door: where the others come in.
        pool: threads that help with its replicas.
    """

    def __init__(self, door: Door, pool: ThreadPoolExecutor | None) -> None:
        self.door, self._pool = door, pool
        self.group: Group | None = None
        self.step = -1
        self._bound: dict[int, BoundPlan] = {}
        self._busy = threading.Lock()

    def join(self, members: Sequence[Member], run: GangRunOf, place: Place) -> Group:
        """The connected gang."""
        if self.group is None:
            channels = self.door.meet(members, run.rank, run.limit)
            self.group = Group(members, run.rank, channels, run.limit)
            if run.by_nccl:
                assert isinstance(place, CUDAPlace)
                self.group.nccl = Exchange(self.group, place)
        return self.group

    def stop(self) -> None:
        """Leave the gang; a task that runs ends with an error."""
        if self._busy.acquire(blocking=False):
            try:
                self.leave()
            finally:
                self._busy.release()
        else:
            self.door.close()
            if self.group is not None:
                self.group.interrupt()

    def leave(self, text: str = "") -> None:
        """Leave the gang; it cannot be joined again."""
        self.door.close()
        if self.group is not None:
            self.group.close(text)
        self.group = None
        self._bound.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def run(
        self, replicas: WorkerReplicas, members: Sequence[Member], run: GangRunOf, steps: Any
    ) -> Outcome:
        """Make some steps."""
        outcome, me = Outcome(), members[run.rank]
        if not self._busy.acquire(timeout=run.limit):
            raise GangError(f"{me.name} still makes steps of another run")
        try:
            if steps[0].number <= self.step:
                raise GangError(f"step {steps[0].number} came after step {self.step}")
            group = self.join(members, run, replicas.place)
            before = group.bytes_sent
            for versions in (*replicas.stores.values(), *replicas.mirrors.values()):
                versions.stand_at(run.base)
            for step in steps:
                self.step = step.number
                bound = self._bind(replicas, step, run.mirrored)
                self._one_step(bound, replicas, step, outcome, step is steps[-1])
                outcome.done += 1
            outcome.bytes_sent = group.bytes_sent - before
        except BaseException as error:
            outcome.error = copy_to_send(error)
            self.leave(last_words(me.name, self.step, error))
        finally:
            self._busy.release()
        return outcome

    def _one_step(
        self,
        bound: BoundPlan,
        replicas: WorkerReplicas,
        step: GangStep,
        outcome: Outcome,
        last: bool,
    ) -> None:
        group, bound.step = bound.group, step.number
        plan, mine = bound.plan, group.members[group.rank].devices
        envs = [Env() for _ in plan.graph.places]
        for device in mine:
            envs[device] = _env(plan, device, replicas.stores[device], step)
        arrays = StepArrays()
        _walk(bound, step, replicas, envs, arrays, self._pool)
        if last:
            outcome.fetched = {d: _fetched(plan, envs[d]) for d in mine}
        bound.mirroring.exchange(step.number, envs, replicas.mirrors)
        for device in mine:
            made = made_by(plan, device, envs[device], step.persistable)
            replicas.stores[device].commit(step.number, made, arrays)
        if step.recorded:
            from dpexec.engine.cluster.worker.recording import noted_on_worker

            bound.binding.recording.note_moved(group.moved)
            outcome.noted = noted_on_worker(bound.binding.recording)

    def _bind(
        self, replicas: WorkerReplicas, step: GangStep, mirrored: Sequence[Collection[str]]
    ) -> BoundPlan:
        number, base = step.key.number, replicas.binding(step.key)
        assert self.group is not None
        if number not in self._bound:
            self._bound = {n: bound for n, bound in self._bound.items() if replicas.knows(n)}
            self._bound[number] = BoundPlan(base, self.group, mirrored, step.persistable)
        self._bound[number].resize(base)
        return self._bound[number]


def _walk(
    bound: BoundPlan,
    step: GangStep,
    replicas: WorkerReplicas,
    envs: Sequence[Env],
    arrays: StepArrays,
    pool: ThreadPoolExecutor | None,
) -> None:
    """Run the tasks of a member, which overwrite arrays in which the step will be stored."""
    group, plan = bound.group, bound.plan
    recording = bound.binding.recording if step.recorded else None
    if recording is not None:
        recording.begin()
        recording.begin_tasks()

    def run(numbers: Sequence[int]) -> None:
        for number in numbers:
            if recording is None:
                replicas.graphs.run(bound.binding, number, envs)
            else:
                run_timed(recording, number, envs, replicas.place)

    def run_all(parts: Sequence[Sequence[Stretch]]) -> None:
        for part in parts:
            for stretch in part:
                side_by_side(run, stretch, pool)
            bound.finish()

    bound.recorded = step.recorded
    run_all(bound.before)
    if bound.waits:
        group.barrier(step.number)
    # only now has every member made the step before: until then, one that is a step behind needs
    # others to know the values of the step before that
    for device in group.members[group.rank].devices:
        overwritten = [name for where, name in plan.overwritten if where == device]
        envs[device].update(replicas.stores[device].scratch(overwritten, arrays))
    run_all(bound.after)


def _env(plan: Plan, device: int, store: Versions, step: GangStep) -> Env:
    """The start of a step on a device."""
    values = {name: store.values[name] for name in plan.reads[device] if name in store.values}
    fed = fed_on(plan.graph.places[device], step.values[device], step.persistable)
    return plan.make_env(step.shards[device], {**values, **fed})


def _fetched(plan: Plan, env: Env) -> dict[str, Any]:
    return {name: host_copy(env[name]) for name in plan.fetch if name in env}


# ---- called on workers

_seats: dict[tuple[str, str], _Seat] = {}


def open_door(
    token: str, secret: bytes, homes: Mapping[str, Sequence[int]], dask_worker: Any
) -> Member:
    """Let a worker wait for the other members of a new gang.

    Args:
        token: names the run.
        secret: of the run.
        homes: the devices of every worker.
        dask_worker: of this process.
    """
    leave(token, dask_worker)
    seat = _seats[token, dask_worker.address] = _Seat(
        Door(dask_worker, secret),
        helpers(len(homes[dask_worker.address]), dask_worker.state.nthreads),
    )
    place = replicas_at(token, dask_worker.address).place
    return seat.door.member(homes[dask_worker.address], gpu_of(place))


def leave(token: str, dask_worker: Any) -> None:
    """Close what a worker has open for a run."""
    seat = _seats.pop((token, dask_worker.address), None)
    if seat is not None:
        seat.stop()


def run_gang(
    run: GangRunOf, members: Sequence[Member], steps: Sequence[GangStep], *blocks: Any
) -> Outcome:
    """The task of a member: makes some steps.

    It leaves the worker's pool of threads, so that tasks of two gangs never wait for each other's
    threads, whatever order they come in.

    Args:
        run: which run it is.
        members: of the gang.
        steps: what to do.
        blocks: what devices are fed that lay on workers, one after another.
    """
    from distributed import get_worker, secede

    seat = _seats[run.epoch.token, get_worker().address]
    secede()
    left = iter(blocks)
    steps = [step.with_blocks(left) for step in steps]
    with at_work(run.epoch) as replicas, one_kernel_thread():
        return seat.run(replicas, members, run, steps)
