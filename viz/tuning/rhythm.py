"""How fast the steps of a run follow each other, and how much time passes between them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.measured.shares import apart
from dpexec.viz.tuning.confidence import Sure, sure


@dataclass(frozen=True)
class Rhythm:
    """How fast steps follow each other.

    Args:
        each: Seconds from the begin of a step to that of the next.
        between: Seconds from its end to the begin of the next, less what is not the script's.
        count: The number of pairs of steps.
    """

    each: Sure
    between: Sure
    count: int

    @classmethod
    def of(cls, schedule: Schedule) -> Rhythm:
        """Return that of the counted steps of a run; zeros for a single step."""
        pairs = list(pairwise(schedule.counted))
        each = [later.start - step.start for step, later in pairs]
        between = [
            max(0.0, later.start - step.stop - apart(schedule, step.stop, later.start))
            for step, later in pairs
        ]
        return cls(sure(each or [0.0]), sure(between or [0.0]), len(pairs))
