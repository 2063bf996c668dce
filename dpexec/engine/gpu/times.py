"""Times of GPU work: times of events on the host's clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dpexec.engine.compile.bindings.recording import Recording
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.places import CUDAPlace, array_module
from dpexec.engine.gpu.streams import Lane, Streams
from dpexec.engine.graph.ssa import OpNode

__all__ = ["DeviceTimes"]


@dataclass
class _Task:
    number: int
    lane: Lane
    start: Any
    ends: list[Any] = field(default_factory=list)


class DeviceTimes:
    """The times of one recorded step.

    The clocks are synchronised once per GPU and step: the host waits for an event and reads its
    own clock. Times of different GPUs agree to some tens of microseconds.

    Args:
        streams: streams of the replicas.
        places: places of the replicas.
    """

    def __init__(self, streams: Streams, places: Sequence[Any]) -> None:
        self._streams = streams
        self._tasks: list[_Task] = []
        self._task_of: dict[OpNode, _Task] = {}
        self._gpus: dict[int, tuple[Any, int, Any]] = {}
        for place in places:
            if isinstance(place, CUDAPlace) and place.device_id not in self._gpus:
                event = streams.record(("exchange", place.device_id), timed=True)
                event.synchronize()
                elapsed = array_module(place).cuda.get_elapsed_time
                self._gpus[place.device_id] = event, time.perf_counter_ns(), elapsed

    def begin(self, task: Task, lane: Lane) -> None:
        """Record the begin of a task on a stream."""
        begun = _Task(task.id, lane, self._streams.record(lane, timed=True))
        self._tasks.append(begun)
        self._task_of.update(dict.fromkeys(task.nodes, begun))

    def end_step(self, node: OpNode) -> None:
        """Record that all work of a node was enqueued."""
        task = self._task_of.get(node)
        if task is not None:
            task.ends.append(self._streams.record(task.lane, timed=True))

    def tell(self, recording: Recording) -> None:
        """Add the times to a recording; all work on the streams must be complete.

        Args:
            recording: the recording of the step.
        """
        for task in self._tasks:
            if not task.ends:
                continue
            gpu = self._streams.place(task.lane).device_id
            start, *ends = (self._on_host(gpu, event) for event in (task.start, *task.ends))
            recording.correct(task.number, start, ends, self._streams[task.lane].ptr)

    def _on_host(self, gpu: int, event: Any) -> int:
        first, begin, elapsed = self._gpus[gpu]
        return begin + round(elapsed(first, event) * 1e6)
