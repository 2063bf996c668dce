"""Steps that were recorded operator by operator, as reports tell of them."""

from __future__ import annotations

from dataclasses import dataclass

from dpexec.dashboard.reports import Sample, Slice
from dpexec.engine.trace.recorder import Notes

__all__ = ["Taken"]

_SLICES = 500  # of a sample: the longest are kept


@dataclass(frozen=True, slots=True)
class Taken:
    """A step that was recorded.

    Args:
        step: its number, from 1.
        began: when, by ``time.perf_counter``.
        ended: when.
        notes: where it noted what.
        row: which of the steps there it is.
    """

    step: int
    began: float
    ended: float
    notes: Notes
    row: int

    def read(self) -> Sample:
        """What a report tells of it.

        It takes as long as some steps: whoever trains waits for who reads.
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
