"""A recorded step, replayed with other times: what waited for what stays as it was recorded.

Every activity begins when all that it waited for has ended, and as late after that as it did when
it was recorded. With the recorded times that gives the recorded step, moment by moment. What runs
at the same time is taken to disturb each other as much as it did.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from dpexec.viz.measured.activities import Activities

Times = npt.NDArray[np.float64]

TOGETHER = 64
"""How many replays run side by side: more would not fit the processor's caches."""


class Replay:
    """What a step would take.

    Args:
        activities: Of the recorded step.
        free_threads: Whether tasks find a free thread whenever they are ready.
    """

    def __init__(self, activities: Activities, free_threads: bool = False) -> None:
        self.activities = activities
        self.start = activities.runs.step.start
        self.recorded: Times = np.array(
            [one.stop - one.start for one in activities.all], np.float64
        )
        self._before = [
            activities.needs[at] if free_threads and activities.is_first(at) else before
            for at, before in enumerate(activities.before)
        ]

    def seconds(
        self, times: Sequence[float] | Times | None = None, delays: Sequence[float] | None = None
    ) -> float:
        """Return what the step takes.

        Args:
            times: Seconds of every activity; None for the recorded ones.
            delays: How late each begins; None for the recorded ones.
        """
        used = self.recorded if times is None else np.asarray(times, np.float64)
        return float(self._stops(used[:, None], delays).max(initial=self.start) - self.start)

    def each(self, scaled: Sequence[Sequence[int]], factor: float) -> list[float]:
        """Return what the step takes if one group of activities takes another time, for each group.

        Args:
            scaled: The positions of the activities of each group.
            factor: What their times are multiplied by.
        """
        found: list[float] = []
        for first in range(0, len(scaled), TOGETHER):
            groups = scaled[first : first + TOGETHER]
            times = np.repeat(self.recorded[:, None], len(groups), axis=1)
            for column, members in enumerate(groups):
                times[list(members), column] *= factor
            found += (self._stops(times).max(axis=0) - self.start).tolist()
        return found

    def slack(self) -> list[float]:
        """By activity: the seconds for which it may go on without the step taking longer."""
        count = len(self.activities.all)
        stops = [one.stop for one in self.activities.all]
        latest = [self.activities.runs.step.stop] * count
        for position in range(count - 1, -1, -1):
            one = self.activities.all[position]
            ready = latest[position] - (one.stop - one.start) - self.activities.delays[position]
            for source in self._before[position]:
                latest[source] = min(latest[source], ready)
        return [max(0.0, end - stop) for end, stop in zip(latest, stops, strict=True)]

    def _stops(self, times: Times, delays: Sequence[float] | None = None) -> Times:
        """When every activity ends; a column for each replay."""
        late = self.activities.delays if delays is None else delays
        stops = times + np.asarray(late, np.float64)[:, None]
        for row, before in zip(stops, self._before, strict=True):
            if not before:
                row += self.start
            elif len(before) == 1:
                row += stops[before[0]]
            else:
                row += stops[before].max(axis=0)
        return stops
