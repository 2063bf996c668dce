"""The activities of a step, and what each of them waited for.

A task is cut where its operators begin and end, and an operator where the operators of its blocks
begin and end. The pieces are activities, which never contain each other. An activity can begin when
its inputs are ready and its thread has finished the previous activity; the time between that moment
and its start is its delay.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from dpexec.viz.measured.nesting import TOLERANCE
from dpexec.viz.measured.runs import StepRuns, runs_of
from dpexec.viz.measured.schedule import COMMUNICATION, DATA, Schedule, Slice, Step
from dpexec.viz.measured.shares import PathPart


class Activity(NamedTuple):
    """Time in which a thread did one thing.

    Args:
        piece: The innermost slice: an operator, or a task between its operators.
        start: Seconds.
        stop: Seconds, not before start.
        run: Position of its task, or of an event outside tasks, in `StepRuns.runs`.
        waits_for: If a collective waits for values of a process that is not in this trace: that
            process.
    """

    piece: Slice
    start: float
    stop: float
    run: int
    waits_for: str | None = None


class Activities:
    """The activities of a step in order of their start.

    Args:
        runs: The tasks of the step, with their dependencies.

    Attributes:
        all: The activities.
        needs: By position: the activities whose results it needs according to the graph. All of
            them are earlier.
        thread: By position: the previous activity of its thread, None for the first.
    """

    def __init__(self, runs: StepRuns) -> None:
        self.runs = runs
        cut = [
            one
            for number, run in enumerate(runs.runs)
            for piece, start, stop in _cut(run.piece, runs.parts, run.start)
            for one in _waits(piece, start, stop, number, runs)
        ]
        self.all = sorted(cut, key=lambda one: (one.start, one.run))
        self._first: dict[int, int] = {}  # by run
        self._last: dict[int, int] = {}
        for position, one in enumerate(self.all):
            self._first.setdefault(one.run, position)
            self._last[one.run] = position
        self.thread = self._threads()
        self.needs: list[list[int]] = [[] for _ in self.all]
        for earlier, later in self._tasks() if runs.is_ordered else self._data():
            if earlier < later or self.all[later].waits_for is not None:
                self.needs[later].append(earlier)
        self._pass_waits()
        # Not certain with the clocks of several machines, nor of what begins during a wait.
        for position, needed in enumerate(self.needs):
            if needed and max(needed) >= position:
                self.needs[position] = [at for at in needed if at < position]

    def is_first(self, position: int) -> bool:
        """Whether it is the first activity of a task."""
        return self._first[self.all[position].run] == position

    @cached_property
    def before(self) -> list[list[int]]:
        """By position: all activities that had to end before; the one of its thread is last."""
        return [
            needed if thread is None else [*needed, thread]
            for needed, thread in zip(self.needs, self.thread, strict=True)
        ]

    @cached_property
    def waited(self) -> list[int | None]:
        """By position: the activity that it waited for: the last to end of those it had to await.

        None if it did not have to await any.
        """
        found = []
        for needed, thread in zip(self.needs, self.thread, strict=True):
            ends = [(self.all[source].stop, True, source) for source in needed]
            if thread is not None:
                ends.append((self.all[thread].stop, False, thread))
            found.append(max(ends)[2] if ends else None)
        return found

    @cached_property
    def delays(self) -> list[float]:
        """By position: seconds between the end of the activity it waited for and its start.

        Negative if it began earlier, which the clocks of several machines may suggest.
        """
        ready = (self.runs.step.start if s is None else self.all[s].stop for s in self.waited)
        return [one.start - at for one, at in zip(self.all, ready, strict=True)]

    def _threads(self) -> list[int | None]:
        found: list[int | None] = []
        before: dict[int, int] = {}  # by thread
        within: dict[int, int] = {}  # by run
        for position, one in enumerate(self.all):
            thread = one.piece.event.thread
            last = within.get(one.run, before.get(thread))
            # A thread may do something else while it waits for other processes.
            while last is not None and self._goes_on(last, one):
                last = found[last]
            found.append(last)
            within[one.run] = before[thread] = position
        return found

    def _goes_on(self, wait: int, one: Activity) -> bool:
        """Whether an activity is a wait that goes on while another one runs."""
        waiting = self.all[wait]
        return waiting.waits_for is not None and waiting.stop > one.start + TOLERANCE

    def _pass_waits(self) -> None:
        """Make activities after a wait depend on those that ended late during the wait.

        This finds the cause of a wait if the trace has all processes, as on a cluster.
        """
        for position, one in enumerate(self.all):
            before = self.thread[position]
            if before is None or self.all[before].waits_for is None:
                continue
            wait = self.all[before]
            if wait.run != one.run or one.waits_for is not None:
                continue
            middle = (wait.start + wait.stop) / 2
            sources = [at for at in self.needs[before] if at < position]
            late = [at for at in sources if self.all[at].stop > middle]
            if late:
                self.needs[position] += late
                self.needs[before] = [at for at in self.needs[before] if at not in late]
                self.thread[position] = self.thread[before]

    def _tasks(self) -> Iterator[tuple[int, int]]:
        for number, sources in enumerate(self.runs.before):
            for source in dict.fromkeys(sources):
                yield self._last[source], self._first[number]

    def _data(self) -> Iterator[tuple[int, int]]:
        """The order of operators whose tasks are unknown."""
        schedule = self.runs.schedule
        if schedule.facts is None:
            return
        ends: dict[int, dict[int, tuple[int, int]]] = {}  # by operator and thread: first and last
        for position, one in enumerate(self.all):
            node = schedule.node_of(one.piece)
            if node is not None:
                threads = ends.setdefault(node, {})
                first, _ = threads.get(one.piece.event.thread, (position, position))
                threads[one.piece.event.thread] = first, position
        for node, threads in ends.items():
            for source in schedule.facts.before.get(node, ()):
                for _, last in ends.get(source, {}).values():
                    for first, _ in threads.values():
                        yield last, first


def _waits(piece: Slice, start: float, stop: float, run: int, runs: StepRuns) -> Iterator[Activity]:
    """A part of a slice; the time in which a collective waited for other processes is split off.

    It says how long it waited, and not since when: some work comes before. So if a task that it
    needs ended a little later, the wait lasted until then.
    """
    event = piece.event
    other = event.args.get("for")
    if other is None or start != event.start:
        yield Activity(piece, start, stop, run)
        return
    if event.args.get("awaited"):
        yield Activity(piece, start - event.args["awaited"], start, run, other)
    begun = min(stop, start + event.args.get("waited", 0.0))
    if begun > start:
        ends = (runs.runs[source].stop for source in runs.before[run])
        begun = max([begun, *(end for end in ends if end <= stop)])
        yield Activity(piece, start, begun, run, other)
    if begun < stop or begun == start:
        yield Activity(piece, begun, stop, run)


def _cut(
    piece: Slice, parts: dict[int, list[Slice]], begin: float
) -> Iterator[tuple[Slice, float, float]]:
    """A slice cut at its parts, in order of time; neighbours may overlap by a rounding error."""
    at = begin
    for part in parts.get(piece.id, ()):
        if part.event.start > at:
            yield piece, at, part.event.start
            at = part.event.start
        yield from _cut(part, parts, at)
        at = max(at, part.event.stop)
    if at < piece.event.stop or not parts.get(piece.id):
        yield piece, at, max(at, piece.event.stop)


def part_at(schedule: Schedule, one: Activity) -> PathPart:
    """Return the kind of an activity: of work, or of waiting for another process."""
    return "straggler" if one.waits_for is not None else part_of(schedule, one.piece)


def part_of(schedule: Schedule, piece: Slice) -> PathPart:
    """Return the kind of work of a slice, outside its parts."""
    if piece.event.kind in DATA:
        return "data"
    if piece.event.kind in COMMUNICATION:
        return "communication"
    if not piece.is_leaf_work:
        return "overhead"
    return "communication" if schedule.role_of(piece) == "collective" else "compute"


def activities_of(schedule: Schedule, step: Step) -> Activities:
    """Return the activities of a step; they are computed once."""
    return schedule.once(("activities", step.number), lambda: Activities(runs_of(schedule, step)))
