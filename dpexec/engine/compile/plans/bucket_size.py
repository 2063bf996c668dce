"""How many bytes of gradients one collective task should aggregate."""

from __future__ import annotations

from dpexec.engine.core.light_dataclasses import dataclass

__all__ = ["GANG", "TASKS", "THREADS", "Link"]

_SHARE = 0.05
"""The largest latency of a collective task, as a share of its transfer time."""


@dataclass(frozen=True)
class Link:
    """The speed of exchanges between replicas, as two constants (see docs/scaling.md).

    Args:
        latency: seconds that a collective task takes without any bytes.
        bandwidth: bytes per second.
    """

    latency: float
    bandwidth: float

    @property
    def bucket_bytes(self) -> int:
        """The least bytes whose transfer makes the latency small.

        More would only let the first aggregation start later in the backward pass.
        """
        return round(self.latency * self.bandwidth / _SHARE)

    def seconds(self, nbytes: float, tasks: int = 0) -> float:
        """How long an exchange takes.

        Args:
            nbytes: bytes that go through a link.
            tasks: number of tasks, one after another.
        """
        return tasks * self.latency + nbytes / self.bandwidth


THREADS = Link(35e-6, 6e9)
"""Of one process: a task of the prepared scheduler, and a pass over a gradient."""

TASKS = Link(5e-3, 1.25e9)
"""Workers of a cluster, tasks: the messages that start a task elsewhere, and 10 Gbit/s."""

GANG = Link(150e-6, 1.25e9)
"""Members of a gang, or trainers: 50 us on the way to each of four, and 10 Gbit/s."""
