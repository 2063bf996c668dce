"""A step of a gang, as one of its members makes it: the parts of its step runner."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from dpexec.engine.cluster.gang_messages import GangStep
from dpexec.engine.cluster.messages import Noted
from dpexec.engine.cluster.worker.gang_tasks import BoundPlan
from dpexec.engine.cluster.worker.recording import noted_on_worker
from dpexec.engine.cluster.worker.version_store import VersionStore
from dpexec.engine.cluster.worker.versions import Versions
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.exchange.side_by_side import Phase, side_by_side
from dpexec.engine.run.parts import Tasks
from dpexec.engine.run.step_runner import StepRunner
from dpexec.engine.trace.recorder import Notes, OpenNotes, Steps

if TYPE_CHECKING:
    from dpexec.engine.cluster.worker.worker import WorkerReplicas

__all__ = ["make_step"]


def make_step(
    bound: BoundPlan,
    replicas: WorkerReplicas,
    step: GangStep,
    pool: ThreadPoolExecutor | None,
    last: bool,
) -> tuple[dict[int, dict[str, Any]], Noted | None]:
    """Make a step of the replicas of this member.

    Args:
        bound: the plan.
        replicas: of the worker.
        step: what is made.
        pool: threads that help.
        last: whether its fetches are wanted.

    Returns:
        The fetches by device and name, and what was recorded.
    """
    bound.step, bound.recorded = step.number, step.recorded
    mine = bound.group.members[bound.group.rank].devices
    store = VersionStore({device: replicas.stores[device] for device in mine}, step.number)
    exchange = _GangExchange(bound, replicas.mirrors)
    runner = StepRunner(store, _SideBySide(bound, pool, last), replicas.launch, exchange)
    noting = _Noting(bound)
    recorders = (noting,) if step.recorded else ()
    given: Any = step  # it has the fields of Feeds that a store looks at
    shards: Any = step.shards  # by device, of this member's ones
    fetched = runner.step(bound.binding, given, lambda: shards, True, recorders)
    return {device: fetched[device] for device in mine if last}, noting.noted


class _SideBySide:
    """The order of tasks on a member: its replicas at the same time, between collectives of all.

    Args:
        bound: the plan.
        pool: threads that help.
        fetches: whether fetches are wanted.
    """

    def __init__(self, bound: BoundPlan, pool: ThreadPoolExecutor | None, fetches: bool) -> None:
        self._bound, self._pool, self._fetches = bound, pool, fetches

    def run(self, tasks: Tasks) -> list[Any]:
        """Run the member's tasks, see :meth:`Order.run`."""
        self._run(self._bound.before, tasks)
        tasks.begin_updates()
        self._run(self._bound.after, tasks)
        return tasks.fetch() if self._fetches else []

    def _run(self, parts: Sequence[Sequence[Phase]], tasks: Tasks) -> None:
        def run(numbers: Sequence[int]) -> None:
            for number in numbers:
                tasks.run(number)

        for part in parts:
            for phase in part:
                side_by_side(run, phase, self._pool)
            self._bound.finish()


class _GangExchange:
    """Values meet in the plan's collectives, whose calls know the gang.

    Args:
        bound: the plan.
        mirrors: of replicas on other workers, what this one keeps for them.
    """

    def __init__(self, bound: BoundPlan, mirrors: Mapping[int, Versions]) -> None:
        self._bound, self._mirrors = bound, mirrors

    sums = None  # the calls of tasks add up

    def step(self) -> AbstractContextManager[None]:
        """Around a step comes nothing: who fails in one leaves the gang."""
        return contextlib.nullcontext()

    def barrier(self) -> None:
        """Wait for all members, unless a collective does.

        Only then has every member made the step before. Until then, one that is a step behind
        needs others to know the values of the step before that.
        """
        if self._bound.waits:
            self._bound.group.barrier(self._bound.step)

    def mirror(self, envs: Sequence[Env]) -> None:
        """Give the member that mirrors them what only replicas of this one have."""
        self._bound.mirroring.exchange(self._bound.step, envs, self._mirrors)


class _Noting:
    """Takes what a recorded step has noted on this worker.

    Args:
        bound: the plan.

    Attributes:
        noted: that; None: the step is not over, or not recorded.
    """

    def __init__(self, bound: BoundPlan) -> None:
        self._bound = bound
        self.noted: Noted | None = None

    def keep(self, notes: Notes) -> None:
        """See :meth:`Keeper.keep`."""
        recording = self._bound.binding.recording
        recording.note_moved(self._bound.group.moved)
        self.noted = noted_on_worker(recording)

    def follow(self, notes: OpenNotes) -> Steps:
        """See :meth:`Keeper.follow`: only whole steps of code note like that."""
        raise RuntimeError("a step of a gang runs task by task")
