"""Steps recorded operator by operator, converted for reports."""

from __future__ import annotations

from dpexec.dashboard.reports import Sample, Slice
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.trace.recorder import Notes

__all__ = ["Taken"]

_SLICES = 500  # the most slices of a sample; the longest are kept


@dataclass(frozen=True, slots=True)
class Taken:
    """A recorded step.

    Args:
        step: number of the step, from 1.
        began: start time, by ``time.perf_counter``.
        ended: end time, by ``time.perf_counter``.
        notes: the recorder's notes.
        row: index of the step in the notes.
    """

    step: int
    began: float
    ended: float
    notes: Notes
    row: int

    def read(self) -> Sample:
        """Convert to the sample of a report.

        This takes as long as several steps, and training waits meanwhile.
        """
        noted = self.notes.record(self.row).rows()
        rows = sorted(noted, key=lambda row: (row[1] != "task", row[4] - row[5]))
        nodes = self.notes.binding.plan.graph.ops
        slices: list[Slice] = [
            [
                device,
                "" if node is None else nodes[node].role,
                kind,
                name,
                key,
                begin - self.began,
                stop - self.began,
            ]
            for name, kind, device, key, begin, stop, _, _, node in rows[:_SLICES]
        ]
        return {
            "step": self.step,
            "seconds": self.ended - self.began,
            "slices": slices,
            "left_out": max(0, len(rows) - _SLICES),
        }
