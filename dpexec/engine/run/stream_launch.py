"""Steps of a plan with replicas on GPUs: tasks enqueue, and only a fetch waits."""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.bindings.recording import Recording
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.step import Step, overwrites, run_steps
from dpexec.engine.core.copies import value_on
from dpexec.engine.core.places import CUDAPlace, Place
from dpexec.engine.core.ranges import looking_later
from dpexec.engine.gpu.captured_tasks import CapturedTasks
from dpexec.engine.gpu.checks import Checks
from dpexec.engine.gpu.copies import to_host
from dpexec.engine.gpu.schedule import StreamSchedule
from dpexec.engine.gpu.streams import Streams
from dpexec.engine.gpu.times import DeviceTimes
from dpexec.engine.graph.ssa import VarNode
from dpexec.engine.run.fetch import Later, collect
from dpexec.engine.trace import live

__all__ = ["StreamLaunch"]


class StreamLaunch:
    """Enqueues tasks on the streams of GPUs; tasks of the host run at once.

    CuPy's memory pool reuses freed memory for the next allocation on the same stream, whatever
    other streams do. So arrays that two streams use are held until the streams have waited for each
    other at the end of the step. Feeds are held until the end of the next step: the stream that
    takes them need not wait for the present one.

    Args:
        places: of the devices.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._streams = Streams(places)
        self._schedules: weakref.WeakKeyDictionary[Plan, StreamSchedule]
        self._schedules = weakref.WeakKeyDictionary()
        self._captured = CapturedTasks()
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
            self._streams.wait("feed", end)  # the feeds' memory is not reused before the step ends

    @contextlib.contextmanager
    def step(self, recording: Recording | None) -> Iterator[None]:
        """Around a step, see :meth:`Launch.step`."""
        if recording is not None:
            self._times = DeviceTimes(self._streams, self._places)
        try:
            yield
            if recording is not None and self._times is not None:
                self._streams.synchronize("compute", "exchange")
                self._times.tell(recording)
        except BaseException:
            self._streams.synchronize("compute", "exchange", "feed")
            raise
        finally:
            self._ends.clear()
            self._checks, self._times = Checks(), None
        self._release()

    def _release(self) -> None:
        """Release the arrays that streams shared in this step, which has ended on all of them."""
        self._shared.clear()
        if self._end_before is not None:
            self._streams.wait("feed", self._end_before)
        self._late_before, self._late, self._end_before = self._late, [], self._end

    def _schedule_of(self, plan: Plan) -> StreamSchedule:
        if plan not in self._schedules:
            self._schedules[plan] = StreamSchedule.of(plan)
        return self._schedules[plan]

    # ---- feeds

    def feed(self, plan: Plan, device: int, values: dict[str, Any]) -> dict[str, Any]:
        """Start the copy of a device's feed."""
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

    def run(
        self, binding: Binding, number: int, envs: Sequence[Env], recording: Recording | None
    ) -> None:
        """Enqueue a task, see :meth:`Launch.run`."""
        plan = binding.plan
        schedule, task = self._schedule_of(plan), plan.tasks[number]
        lanes = schedule.lanes[number]
        for before in schedule.waits[number]:
            for end in self._ends[before]:
                for lane in lanes:
                    self._streams[lane].wait_event(end)
        if task.is_collective:
            self._hold(envs, [v for node in task.nodes for v in node.inputs])
        if self._times is not None and lanes:
            self._times.begin(task, lanes[0])
        with self._streams.current(lanes), self._streams.named(task.key[0]):
            if recording is not None:
                recording.run(number, envs, self._run_one_by_one)
            else:
                usual = functools.partial(self._run_one_by_one, envs=envs)
                self._captured.run(binding, number, envs, self._checks, usual)
        if task.is_collective:
            self._hold(envs, [v for node in task.nodes for v in node.outputs])
        if number in schedule.signals:
            self._ends[number] = [self._streams.record(lane) for lane in lanes]

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
                place = self._places[node.device or 0]
                assert isinstance(place, CUDAPlace)
                self._checks.begin(check, place, step, inputs)
            if self._times is not None:
                self._times.end_step(node)

    def _hold(self, envs: Sequence[Env], variables: Sequence[VarNode]) -> None:
        """Keep the values of variables that a collective reads or writes."""
        found = (envs[v.device].get(v.name) for v in variables if v.kind == "var")
        self._shared.extend(value for value in found if value is not None)

    # ---- results

    def fetch(
        self, plan: Plan, envs: Sequence[Env], merged: bool, recording: Recording | None
    ) -> list[Any]:
        """The fetches on the host, or :class:`Later`, see :meth:`Launch.fetch`."""
        self._end = self._streams.join(["compute", "exchange"])
        self._checks.look()
        copies = [self._on_host(device, env, plan.fetch) for device, env in enumerate(envs)]
        on_host = [{name: value for name, (value, _) in env.items()} for env in copies]
        events = [done for env in copies for _, done in env.values() if done is not None]

        def wait() -> list[Any]:
            for done in events:
                done.synchronize()
            return collect(on_host, plan.fetch, plan.sources, merged)

        found = {name: value for env in on_host for name, value in env.items()}
        arrays = all(isinstance(value, np.ndarray) for value in found.values())
        if not (events and arrays and merged) or recording is not None or live.watchers():
            return wait()
        self._end = self._streams.join(["compute", "exchange"])  # later tasks wait for the copies
        results = functools.cache(wait)

        def later(position: int) -> Later:
            return Later(lambda: results()[position])

        return [later(i) if name in found else None for i, name in enumerate(plan.fetch)]

    def _on_host(self, device: int, env: Env, names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
        """Values on the host, and the events after which they are complete there."""
        place = self._places[device]
        found = {name: env[name] for name in names if name in env}
        if not isinstance(place, CUDAPlace):
            return {name: (value, None) for name, value in found.items()}
        with self._streams.current([("compute", device)]):
            return {name: to_host(place, value) for name, value in found.items()}

    def copy(self, device: int, value: Any) -> Any:
        """A copy of a value of a device, on its stream."""
        if not isinstance(self._places[device], CUDAPlace):
            return value.copy()
        self._late.append(value)
        with self._streams.current([("compute", device)]):
            return value.copy()
