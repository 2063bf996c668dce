"""Recorded steps that failed: what had run until then, and what was running."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from dpexec.engine.compile.bindings.records import NoteLayout
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.graph.describe import task_key
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.trace.events import Allocation
from dpexec.engine.trace.processors import Samples, samples
from dpexec.engine.trace.recorder import Row

__all__ = ["FailedStep", "OpenTask", "failure_of"]

_NANO = 1e-9
_FAILED = "failed"


@dataclass(frozen=True, slots=True)
class OpenTask:
    """A task that had begun and not ended when its step failed.

    Args:
        task: the task.
        thread: the thread that ran it, as rows name it.
        node: the node that it was at; None if it was at its end.
        since: when that node began, in nanoseconds.
        until: when the task broke off.
    """

    task: Task
    thread: Any
    node: OpNode | None
    since: float
    until: float


class Done(Protocol):
    """What had run of a failed step."""

    @property
    def layout(self) -> NoteLayout:
        """The meaning of its notes."""

    def rows(self) -> Iterator[Row]:
        """The events."""

    def allocations(self) -> Iterator[Allocation]:
        """The memory that was taken and given back."""


@dataclass(eq=False, slots=True)
class FailedStep:
    """The notes of a step that failed; see :class:`dpexec.engine.trace.recorder.Notes`.

    Args:
        binding: what ran; None if the step failed before that was known.
        began: when it began, in nanoseconds, in a list.
        failure: the event of the failure.
        done: what had run; None: nothing, or that is not known here.
    """

    binding: Any
    began: list[float]
    failure: Row
    done: Done | None = None
    count: ClassVar[int] = 1

    @property
    def size(self) -> int:
        """Number of events, at most."""
        return 1 + (0 if self.done is None else self.done.layout.size)

    @property
    def processors(self) -> Samples:
        """For how long threads waited for processors."""
        return samples

    def record(self, row: int) -> FailedStep:
        """The record of the step; ``row`` is 0, as there is one step."""
        return self

    def tasks_ran(self, row: int) -> Iterator[tuple[Any, float, float]]:
        """Nothing: these are figures of steps that ended."""
        return iter(())

    def rows(self) -> Iterator[Row]:
        """The events; that of the failure is the last one."""
        if self.done is not None:
            yield from self.done.rows()
        yield self.failure

    def allocations(self) -> Iterator[Allocation]:
        """The memory that was taken and given back."""
        return iter(()) if self.done is None else self.done.allocations()


def failure_of(
    error: BaseException,
    facts: Mapping[str, Any],
    start: float,
    stop: float,
    open_tasks: Sequence[OpenTask] = (),
) -> Row:
    """The event of an error: of the operator that it names, else of the node that a task was at.

    Args:
        error: what was raised.
        facts: of the event.
        start: when the run began, in nanoseconds.
        stop: when it failed, in nanoseconds.
        open_tasks: tasks that had not ended; those of other threads were merely not done yet.
    """
    known = error if isinstance(error, EnforceNotMet) else EnforceNotMet()
    name, device, node, key = known.operator or _FAILED, known.device, known.node, _FAILED
    thread = threading.get_ident()
    its = [each for each in open_tasks if any(part.id == node for part in each.task.nodes)]
    at = next(iter(its or open_tasks), None)
    if at is not None:
        key, device, thread = task_key(at.task), at.task.device, at.thread
        start, stop = at.since, at.until
        if not its and at.node is not None:
            name, node = at.node.name, at.node.id
    times = min(start, stop) * _NANO, stop * _NANO
    return (name, "failure", device, key, *times, thread, dict(facts), node)
