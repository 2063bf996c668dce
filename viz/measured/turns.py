"""The waits of operators in Python for each other: a process runs Python in one thread at a time.

The recorded time of an operator in Python contains the time in which its thread could not go on. If
Python of other threads ran meanwhile, that is a wait for them: it becomes shorter if those become
faster, and stays if the operator itself does. An operator that slept while no other Python ran did
that on its own account.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from dpexec.viz.measured.activities import Activities, Activity

_USUAL = 20e-6
"""Seconds from one activity of a thread to the next, and between operators, if nobody else runs."""


@dataclass(frozen=True)
class Turns:
    """The waits of a step's activities for each other's Python, as columns of a table.

    Args:
        waiting: Positions of the activities that waited.
        source: Positions of those that they waited for.
        seconds: How long.
        is_inside: Whether this is a part of the activity's time, and not of the delay before it.
    """

    waiting: npt.NDArray[np.int64]
    source: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    is_inside: npt.NDArray[np.bool_]

    def inside(self, count: int) -> npt.NDArray[np.float64]:
        """Return how long each of so many activities waited in the middle of its time."""
        return self._sums(self.is_inside, count)

    def before(self, count: int) -> npt.NDArray[np.float64]:
        """Return how long each of so many activities waited for its begin."""
        return self._sums(~self.is_inside, count)

    def _sums(self, chosen: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.float64]:
        found = np.zeros(count, np.float64)
        np.add.at(found, self.waiting[chosen], self.seconds[chosen])
        return found


def turns_of(activities: Activities) -> Turns:
    """Return the waits of a step, for the begin of an activity or in the middle of it.

    There are none if each thread is a process, or no operator in Python waited. They are found
    once.
    """
    runs = activities.runs
    return runs.schedule.once(("turns", runs.step.number), lambda: _turns_of(activities))


def _turns_of(activities: Activities) -> Turns:
    rows = list(_rows(activities))
    waiting, source, seconds, is_inside = zip(*rows, strict=True) if rows else ((),) * 4
    return Turns(
        np.array(waiting, np.int64),
        np.array(source, np.int64),
        np.array(seconds, np.float64),
        np.array(is_inside, np.bool_),
    )


def asleep(steps: Iterable[Activities], name: str) -> float:
    """Return the share of an operator's time for which it neither worked nor waited for Python.

    Args:
        steps: The activities of steps.
        name: The name of the operator; of those in machine code nothing is known, which gives 0.
    """
    time = idle = 0.0
    for activities in steps:
        waited = turns_of(activities).inside(len(activities.all))
        for at, one in enumerate(activities.all):
            if one.piece.event.name == name and one.piece.event.kind == "op":
                time += one.stop - one.start
                idle += max(0.0, _idle(one) - float(waited[at]))
    return idle / time if time else 0.0


def _rows(activities: Activities) -> Iterator[tuple[int, int, float, bool]]:
    python = [at for at, one in enumerate(activities.all) if _is_python(activities, one)]
    if not any("busy" in activities.all[at].piece.event.args for at in python):
        return
    starts = [activities.all[at].start for at in python]
    longest = max(activities.all[at].stop - activities.all[at].start for at in python)
    for at, one in enumerate(activities.all):
        for start, stop, most in _idle_times(activities, at):
            first, last = bisect_left(starts, start - longest), bisect_left(starts, stop)
            ran = [
                (other, _ran(activities, other, one, start, stop)) for other in python[first:last]
            ]
            whole = sum(seconds for _, seconds in ran)
            for other, seconds in ran:
                if seconds > 0:
                    yield at, other, seconds * min(1.0, most / whole), start >= one.start


def _idle_times(activities: Activities, at: int) -> Iterator[tuple[float, float, float]]:
    """Spans in which a thread may have waited for Python of others, and at most how long."""
    one, delay = activities.all[at], activities.delays[at]
    if delay > _USUAL:
        yield one.start - delay, one.start, delay
    idle = _idle(one)
    if one.waits_for is None and not one.piece.is_leaf_work:
        idle = one.stop - one.start - _USUAL  # nothing but calls of Python between operators
    if idle > 0:
        yield one.start, one.stop, idle


def _idle(one: Activity) -> float:
    """Seconds for which an operator in Python was without a processor."""
    event = one.piece.event
    busy = event.args.get("busy")
    if busy is None or (one.start, one.stop) != (event.start, event.stop):
        return 0.0
    return max(0.0, event.duration - float(busy))


def _is_python(activities: Activities, one: Activity) -> bool:
    """Whether the thread of an activity ran Python, for which other threads wait."""
    schedule, event = activities.runs.schedule, one.piece.event
    if one.waits_for is not None or one.stop <= one.start:
        return False
    if "busy" in event.args:
        return True
    facts = schedule.facts
    return event.kind == "op" and facts is not None and schedule.node_of(one.piece) in facts.python


def _ran(activities: Activities, other: int, one: Activity, start: float, stop: float) -> float:
    """Seconds between two times for which another thread of the process may have run Python."""
    its = activities.all[other]
    event, mine = its.piece.event, one.piece.event
    if event.thread == mine.thread or event.args.get("worker") != mine.args.get("worker"):
        return 0.0
    both = min(its.stop, stop) - max(its.start, start)
    return max(0.0, min(both, its.stop - its.start - _idle(its)))
