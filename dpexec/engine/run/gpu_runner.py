"""Steps of a plan with replicas on GPUs: tasks enqueue, and only a fetch waits."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.binding import Binding
from dpexec.engine.compile.plan import Plan
from dpexec.engine.compile.steps import Env, Shard, Step, overwrites, run_steps
from dpexec.engine.core.copies import value_on
from dpexec.engine.core.places import CUDAPlace
from dpexec.engine.core.ranges import Check, looking_later
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.gpu import nccl
from dpexec.engine.gpu.checks import Checks
from dpexec.engine.gpu.copies import to_host
from dpexec.engine.gpu.graphs import GraphPiece, Pieces, pieces_of
from dpexec.engine.gpu.schedule import StreamSchedule
from dpexec.engine.gpu.streams import Streams
from dpexec.engine.gpu.times import DeviceTimes
from dpexec.engine.graph.ssa import VarNode
from dpexec.engine.run.fetch import Later, collect
from dpexec.engine.run.local_runner import LocalRunner
from dpexec.engine.trace import live

__all__ = ["GpuRunner"]


class GpuRunner(LocalRunner):
    """Runs plans whose devices are GPUs, or GPUs and the host.

    CuPy's memory pool gives freed memory to the next one who allocates on the same stream, without
    a look at other streams. So arrays that two streams use are held until the streams have waited
    for each other at the end of the step. Feeds are held until the end of the next step: the
    stream that takes them need not wait for the present one.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._streams = Streams(self._replicas.places)
        self._schedules: weakref.WeakKeyDictionary[Plan, StreamSchedule]
        self._schedules = weakref.WeakKeyDictionary()
        self._with_nccl = nccl.is_chosen(self._replicas.places)
        self._exchanging: weakref.WeakKeyDictionary[Binding, Binding]
        self._exchanging = weakref.WeakKeyDictionary()
        self._pieces: weakref.WeakKeyDictionary[Binding, dict[int, Pieces]]
        self._pieces = weakref.WeakKeyDictionary()
        self._checks = Checks()
        self._times: DeviceTimes | None = None
        self._ends: dict[int, list[Any]] = {}
        self._shared: list[Any] = []
        self._late: list[Any] = []
        self._late_before: list[Any] = []
        self._end: Any = None
        self._end_before: Any = None

    def __del__(self) -> None:
        end = getattr(self, "_end", None)
        if end is not None and not sys.is_finalizing():
            self._streams.wait("feed", end)  # who gets the memory of the feeds comes behind that

    def ready(self, binding: Binding, feeds: Feeds) -> Binding:
        """The same binding, with NCCL between the GPUs if it is chosen."""
        if not self._with_nccl:
            return binding
        if binding not in self._exchanging:
            self._exchanging[binding] = nccl.exchanging(binding)
        return self._exchanging[binding]

    def _run_tasks(
        self, binding: Binding, feeds: Feeds, shards: Sequence[Shard], merged: bool
    ) -> list[Any]:
        if self._recording is not None:
            self._times = DeviceTimes(self._streams, self._replicas.places)
        try:
            results = super()._run_tasks(binding, feeds, shards, merged)
            if self._recording is not None and self._times is not None:
                self._streams.synchronize("compute", "exchange")
                self._times.tell(self._recording)
        except BaseException:
            self._streams.synchronize("compute", "exchange", "feed")
            raise
        finally:
            self._ends.clear()
            self._checks, self._times = Checks(), None
        self._release()
        return results

    def _release(self) -> None:
        """Let go what streams shared in this step, which have waited for each other."""
        self._shared.clear()
        if self._end_before is not None:
            self._streams.wait("feed", self._end_before)
        self._late_before, self._late, self._end_before = self._late, [], self._end

    def _schedule_of(self, plan: Plan) -> StreamSchedule:
        if plan not in self._schedules:
            self._schedules[plan] = StreamSchedule.of(plan)
        return self._schedules[plan]

    # ---- feeds

    def _placed(self, plan: Plan, device: int, values: dict[str, Any]) -> dict[str, Any]:
        place = plan.graph.places[device]
        if not isinstance(place, CUDAPlace) or not values:
            return values
        lane = "feed", place.device_id
        with self._streams.current([lane]):
            made = {name: value_on(place, value) for name, value in values.items()}
        self._streams["compute", device].wait_event(self._streams.record(lane))
        self._late.extend(made.values())
        return made

    # ---- tasks

    def _run_task(self, plan: Plan, number: int) -> None:
        schedule, task = self._schedule_of(plan), plan.tasks[number]
        lanes = schedule.lanes[number]
        for before in schedule.waits[number]:
            for end in self._ends[before]:
                for lane in lanes:
                    self._streams[lane].wait_event(end)
        if task.is_collective:
            self._hold([v for node in task.nodes for v in node.inputs])
        if self._times is not None and lanes:
            self._times.begin(task, lanes[0])
        with self._streams.current(lanes), self._streams.named(task.key[0]):
            super()._run_task(plan, number)
        if task.is_collective:
            self._hold([v for node in task.nodes for v in node.outputs])
        if number in schedule.signals:
            self._ends[number] = [self._streams.record(lane) for lane in lanes]

    def _run_steps(self, steps: Sequence[Step], envs: Sequence[Env]) -> None:
        assert self.binding is not None
        device, plan = steps[0].node.device, self.binding.plan
        if not plan.captured or self._recording is not None or device is None:
            self._run_one_by_one(steps, envs)
            return
        known = self._pieces.setdefault(self.binding, {})
        if id(steps) not in known:
            known[id(steps)] = pieces_of(plan, device, steps, self._begin_check)
        usual = functools.partial(self._run_one_by_one, envs=envs)
        fixed: dict[str, Any] = {}
        for piece in known[id(steps)]:
            if isinstance(piece, GraphPiece):
                if piece.updates:
                    self._checks.look()
                piece.run(envs[device], usual, fixed)
            else:
                self._run_one_by_one(piece, envs)

    def _run_one_by_one(self, steps: Sequence[Step], envs: Sequence[Env]) -> None:
        for step in steps:
            node, inputs = step.node, Env()
            if node.op is not None and node.op.definition.checks_values:
                env = envs[node.device or 0]
                inputs.update((name, env.find(name)) for name in node.op.input_arg_names)
            if node.op is not None and overwrites(node.op):
                self._checks.look()
            with looking_later() as checks:
                run_steps([step], envs)
            for check in checks:
                self._begin_check(check, step, inputs)
            if self._times is not None:
                self._times.end_step(node)

    def _begin_check(self, check: Check, step: Step, inputs: Env) -> None:
        place = self._replicas.places[step.node.device or 0]
        assert isinstance(place, CUDAPlace)
        self._checks.begin(check, place, step, inputs)

    def _hold(self, variables: Sequence[VarNode]) -> None:
        """Keep the values of variables that a collective reads or writes."""
        found = (self.envs[v.device].get(v.name) for v in variables if v.kind == "var")
        self._shared.extend(value for value in found if value is not None)

    # ---- results

    def _collect(self, plan: Plan, merged: bool) -> list[Any]:
        self._end = self._streams.join(["compute", "exchange"])
        self._checks.look()
        copies = [self._on_host(device, env, plan.fetch) for device, env in enumerate(self.envs)]
        envs = [{name: value for name, (value, _) in env.items()} for env in copies]
        events = [done for env in copies for _, done in env.values() if done is not None]

        def wait() -> list[Any]:
            for done in events:
                done.synchronize()
            return collect(envs, plan.fetch, plan.active, merged)

        found = {name: value for env in envs for name, value in env.items()}
        arrays = all(isinstance(value, np.ndarray) for value in found.values())
        if not (events and arrays and merged) or self._recording is not None or live.watchers():
            return wait()
        self._end = self._streams.join(["compute", "exchange"])  # nobody overtakes the copies
        results = functools.cache(wait)

        def later(position: int) -> Later:
            return Later(lambda: results()[position])

        return [later(i) if name in found else None for i, name in enumerate(plan.fetch)]

    def _on_host(self, device: int, env: Env, names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
        """Values on the host, and the events after which they are complete there."""
        place = self._replicas.places[device]
        found = {name: env[name] for name in names if name in env}
        if not isinstance(place, CUDAPlace):
            return {name: (value, None) for name, value in found.items()}
        with self._streams.current([("compute", device)]):
            return {name: to_host(place, value) for name, value in found.items()}

    def _copy(self, device: int, value: Any) -> Any:
        if not isinstance(self._replicas.places[device], CUDAPlace):
            return value.copy()
        self._late.append(value)
        with self._streams.current([("compute", device)]):
            return value.copy()
