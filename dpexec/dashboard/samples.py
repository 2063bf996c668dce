"""Steps that were recorded operator by operator, as reports tell of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpexec.dashboard.reports import Sample, Slice
from dpexec.trace.recorder import Recorded

__all__ = ["Taken"]

_SLICES = 500  # of a sample: the longest are kept


@dataclass(frozen=True, slots=True)
class Taken:
    """A step that was recorded.

    Args:
        step: its number, from 1.
        began: when, by ``time.perf_counter``.
        ended: when.
        binding: what ran.
        record: what it noted.
    """

    step: int
    began: float
    ended: float
    binding: Any
    record: Recorded

    def read(self) -> Sample | None:
        """What a report tells of it; None if nobody noted anything, as in steps of a cluster.

        It takes as long as some steps: whoever trains waits for who reads.
        """
        rows = sorted(self.record.rows(), key=lambda row: (row[1] != "task", row[4] - row[5]))
        if not rows:
            return None
        nodes = self.binding.plan.graph.ops
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
