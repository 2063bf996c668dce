"""The bytes that the steps of a run moved, and whether they left the process.

Transfers, and collectives of gangs and of trainers, record the bytes that came through sockets and
those through shared memory. In a run of one process, collectives move the bytes that they read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.pages.units import bytes_text, counted

from dpexec.engine.trace import Event

Way = Literal["between", "shared", "inside"]

_WAYS: Mapping[Way, str] = {
    "between": "between processes",
    "shared": "through memory that processes share",
    "inside": "inside one process",
}


@dataclass(frozen=True)
class Traffic:
    """Bytes that a step moved, on average.

    Args:
        between: Bytes that processes received from others.
        shared: Bytes that were written to shared memory.
        inside: Bytes that collectives read in a run of one process.
        unknown: Number of collectives of unknown size: those of sparse values in old traces.
    """

    between: float
    shared: float
    inside: float
    unknown: int

    @property
    def total(self) -> float:
        """The sum of all ways."""
        return self.between + self.shared + self.inside

    def __str__(self) -> str:
        """A sentence; "" if nothing is known to have moved."""
        if not self.total:
            return ""
        sizes = {text: getattr(self, way) for way, text in _WAYS.items() if getattr(self, way)}
        parts = ", ".join(f"{bytes_text(size)} {text}" for text, size in sizes.items())
        which = f"all of it {next(iter(sizes))}" if len(sizes) == 1 else f"of which {parts}"
        rest = f" (not counted: {counted(self.unknown, 'collective')} of unknown size)"
        return f"A step moved {bytes_text(self.total)}, {which}{rest if self.unknown else ''}."

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {**asdict(self), "total": self.total}


def moved(schedule: Schedule) -> dict[int, dict[Way, int]]:
    """Return the bytes that slices moved, as far as they are known.

    Args:
        schedule: The trace.

    Returns:
        Bytes by way, by id of the slice.
    """
    apart = any(_is_apart(piece.event) for piece in schedule.slices)
    found = {piece.id: _moved(piece.event, apart) for piece in schedule.slices}
    return {index: sizes for index, sizes in found.items() if sizes}


def traffic(schedule: Schedule) -> Traffic:
    """Return the bytes that the counted steps of a schedule moved.

    Args:
        schedule: The trace.
    """
    sizes, steps = moved(schedule), schedule.counted
    sums: dict[Way, float] = dict.fromkeys(_WAYS, 0.0)
    unknown = 0
    for index in (index for step in steps for index in step.slices):
        for way, size in sizes.get(index, {}).items():
            sums[way] += size / len(steps)
        event = schedule.by_id[index].event
        unknown += event.kind == "collective" and "bytes" not in event.args and index not in sizes
    return Traffic(**sums, unknown=unknown // len(steps))


def _is_apart(event: Event) -> bool:
    """Whether an event shows that several processes did the work."""
    return event.kind == "transfer" or "worker" in event.args or "received" in event.args


def _moved(event: Event, apart: bool) -> dict[Way, int]:
    args = event.args
    if event.kind == "transfer":
        return {"between": args.get("bytes", 0)}
    if event.kind != "collective":
        return {}
    if "received" in args:
        return {"between": args["received"], "shared": args.get("shared", 0)}
    return {} if apart or "bytes" not in args else {"inside": args["bytes"]}
