"""What steps of code note: a row of numbers each, and as little Python as can be.

Half of what Python does in a step finds its data no longer in the processor's caches, since the
step's values went through them. So a step leaves a row of an array that is made for many, and two
looks at the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dpexec.kernels import stamps
from dpexec.runtime.memory_use import Life
from dpexec.runtime.records import Around, Layout, StepRecord, TaskSpans, spans_of

if TYPE_CHECKING:
    from dpexec.runtime.binding import Binding
    from dpexec.runtime.code.step import CodeStep

__all__ = ["CodeNotes"]

_ROWS = 64
_WORDS = 1 << 17
"""The most rows, and the most numbers, that room is made for at once."""


class CodeNotes:
    """What some runs of a step of code noted.

    Args:
        binding: what runs.
        layout: of what it notes.
        lives: the values of a step that take memory.
        code: the step.
        idents: the threads that work together on it.

    Attributes:
        count: how many runs noted something so far.
        joined: sums whose size only a run tells.
        most: how many runs there is room for.
        times: when the step of each run began and was over, in nanoseconds.
    """

    __slots__ = (
        "_code",
        "_idents",
        "_layout",
        "_lives",
        "_rows",
        "_stamps",
        "binding",
        "count",
        "joined",
        "most",
        "size",
        "times",
    )

    def __init__(
        self,
        binding: Binding,
        layout: Layout,
        lives: Callable[[], list[Life]],
        code: CodeStep,
        idents: Sequence[int],
    ) -> None:
        self.binding, self.size = binding, layout.size
        self._layout, self._lives, self._code, self._idents = layout, lives, code, idents
        width = max(code.schedule.width, 1)
        self.count, self.most = 0, max(1, min(_ROWS, _WORDS // width))
        self._stamps = np.empty((self.most, width), np.int64)
        self.joined = code.joined
        self._rows = np.empty((self.most, len(code.joined)), np.int64)
        self.times = memoryview(np.zeros(2 * self.most, np.int64).data)  # makes no objects

    @property
    def address(self) -> int:
        """Where the next run, and those that follow, are to note something."""
        return self._stamps.ctypes.data + self.count * self._stamps.strides[0]

    def keep_sizes(self) -> None:
        """Keep how large sums were whose size only a run tells."""
        for index, joined in enumerate(self.joined):
            self._rows[self.count, index] = joined.number[0]

    def record(self, row: int) -> StepRecord:
        """What a step recorded.

        Args:
            row: of its run.
        """
        tasks = partial(self._tasks, row)
        began, ended = self.times[2 * row : 2 * row + 2]
        ran = [when for _, when, _ in tasks()]
        start, stop = min(when[0] for when in ran), max(when[1] for when in ran)
        around: list[Around] = [
            ("Feed", "feed", began, start, self._idents[0], {}),
            ("Fetch", "fetch", stop, ended, self._idents[0], {}),
        ]
        moved = {
            joined.node.id: {"bytes": int(count) * joined.row_bytes}
            for joined, count in zip(self.joined, self._rows[row], strict=True)
        }
        return StepRecord(self._layout, self._lives, tasks, (), around, moved=moved)

    def _tasks(self, row: int) -> Iterator[TaskSpans]:
        """The tasks that ran, one for each thread that worked on it, with what they did."""
        code = self._code
        for (task, parts), (at, end) in zip(code.parts, code.schedule.notes, strict=True):
            times = stamps.times_of(self._stamps[row, at + 1 : end]).tolist()
            ran = times[0], times[-1], self._idents[self._stamps[row, at]]
            yield task, ran, spans_of(parts, times)
