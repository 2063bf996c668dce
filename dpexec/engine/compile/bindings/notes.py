"""Notes of steps of code: a row of numbers for each step, with as little Python as possible.

The values of a step push Python's data out of the processor's caches, so every line of Python in a
step is expensive. A step therefore only fills a row of an array made for many steps, and reads the
clock twice.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from dpexec.engine.compile.bindings.memory_use import Life
from dpexec.engine.compile.bindings.records import (
    Around,
    NoteLayout,
    Ran,
    StepRecord,
    TaskSpans,
    spans_of,
)
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.kernels import stamps
from dpexec.engine.kernels.stamps import HEAD
from dpexec.engine.trace.processors import Samples, samples

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.binding import Binding
    from dpexec.engine.compile.bindings.items import Joined
    from dpexec.engine.compile.bindings.records import NodeRows
    from dpexec.engine.compile.plans.partition import Task
    from dpexec.engine.kernels.thread_team import Schedule
    from dpexec.engine.trace.live import Keeper
    from dpexec.engine.trace.recorder import Steps

__all__ = ["CodeNotes"]

Moved = Mapping[int, Mapping[str, int]]
"""By number of a task, the bytes that it moved, by the way they took."""

Carried = Mapping[int, tuple[int, int]]
"""By number of a task, when a thread carried its values to other processes, in nanoseconds."""

_ROWS = 256
_WORDS = 1 << 17
"""The most rows, and the most numbers, of one array."""


class CodeNotes:
    """What some runs of a step of code noted.

    Args:
        binding: the binding that runs.
        layout: the meaning of the numbers.
        lives: gives the values of a step that take memory.
        schedule: of the step's code.
        parts: per item of the schedule, its task and nodes, see :class:`.code_step.CodeStep`.
        joined: sparse sums, whose size is known only after a run.
        idents: the threads that work together on a step.
        owners: by address of a word that the code waits for, the process that writes it.

    Attributes:
        count: how many runs have noted something so far.
        most: how many runs there is room for.
        began: when the step of each run began, in nanoseconds.
        ended: when it was over.
        recorders: for whom the next run will be noted; None: that has to be found out again.
    """

    __slots__ = (
        "_carried",
        "_idents",
        "_joined",
        "_kept",
        "_layout",
        "_lives",
        "_moved",
        "_owners",
        "_parts",
        "_rows",
        "_schedule",
        "_stamps",
        "began",
        "binding",
        "count",
        "ended",
        "most",
        "recorders",
        "size",
    )

    def __init__(
        self,
        binding: Binding,
        layout: NoteLayout,
        lives: Callable[[], list[Life]],
        schedule: Schedule,
        parts: Sequence[tuple[Task | None, list[NodeRows]]],
        joined: Sequence[Joined],
        idents: Sequence[int],
        owners: Mapping[int, Mapping[str, int]] = MappingProxyType({}),
    ) -> None:
        self._owners = owners
        self.binding, self.size = binding, layout.size
        self._layout, self._lives, self._idents = layout, lives, idents
        self._schedule, self._parts, self._joined = schedule, parts, joined
        width = max(schedule.width, 1)
        self.count, self.most = 0, max(1, min(_ROWS, _WORDS // width))
        self._stamps = np.empty((self.most, width), np.int64)
        self.recorders: tuple[Keeper, ...] | None = None
        self._kept: list[Steps] = []
        self._rows = np.empty((self.most, len(joined)), np.int64)
        self._moved: dict[int, Moved] = {}
        self._carried: dict[int, Carried] = {}
        self.began = array("q", [0]) * self.most  # keeps no objects
        self.ended = array("q", [0]) * self.most

    @property
    def processors(self) -> Samples:
        """For how long threads waited for processors."""
        return samples

    @property
    def address(self) -> int:
        """The address of the next run's row; later runs use the rows behind it."""
        return self._stamps.ctypes.data + self.count * self._stamps.strides[0]

    def follow(self, recorders: tuple[Keeper, ...]) -> None:
        """Let some recorders keep what the next runs note."""
        self.recorders = recorders
        self._kept = [recorder.follow(self) for recorder in recorders]

    def release(self) -> None:
        """Tell the recorders that no more runs come."""
        for steps in self._kept:
            steps.close()
        self.recorders, self._kept = None, []

    def add(
        self,
        began: int,
        ended: int,
        moved: Moved = MappingProxyType({}),
        carried: Carried = MappingProxyType({}),
    ) -> None:
        """A run has noted something, and its step is over.

        Args:
            began: when the step began, in nanoseconds.
            ended: when it ended.
            moved: bytes that collectives moved between processes, by number of the task.
            carried: when the leading thread carried values and sums between processes, by number
                of the task.
        """
        row = self.count
        if moved:
            self._moved[row] = moved
        if carried:
            self._carried[row] = carried
        self.began[row], self.ended[row] = began, ended
        if self._joined:
            self._rows[row] = [joined.number[0] for joined in self._joined]
        self.count = row + 1
        if ended >= samples.due:
            samples.take(ended)
        if row + 1 == self.most:
            self.release()

    def record(self, row: int) -> StepRecord:
        """What a step recorded.

        Args:
            row: the number of its run.
        """
        tasks = partial(self._tasks, row)
        ran = [when for _, when, _ in tasks()]
        start, stop = min(when[0] for when in ran), max(when[1] for when in ran)
        around: list[Around] = [
            ("Feed", "feed", self.began[row], start, self._idents[0], {}),
            ("Fetch", "fetch", stop, self.ended[row], self._idents[0], {}),
        ]
        moved: dict[int, dict[str, int]] = {
            joined.node.id: {"bytes": int(count) * joined.row_bytes}
            for joined, count in zip(self._joined, self._rows[row], strict=True)
        }
        for task, sizes in self._moved.get(row, {}).items():
            node = self._layout.plan.tasks[task].nodes[0].id
            moved[node] = {**moved.get(node, {}), **sizes, **self._awaited(row, task)}
        return StepRecord(self._layout, self._lives, tasks, (), around, moved=moved)

    def _awaited(self, row: int, number: int) -> dict[str, int]:
        """How long a task waited for the values of other processes, and for whom.

        Its first item puts the values of this process into shared memory; the next items begin when
        those of the others are there, too. The task waited for the process whose word came last.
        """
        if number in self._carried.get(row, {}):
            return {}
        noted = [
            times
            for (task, _), times in zip(self._parts, self._schedule.notes, strict=True)
            if task is not None and task.id == number
        ]
        (_, posted), *following = noted
        row_of = self._stamps[row]
        begun, lacked = min(((int(row_of[at + HEAD]), int(row_of[at + 1])) for at, _ in following))
        if not lacked:  # all words were there when a thread first looked
            return {}
        return {"awaited": max(0, begun - int(row_of[posted - 1])), **self._owners.get(lacked, {})}

    def tasks_ran(self, row: int) -> Iterator[tuple[Task, float, float]]:
        """When items of tasks ran, see :meth:`Notes.tasks_ran`; some only waited for processes."""
        noted = self._stamps[row]
        for (task, _), (at, end) in zip(self._parts, self._schedule.notes, strict=True):
            if task is not None:
                yield task, int(noted[at + HEAD]), int(noted[end - 1])

    def _tasks(self, row: int) -> Iterator[TaskSpans]:
        """The tasks that ran and what they did; a task comes once for each of its items."""
        given = dict[int, Ran]()  # when values went to other processes, by task
        for number, carried in self._carried.get(row, {}).items():
            given[number] = *carried, self._idents[0]
        for (task, parts), (at, end) in zip(self._parts, self._schedule.notes, strict=True):
            if task is None:
                continue
            times = stamps.times_of(self._stamps[row, at + HEAD : end]).tolist()
            ran = times[0], times[-1], self._idents[self._stamps[row, at]]
            if not parts:
                given.setdefault(task.id, ran)
            elif len(times) == 1 and task.id in given:  # this item only waited for sums
                ran = given[task.id]
                yield task, ran, [(nodes, *ran[:2], share, None) for nodes, _, share in parts]
            else:
                yield task, ran, spans_of(parts, times)
