"""The streams that the tasks of a plan use, and the events that they wait for."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.places import CUDAPlace, Place
from dpexec.engine.gpu.streams import Lane

__all__ = ["StreamSchedule"]


@dataclass(frozen=True)
class StreamSchedule:
    """The streams and events of a plan's tasks, by the number of the task.

    Args:
        lanes: per task, the streams that it enqueues on; none for a task on the host.
        waits: per task, the tasks on other streams that it waits for.
        signals: tasks whose end others wait for.
    """

    lanes: list[tuple[Lane, ...]]
    waits: list[tuple[int, ...]]
    signals: frozenset[int]

    @classmethod
    def of(cls, plan: Plan) -> StreamSchedule:
        """The schedule of a plan."""
        places = plan.graph.places
        lanes = [_lanes(task, places) for task in plan.tasks]
        waits = [
            tuple(n for n in task.after if set(lanes[n]) - set(lanes[task.id]))
            for task in plan.tasks
        ]
        waits = [found if lanes[number] else () for number, found in enumerate(waits)]
        return cls(lanes, waits, frozenset(n for found in waits for n in found))

    def describe(self, plan: Plan) -> str:
        """A text with one line per task: its streams and the tasks that it waits for.

        Args:
            plan: the plan of the tasks.
        """
        lines = []
        for task, lanes, waits in zip(plan.tasks, self.lanes, self.waits, strict=True):
            where = ", ".join(f"{kind} {number}" for kind, number in lanes) or "host"
            after = ", ".join(plan.tasks[number].key[0] for number in waits) or "-"
            lines.append(f"{task.id:3d} {task.key[0]:32s} on {where}, waits for {after}")
        return "\n".join(lines)


def _lanes(task: Task, places: Sequence[Place]) -> tuple[Lane, ...]:
    """The streams of a task: its replica's stream, or one per GPU for a collective."""
    if not task.is_collective:
        assert task.device is not None
        on_gpu = isinstance(places[task.device], CUDAPlace)
        return (("compute", task.device),) if on_gpu else ()
    replicas = {var.device: None for n in task.nodes for var in (*n.outputs, *n.inputs)}
    found = (places[replica] for replica in replicas)
    gpus = dict.fromkeys(place.device_id for place in found if isinstance(place, CUDAPlace))
    return tuple(("exchange", gpu) for gpu in gpus)
