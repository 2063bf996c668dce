"""Steps that differ from the latest one in the numbers that are fed, and in nothing else."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from dask.callbacks import Callback

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.core import flags
from dpexec.engine.feeds.splitter import Cuts
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.ir.program import Program
from dpexec.engine.run.fetch import FetchedOffsets
from dpexec.engine.run.step_runner import StepRunner
from dpexec.engine.run.whole_code import Ready
from dpexec.engine.threads.kernel_threads import one_kernel_thread
from dpexec.engine.trace.live import Observers

__all__ = ["RepeatedSteps"]


class Latest(NamedTuple):
    """The latest step, and what it depended on."""

    cuts: Cuts
    fetch: list[str]
    merged: bool
    binding: Binding
    ready: Ready
    forms: int


class RepeatedSteps:
    """The short way to such a step: what could differ is compared, nothing is looked up.

    It is for steps of code on processors of this process. What is to be recorded, checked for NaN
    or refused goes the long way, by ``Engine.run``.

    Args:
        runner: runs the steps.
        replicas: the persistable variables.
        observers: want to see steps, or to count them.
        offsets: which variables may hold sequences; steps that return some go the long way.
        busy: held while a step runs.

    Attributes:
        latest: the latest step; None: no step may run before another one is noted.
    """

    def __init__(
        self,
        runner: StepRunner,
        replicas: Replicas,
        observers: Observers,
        offsets: FetchedOffsets,
        busy: threading.Lock,
    ) -> None:
        self._runner, self._replicas, self._observers = runner, replicas, observers
        self._offsets, self._busy = offsets, busy
        self.latest: Latest | None = None

    def run(
        self, program: Program, feed: Any, fetch: Sequence[str], merged: bool
    ) -> list[Any] | None:
        """Run a step that differs from the latest one only in the fed numbers.

        Args:
            program: whose loaders may feed it.
            feed: what the user feeds.
            fetch: names of variables to return.
            merged: concatenate the devices' values.

        Returns:
            The results. None if it is no such step; nothing has changed then.
        """
        last = self.latest
        if last is None or fetch != last.fetch or merged != last.merged or program._loaders:
            return None
        if not last.cuts.fit(feed):
            return None
        with self._busy:
            if not self._is_current(last):
                return None
            with one_kernel_thread():
                return self._runner.again(last.binding, last.ready, last.cuts.of(feed), merged)

    def _is_current(self, last: Latest) -> bool:
        """Whether it still is the latest step, and nothing else has changed since."""
        observers, plan, replicas = self._observers, last.binding.plan, self._replicas
        return (
            last is self.latest
            and last.forms == replicas.forms
            and observers.counter is None
            and not observers.recorders
            and last.ready.code.notes is None
            and not Callback.active
            and bool(flags.current["FLAGS_check_nan_inf"]) == plan.key.checked
            and replicas.in_sync(plan)
        )

    def remember(
        self, cuts: Cuts | None, feeds: Feeds, binding: Binding, fetch: Sequence[str], merged: bool
    ) -> None:
        """Note what the latest step depended on, if there may be others like it.

        Args:
            cuts: how the latest feed was divided; None: others like it may be divided otherwise.
            feeds: the feeds of the step.
            binding: what ran.
            fetch: names of the variables that were returned.
            merged: whether the devices' values were concatenated.
        """
        code = self._runner.code
        ready = None if code is None else code.ready
        if ready is None or cuts is None or self._offsets.hold(fetch):
            return
        if cuts.facts["shapes"] is feeds.shapes:  # it is this step's, and no other thread's
            forms = self._replicas.forms
            self.latest = Latest(cuts, list(fetch), merged, binding, ready, forms)
