"""Bytes alive over time, per device, and the variables of the peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, get_args

import numpy as np
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.pages.page_data import CounterData

from dpexec.engine.trace import Trace
from dpexec.engine.trace.events import Allocation, MemoryKind

KINDS: tuple[str, ...] = tuple(kind for kind in get_args(MemoryKind) if kind != "arena")
"""The kinds of memory, in the order of the stack. Arenas, in which machine code computes, are left
out, because their contents are counted as other kinds."""

COLOURS = {
    "parameter": "forward",
    "state": "lr_sched",
    "gradient": "backward",
    "temporary": "optimize",
    "feed": "feed",
}
"""By kind of memory, the role whose colour it has in every view."""

POINTS = 4000  # per device in a page; each stands for the largest sum of a stretch

NANO = 1e9


@dataclass(frozen=True)
class Held:
    """The memory of a variable at the peak.

    Args:
        name: Name of the variable.
        kind: Kind of memory.
        bytes: Its size.
    """

    name: str
    kind: str
    bytes: int


@dataclass(frozen=True)
class Peak:
    """The largest number of bytes alive at a time.

    Args:
        time: When it was reached for the last time, in seconds on the clock of the trace.
        bytes: Its size.
        parts: The variables that held it, largest first; they add up to the bytes.
    """

    time: float
    bytes: int
    parts: tuple[Held, ...]


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes alive on one device; a value holds from its time until the next one.

    Args:
        device: Index of the device.
        times: Seconds on the clock of the trace.
        kinds: By kind of memory, bytes at each time.
        work_area: Bytes at each time of the memory in which machine code computes. Gradients and
            temporaries share its space one after another; parameters, states and feeds are
            elsewhere.
        peak: The largest sum.
    """

    device: int
    times: np.ndarray[Any, Any] = field(repr=False)
    kinds: dict[str, np.ndarray[Any, Any]] = field(repr=False)
    work_area: np.ndarray[Any, Any] = field(repr=False)
    peak: Peak

    @property
    def alive(self) -> np.ndarray[Any, Any]:
        """The sum of all kinds at each time."""
        total = np.zeros(len(self.times), np.int64)
        for sizes in self.kinds.values():
            total += sizes
        return total

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values, without the values over time."""
        area = int(self.work_area.max(initial=0))
        return {"device": self.device, "peak": asdict(self.peak), "work_area": area}


def memory_of(source: Trace | Schedule) -> tuple[DeviceMemory, ...]:
    """Replay the allocations of a trace, device by device; for a schedule this is done once.

    Raises:
        ValueError: The trace holds none.
    """
    if isinstance(source, Schedule):
        return source.once(("memory", 0), lambda: memory_of(source.trace))
    trace = source
    if not trace.memory:
        raise ValueError(
            "the trace holds no memory: record it with ExecutionStrategy.trace = True and this "
            "version of dpexec"
        )
    by_device: dict[int, list[Allocation]] = {}
    for row in trace.memory:
        by_device.setdefault(row.device, []).append(row)
    return tuple(_replay(device, rows) for device, rows in sorted(by_device.items()))


def _replay(device: int, rows: Sequence[Allocation]) -> DeviceMemory:
    rows = sorted(rows, key=lambda row: row.time)
    moments = np.array([row.time for row in rows])
    sizes = np.array([row.bytes for row in rows], np.int64)
    kinds = np.array([row.kind for row in rows])
    last = np.append(moments[1:] != moments[:-1], True)  # rows of the same moment are added up
    course = {kind: np.cumsum(np.where(kinds == kind, sizes, 0))[last] for kind in KINDS}
    area = np.cumsum(np.where(kinds == "arena", sizes, 0))[last]
    times = moments[last]
    alive = np.sum(list(course.values()), axis=0)
    top = len(alive) - 1 - int(alive[::-1].argmax())  # the last one: rarely of a step of warming up
    held: dict[tuple[str, str], int] = {}
    for row in rows[: int(np.searchsorted(moments, times[top], "right"))]:
        if row.kind != "arena":
            held[row.name, row.kind] = held.get((row.name, row.kind), 0) + row.bytes
    parts = [Held(name, kind, size) for (name, kind), size in held.items() if size]
    parts.sort(key=lambda part: (-part.bytes, part.name))
    peak = Peak(float(times[top]), int(alive[top]), tuple(parts))
    return DeviceMemory(device, times, course, area, peak)


def thinned(total: np.ndarray[Any, Any], most: int) -> np.ndarray[Any, Any]:
    """Return the positions of at most `most` values: the largest one of each stretch."""
    if len(total) <= most:
        return np.arange(len(total))
    edges = np.linspace(0, len(total), most + 1).astype(int)
    return np.array([a + int(total[a:b].argmax()) for a, b in pairwise(edges)])


def live_counters(schedule: Schedule) -> list[CounterData]:
    """Return bytes alive per device as lines of a timeline; none if none were recorded."""
    trace = schedule.trace
    if not trace.memory:
        return []
    counters: list[CounterData] = []
    for used in memory_of(schedule):
        alive = used.alive
        kept = thinned(alive, POINTS)
        counters.append(
            {
                "name": "memory",
                "device": used.device,
                "unit": "bytes",
                "times": nanoseconds(used.times[kept], trace),
                "values": alive[kept].tolist(),
            }
        )
    return counters


def nanoseconds(times: np.ndarray[Any, Any], trace: Trace) -> list[int]:
    """Return times as nanoseconds since the trace began."""
    return [int(t) for t in np.rint((times - trace.span[0]) * NANO)]
