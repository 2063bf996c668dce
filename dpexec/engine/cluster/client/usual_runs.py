"""Runs like the one before: one step of a gang, of arrays of the same shapes, in few calls.

What such runs have in common is kept. If anything is different, or goes wrong, a run goes the way
of all others (:mod:`.runner`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpexec.engine.cluster.client.binding_registry import News
from dpexec.engine.cluster.client.gang_runner import GangRunner
from dpexec.engine.cluster.client.open_run import OpenRun, raising
from dpexec.engine.cluster.client.step_outcome import StepOutcome, StepRequest
from dpexec.engine.run.fetch import collect
from dpexec.engine.run.shards import new_entropy
from dpexec.engine.threads.interrupts import InterruptGate

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.binding_registry import BindingRegistry
    from dpexec.engine.cluster.client.gang_orders import KnownForm
    from dpexec.engine.cluster.client.recovery import Recovery
    from dpexec.engine.cluster.client.replica_group import ReplicaGroup
    from dpexec.engine.cluster.client.step_outcome import BoundBatch
    from dpexec.engine.cluster.client.task_runner import TaskRunner
    from dpexec.engine.cluster.client.variables import Variables
    from dpexec.engine.cluster.messages import BindingKey
    from dpexec.engine.compile.bindings.binding import Binding
    from dpexec.engine.compile.regions.env import Shard
    from dpexec.engine.feeds.splitting import Feeds
    from dpexec.engine.trace.live import Observers

__all__ = ["UsualRuns"]


class _Like(NamedTuple):
    """What runs share with one that was learned; it holds no feeds.

    Args:
        binding: the binding of its step.
        key: the name of the binding on the workers.
        samples: number of samples per device.
        shards: the devices' parts of the run.
    """

    binding: Binding
    key: BindingKey
    samples: list[int]
    shards: Sequence[Shard]

    def request(self, feeds: Feeds, run: int, entropy: int) -> StepRequest:
        """A step of another run.

        Args:
            feeds: the feeds of the devices.
            run: see :class:`Shard`.
            entropy: see :class:`Shard`.
        """
        shards = [replace(shard, run=run, entropy=entropy) for shard in self.shards]
        return StepRequest(self.binding, self.key, feeds, shards)


class UsualRuns:
    """Makes runs like one before.

    Args:
        gang: the members; what orders tasks makes no such runs.
        group: the replicas.
        recovery: counts steps.
        told: the bindings that members know.
        variables: the user's variables.
        observers: of steps.
        runs: the count of the program's runs.
    """

    def __init__(
        self,
        gang: GangRunner | TaskRunner,
        group: ReplicaGroup,
        recovery: Recovery,
        told: BindingRegistry,
        variables: Variables,
        observers: Observers,
        runs: Any,
    ) -> None:
        self._gang, self._group, self._recovery, self._told = gang, group, recovery, told
        self._variables, self._observers, self._runs = variables, observers, runs
        self._like: _Like | None = None
        self._form: KnownForm | None = None
        self.fetched: list[dict[str, Any]] = []
        """The fetched values of the latest run, per device."""
        self.failed: OpenRun | None = None
        """A run that did not go well: what was ordered, and how that ended."""

    def learn(self, run: OpenRun) -> None:
        """Remember a run; later ones may be like it.

        Args:
            run: the run, which may not have ended well.
        """
        step, like = run.wanted[-1], self._like
        if len(run.wanted) > 1 or run.outcome is None:
            return
        if like is None or like[:3] != (step.binding, step.key, step.feeds.samples):
            self._like = _Like(step.binding, step.key, step.feeds.samples, step.shards)
            self._form = None

    def of(self, steps: Sequence[BoundBatch], settle: Callable[[], None]) -> list[Any] | None:
        """Make a run if it is like the one that was learned.

        Args:
            steps: its steps.
            settle: settles the run if it did not go well.

        Returns:
            The fetches. None if it did not go well, see :attr:`failed`, or if nothing was ordered,
            as something is not as it was.
        """
        like, gang, (binding, feeds) = self._like, self._gang, steps[0]
        if like is None or binding is not like.binding or len(steps) > 1:
            return None  # else names, shapes and types of what is fed are the same
        if feeds.samples != like.samples or not _is_plain(feeds):
            return None
        if self._observers.recorders or self._recovery.lost or not isinstance(gang, GangRunner):
            return None
        if not self._recovery.look(self._variables.set_anew):
            return None
        if not self._told.knows(binding, like.key.number) or not gang.may_repeat:
            return None
        if not self._variables.try_to_take((binding,)):
            return None
        if self._form is None or not gang.knows(self._form):
            self._form = gang.form_of(like.request(feeds, 0, 0))
        return None if self._form is None else self._make(gang, like, self._form, feeds, settle)

    def _make(
        self,
        gang: GangRunner,
        like: _Like,
        form: KnownForm,
        feeds: Feeds,
        settle: Callable[[], None],
    ) -> list[Any] | None:
        recovery, counter = self._recovery, self._observers.counter
        with InterruptGate() as gate:
            gate.between_tasks = True
            if counter is not None:
                counter.begin(like.binding)
            run, entropy = self._runs.number, new_entropy()
            numbers = recovery.begin(1)
            recovery.settle = settle
            made = StepOutcome(0, [])
            ends: Callable[[], StepOutcome] | None = None
            orders = form.again(self._group.complete, numbers[0], run, entropy, feeds.values)
            try:
                made = gang.make(orders)
                if made.error is None:
                    self._group.keep(numbers[0])
                    recovery.end(numbers[0])
                else:
                    ends = partial(_given, made)
            except BaseException as failed:  # also an interrupt: ``settle`` meets it again
                ends = partial(raising, failed)
            self._runs.number += 1
            self._variables.defer_of(like.binding, feeds.persistable)
            if ends is not None:
                wanted = [like.request(feeds, run, entropy)]
                news = News((like.key,), (), frozenset(), ())
                self.failed = OpenRun(wanted, numbers, news, counter, ends, settle)
                return None
            recovery.settle, self.fetched = None, made.fetched
            plan = like.binding.plan
            results = collect(made.fetched, plan.fetch, plan.sources, True)
            if counter is not None:
                counter.end(feeds.samples, results)
        return results


def _given(made: StepOutcome) -> StepOutcome:
    return made


def _is_plain(feeds: Feeds) -> bool:
    """Whether only arrays of this process are fed."""
    for values in feeds.values:  # loops, as most steps come through here
        for value in values.values():
            if type(value) is not np.ndarray:
                return False
    return not feeds.rows
