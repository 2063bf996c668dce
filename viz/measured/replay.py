"""Replays a recorded step with other times; dependencies stay as they were recorded.

Every activity begins with its recorded delay after the last of the activities that it waited for
has ended. With the recorded times, this gives the recorded step, moment by moment. What an operator
in Python waits for Python of other threads scales with that (`turns`). Besides, activities that run
at the same time are assumed to slow each other down as much as in the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
from dpexec.viz.measured.activities import Activities
from dpexec.viz.measured.turns import turns_of

Times = npt.NDArray[np.float64]

TOGETHER = 64
"""Number of replays that run side by side: more would not fit into the processor's caches."""


class Replay:
    """Replays of one step.

    Args:
        activities: The activities of the recorded step.
        free_threads: Whether tasks find a free thread whenever they are ready.

    Attributes:
        recorded: Seconds of every activity.
        turns: Seconds of them in which it waited for Python of other threads.
        held: Seconds of the delays before them, for the same reason.
        awaited: Seconds for which other activities waited for the Python of each.
    """

    def __init__(self, activities: Activities, free_threads: bool = False) -> None:
        self.activities = activities
        self.start = activities.runs.step.start
        self.recorded: Times = np.array(
            [one.stop - one.start for one in activities.all], np.float64
        )
        self._turns = turns_of(activities)
        self.turns = self._turns.inside(len(self.recorded))
        self.awaited = np.bincount(
            self._turns.source, self._turns.seconds, minlength=len(self.recorded)
        )
        self.held = self._turns.before(len(self.recorded))
        self._own = self.recorded - self.turns
        self._before = [
            activities.needs[at] if free_threads and activities.is_first(at) else before
            for at, before in enumerate(activities.before)
        ]

    def seconds(
        self, times: Sequence[float] | Times | None = None, delays: Sequence[float] | None = None
    ) -> float:
        """Return the seconds of the step.

        Args:
            times: Seconds of every activity; None for the recorded ones.
            delays: The delay of every activity; None for the recorded ones.
        """
        used = self.recorded if times is None else np.asarray(times, np.float64)
        return float(self._stops(used[:, None], delays).max(initial=self.start) - self.start)

    def each(self, scaled: Sequence[Sequence[int]], factor: float) -> list[float]:
        """Return for each group of activities the seconds of a step with only that group scaled.

        Args:
            scaled: The positions of the activities of each group.
            factor: Multiplies the times of the group.
        """
        found: list[float] = []
        for first in range(0, len(scaled), TOGETHER):
            groups = scaled[first : first + TOGETHER]
            columns = [self._scaled(members, factor) for members in groups]
            found += (self._stops(np.stack(columns, axis=1)).max(axis=0) - self.start).tolist()
        return found

    def _scaled(self, members: Sequence[int], factor: float) -> Times:
        """Seconds of every activity if some take another time, and so the waits for them."""
        chosen = np.zeros(len(self.recorded), np.bool_)
        chosen[list(members)] = True
        times = np.where(chosen, self.recorded + (factor - 1) * self._own, self.recorded)
        waits = chosen[self._turns.source]
        extra = (factor - 1) * self._turns.seconds[waits]
        np.add.at(times, self._turns.waiting[waits], extra)
        return times

    def without_turns(self) -> float:
        """Return the seconds of the step if no thread waited for Python of other threads."""
        delays = np.array(self.activities.delays, np.float64) - self.held
        return self.seconds(self._own, delays.tolist())

    def slack(self) -> list[float]:
        """By activity: how many seconds longer it may take without making the step longer."""
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
        """The end of every activity; a column for each replay."""
        late = self.activities.delays if delays is None else delays
        stops = times + np.asarray(late, np.float64)[:, None]
        for rows in self._chains:
            before = self._before[rows[0]]
            head = stops[rows[0]]
            head += stops[before].max(axis=0) if before else self.start
            if len(rows) > 1:
                stops[rows] = np.add.accumulate(stops[rows], axis=0)
        return stops

    @cached_property
    def _chains(self) -> list[list[int]]:
        """Activities in chains: all but the first of a chain wait only for the one before it.

        Chains are in the order of their first activities. Of what these wait for, all is in chains
        that begin earlier. Most steps are few chains, however many activities they have.
        """
        last: dict[int, list[int]] = {}
        found = []
        for at, before in enumerate(self._before):
            chain = last.pop(before[0], None) if len(before) == 1 else None
            if chain is None:
                chain = []
                found.append(chain)
            chain.append(at)
            last[at] = chain
        return found
