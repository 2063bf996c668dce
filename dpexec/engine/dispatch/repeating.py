"""Steps that differ from the latest one in the numbers that are fed, and in nothing else."""

from __future__ import annotations

import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from dask.callbacks import Callback

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.kept_offsets import KeptOffsets
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.core import flags
from dpexec.engine.feeds.splitter import Cuts, Splitter
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.prune import deleted_for_good
from dpexec.engine.run.fetch import FetchedOffsets
from dpexec.engine.run.step_runner import StepRunner
from dpexec.engine.run.whole_code import Ready
from dpexec.engine.threads.kernel_threads import one_kernel_thread
from dpexec.engine.trace.live import Observers

__all__ = ["Repeating"]


class _Latest(NamedTuple):
    """The latest step, and what it depended on."""

    cuts: Cuts
    fetch: list[str]
    merged: bool
    binding: Binding
    ready: Ready
    forms: int


class Repeating(ABC):
    """An engine's short way to such a step: what could differ is compared, nothing is looked up.

    Only steps of code on processors of this process come here (:attr:`_repeats`). What is to be
    recorded, checked for NaN or refused goes the long way, by ``Engine.run``.
    """

    graph: SSAGraph
    keeps_sequences: bool
    observers: Observers
    offsets: FetchedOffsets
    plan: Plan | None
    program: Program
    replicas: Replicas
    runner: StepRunner
    steps_per_run: int
    _busy: threading.Lock
    _dry_run: bool
    _on_cluster: bool
    _runs_per_drop: int
    _latest: _Latest | None = None

    @property
    @abstractmethod
    def split(self) -> Splitter:
        """The splitter of the program's feeds."""

    @property
    @abstractmethod
    def _kept_offsets(self) -> KeptOffsets:
        """The sequences of persistable variables."""

    @functools.cached_property
    def _repeats(self) -> bool:
        """Whether steps of the program may come here."""
        once = self.steps_per_run == self._runs_per_drop == 1 and not self._dry_run
        alone = not self._on_cluster and self.runner.agreement is None and not self.graph.bodies
        written = self._kept_offsets.written
        kept = self.keeps_sequences or self._kept_offsets.names or self.offsets.hold(written)
        return once and alone and not kept and not self._deleted

    @functools.cached_property
    def _deleted(self) -> list[str]:
        """The variables that a run takes from the scope."""
        return deleted_for_good(self.program.global_block())

    def again(
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
        last = self._latest
        if last is None or fetch != last.fetch or merged != last.merged or program._loaders:
            return None
        if not last.cuts.fit(feed):
            return None
        with self._busy:
            if not self._is_current(last):
                return None
            self.plan = last.binding.plan
            with one_kernel_thread():
                return self.runner.again(last.binding, last.ready, last.cuts.of(feed), merged)

    def _is_current(self, last: _Latest) -> bool:
        """Whether nothing else has changed since a step."""
        observers, plan, replicas = self.observers, last.binding.plan, self.replicas
        return (
            last.forms == replicas.forms
            and observers.counter is None
            and not observers.recorders
            and last.ready.code.notes is None
            and not Callback.active
            and bool(flags.current["FLAGS_check_nan_inf"]) == plan.key.checked
            and replicas.in_sync(plan)
        )

    def _remember(self, binding: Binding, feeds: Feeds, fetch: Sequence[str], merged: bool) -> None:
        """Note what the latest step depended on, if there may be others like it."""
        code, cuts = self.runner.code, self.split.latest
        ready = None if code is None else code.ready
        self._latest = None
        if ready is None or cuts is None or self.offsets.hold(fetch):
            return
        if cuts.facts["shapes"] is feeds.shapes:  # it is this step's, and no other thread's
            forms = self.replicas.forms
            self._latest = _Latest(cuts, list(fetch), merged, binding, ready, forms)
