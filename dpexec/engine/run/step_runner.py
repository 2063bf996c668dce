"""Runs the steps of a program on the devices of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.bindings.recording import Recording
from dpexec.engine.compile.regions.env import Env, Shard
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.run.parts import Agreement, Exchange, Launch, Order, Store
from dpexec.engine.threads.interrupts import InterruptGate

if TYPE_CHECKING:
    from dpexec.engine.run.whole_code import Ready, WholeCode
    from dpexec.engine.trace.live import Keeper

__all__ = ["StepRunner"]


class StepRunner:
    """Runs steps: feed, tasks, barrier, update, fetch, commit.

    What differs from one way of running to another is in its parts
    (:func:`dpexec.engine.run.choice.make_runner` chooses them).

    Args:
        store: where variables lie.
        order: which thread runs which task next.
        launch: how kernels start.
        exchange: how values are combined with other processes; None: all replicas are here.
        agreement: what is settled before steps; None: nothing.
        code: runs steps that are machine code as a whole; None: tasks run one by one.

    Attributes:
        envs: the values of the latest step, per device; none after they were dropped.
        binding: the binding of the latest step.
        begun: the recording of a step that runs task by task, until it ends; also if it failed.
        store, order, launch, exchange, agreement, code: as given.
    """

    def __init__(
        self,
        store: Store,
        order: Order,
        launch: Launch,
        exchange: Exchange | None = None,
        agreement: Agreement | None = None,
        code: WholeCode | None = None,
    ) -> None:
        self.store, self.order, self.launch, self.exchange = store, order, launch, exchange
        self.agreement, self.code = agreement, code
        self._in_code = False
        self.envs: list[Env] = []
        self.binding: Binding | None = None
        self.begun: Recording | None = None

    def step(
        self,
        binding: Binding,
        feeds: Feeds,
        shards: Callable[[], list[Shard]],
        merged: bool,
        recorders: tuple[Keeper, ...] = (),
    ) -> list[Any]:
        """Run a step.

        Args:
            binding: the binding to run.
            feeds: the feeds of the devices.
            shards: computes every device's share of the run.
            merged: how to return fetches, see :func:`collect`.
            recorders: they record when tasks and operators ran.

        Returns:
            The fetches.

        Raises:
            EnforceNotMet: something is wrong; no variable has changed.
            GangError: another process failed, is gone, or does not answer.
        """
        if self.exchange is None:
            return self._step(binding, feeds, shards, merged, recorders)
        with self.exchange.step():
            return self._step(binding, feeds, shards, merged, recorders)

    def _step(
        self,
        binding: Binding,
        feeds: Feeds,
        shards: Callable[[], list[Shard]],
        merged: bool,
        recorders: tuple[Keeper, ...],
    ) -> list[Any]:
        self.binding = binding
        binding.runs += 1
        if self.code is not None:
            found = self.code.run(binding, feeds, shards, merged, recorders)
            self._in_code = found is not None
            if found is not None:
                self.envs, results = found
                return results
        if not recorders:
            return self._run_tasks(binding, feeds, shards(), merged, None)
        self.begun = recording = binding.recording
        recording.begin()
        results = self._run_tasks(binding, feeds, shards(), merged, recording)
        if self.exchange is not None and self.exchange.sums is not None:
            recording.note_moved(self.exchange.sums.moved)
        recording.end(recorders)
        self.begun = None
        return results

    def again(self, binding: Binding, ready: Ready, feeds: Feeds, merged: bool) -> list[Any] | None:
        """Run a step of code that ran before; see :meth:`step` and :meth:`WholeCode.again`."""
        if self.code is None:
            return None
        self.binding = binding
        binding.runs += 1
        return self.code.again(binding, ready, feeds, merged)

    def _run_tasks(
        self,
        binding: Binding,
        feeds: Feeds,
        shards: Sequence[Shard],
        merged: bool,
        recording: Recording | None,
    ) -> list[Any]:
        plan, store, launch = binding.plan, self.store, self.launch
        _ = binding.steps  # bound here, before tasks of several threads ask for it
        with launch.step(recording):
            self.envs = envs = store.begin(plan, feeds, shards, launch)
            if recording is not None:
                recording.begin_tasks()
            tasks = _Tasks(self, binding, envs, merged, recording)
            with tasks.gate:
                try:
                    results = self.order.run(tasks)
                except BaseException:
                    self.envs = []
                    raise
                tasks.begin_updates()
                if self.exchange is not None:
                    self.exchange.mirror(lambda device, name: envs[device].get(name))
                store.commit(plan, feeds, envs, launch)
        return results

    @property
    def joined_bytes(self) -> int | None:
        """Bytes of sparse values that the latest step added up; None if unknown.

        With several processes it is unknown which part of a sum belongs to this one.
        """
        if self.binding is None or self.exchange is not None:
            return None
        joined = self.code.joined if self.code is not None and self._in_code else ()
        in_code = sum(int(each.number[0]) * each.row_bytes for each in joined)
        return in_code + sum(sum(env.joined.values()) for env in self.envs)


class _Tasks:
    """The tasks of a step that runs: see :class:`dpexec.engine.run.parts.Tasks`.

    Args:
        runner: the runner of the step.
        binding: the binding that runs.
        envs: the values, per device.
        merged: how to return fetches.
        recording: notes when tasks run; None: nothing is recorded.
    """

    def __init__(
        self,
        runner: StepRunner,
        binding: Binding,
        envs: Sequence[Env],
        merged: bool,
        recording: Recording | None,
    ) -> None:
        self.plan = binding.plan
        self.gate = InterruptGate()
        self._runner, self._binding, self._envs = runner, binding, envs
        self._merged, self._recording = merged, recording
        self._updates = False
        self._beginning = threading.Lock()
        for env in envs:
            env.go_on = self.gate.begin_task

    def run(self, number: int) -> None:
        """Run a task; before the first one that overwrites variables comes the barrier."""
        self.gate.begin_task()
        if number in self.plan.updates:
            self.begin_updates()
        self._runner.launch.run(self._binding, number, self._envs, self._recording)

    def begin_updates(self) -> None:
        """Wait until no process can fail any more; from then on variables may change.

        Raises:
            RuntimeError: the run was interrupted before.
            GangError: another process failed.
        """
        self.gate.begin_updates()
        with self._beginning:
            if not self._updates:
                if self._runner.exchange is not None:
                    self._runner.exchange.barrier()
                self._runner.store.overwrite(self.plan, self._envs)
                self._updates = True

    def fetch(self) -> list[Any]:
        """The fetches; all tasks have run."""
        start = time.perf_counter_ns()
        launch, recording = self._runner.launch, self._recording
        results = launch.fetch(self.plan, self._envs, self._merged, recording)
        if recording is not None:
            recording.note("Fetch", "fetch", start)
        return results
