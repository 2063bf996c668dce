"""`dpexec.viz.memory`: bytes alive over time, per device, and what the peak was made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, get_args

import numpy as np
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.memory_svg import render
from dpexec.viz.pages.load import as_trace
from dpexec.viz.pages.page_data import CounterData, DeviceMemoryData, MemoryData
from dpexec.viz.pages.units import bytes_text
from dpexec.viz.pages.view import View

from dpexec.engine.trace import Trace
from dpexec.engine.trace.events import Allocation, MemoryKind

KINDS: tuple[str, ...] = tuple(kind for kind in get_args(MemoryKind) if kind != "arena")
"""What is alive, in the order of the stack; arenas are reserved, their contents counted apart."""

_POINTS = 4000  # per device in a page; between them the largest sum counts
_NANO = 1e9


@dataclass(frozen=True)
class Held:
    """What a variable held at the peak.

    Args:
        name: Of the variable.
        kind: What it is for.
        bytes: How much.
    """

    name: str
    kind: str
    bytes: int


@dataclass(frozen=True)
class Peak:
    """The most that was alive at a time.

    Args:
        time: When it was reached first, in seconds on the clock of the trace.
        bytes: How much.
        parts: What held it, largest first; they add up to the bytes.
    """

    time: float
    bytes: int
    parts: tuple[Held, ...]


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes alive on one device; a value holds from its time until the next one.

    Args:
        device: Index of the device.
        times: In seconds on the clock of the trace.
        kinds: By kind of memory, bytes at each time.
        reserved: Bytes of arenas at each time.
        peak: The largest sum.
    """

    device: int
    times: np.ndarray[Any, Any] = field(repr=False)
    kinds: dict[str, np.ndarray[Any, Any]] = field(repr=False)
    reserved: np.ndarray[Any, Any] = field(repr=False)
    peak: Peak

    @property
    def alive(self) -> np.ndarray[Any, Any]:
        """The sum of all kinds at each time."""
        total = np.zeros(len(self.times), np.int64)
        for sizes in self.kinds.values():
            total += sizes
        return total

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values, without the course over time."""
        reserved = int(self.reserved.max(initial=0))
        return {"device": self.device, "peak": asdict(self.peak), "reserved": reserved}


def memory_of(trace: Trace) -> tuple[DeviceMemory, ...]:
    """Replay the allocations of a trace, device by device.

    Raises:
        ValueError: The trace holds none.
    """
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
    last = np.append(moments[1:] != moments[:-1], True)  # rows of one moment count together
    course = {kind: np.cumsum(np.where(kinds == kind, sizes, 0))[last] for kind in KINDS}
    reserved = np.cumsum(np.where(kinds == "arena", sizes, 0))[last]
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
    return DeviceMemory(device, times, course, reserved, peak)


def thinned(total: np.ndarray[Any, Any], most: int) -> np.ndarray[Any, Any]:
    """Return positions of at most so many values, of each stretch the largest one's."""
    if len(total) <= most:
        return np.arange(len(total))
    edges = np.linspace(0, len(total), most + 1).astype(int)
    return np.array([a + int(total[a:b].argmax()) for a, b in pairwise(edges)])


def live_counters(trace: Trace) -> list[CounterData]:
    """Return bytes alive per device as lines of a timeline; none if none were recorded."""
    if not trace.memory:
        return []
    counters: list[CounterData] = []
    for used in memory_of(trace):
        alive = used.alive
        kept = thinned(alive, _POINTS)
        counters.append(
            {
                "name": "memory",
                "device": used.device,
                "unit": "bytes",
                "times": _nanoseconds(used.times[kept], trace),
                "values": alive[kept].tolist(),
            }
        )
    return counters


def _nanoseconds(times: np.ndarray[Any, Any], trace: Trace) -> list[int]:
    return [int(t) for t in np.rint((times - trace.span[0]) * _NANO)]


class Memory(View):
    """Bytes alive over time, per device.

    Args:
        trace: What was recorded, with its memory.

    Raises:
        ValueError: The trace holds no memory.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.devices = memory_of(trace)
        largest = max(self.devices, key=lambda used: used.peak.bytes)
        self.title = f"Memory · peak {bytes_text(largest.peak.bytes)} on device {largest.device}"

    @cached_property
    def svg(self) -> str:
        """The step with the highest peak as an SVG document."""
        return render(Schedule(self._trace), self.devices, self.title)

    def payload(self) -> MemoryData:
        """Return what the interactive page draws."""
        thin = max(len(used.times) for used in self.devices) > _POINTS
        note = f"Of the course of a device {_POINTS} points are shown, peaks among them."
        return {
            "type": "memory",
            "title": self.title,
            "notes": [note] if thin else [],
            "devices": [self._device(used) for used in self.devices],
            "view": self._view(),
        }

    def _view(self) -> tuple[int, int]:
        """The steps that count, and those of the peaks, in nanoseconds.

        Warming up takes longer than all others together.
        """
        schedule, start = Schedule(self._trace), self._trace.span[0]
        peaks = [used.peak.time for used in self.devices]
        shown = list(schedule.counted)
        shown += [s for s in schedule.steps if any(s.start <= t <= s.stop for t in peaks)]
        begin, end = min(step.start for step in shown), max(step.stop for step in shown)
        return round((begin - start) * _NANO), round((end - start) * _NANO)

    def _device(self, used: DeviceMemory) -> DeviceMemoryData:
        kept = thinned(used.alive, _POINTS)
        kinds = {kind: sizes[kept].tolist() for kind, sizes in used.kinds.items() if sizes.any()}
        peak = used.peak
        data: DeviceMemoryData = {
            "name": f"device {used.device}",
            "times": _nanoseconds(used.times[kept], self._trace),
            "kinds": kinds,
            "peak": {
                "time": round((peak.time - self._trace.span[0]) * _NANO),
                "bytes": peak.bytes,
                "parts": [(part.name, part.kind, part.bytes) for part in peak.parts],
            },
        }
        if used.reserved.any():
            data["reserved"] = used.reserved[kept].tolist()
        return data

    def __str__(self) -> str:
        lines = []
        for used in self.devices:
            lines.append(f"device {used.device}: peak {bytes_text(used.peak.bytes)}")
            for part in used.peak.parts[:10]:
                lines.append(f"  {bytes_text(part.bytes):>10}  {part.kind:<10} {part.name}")
            if len(used.peak.parts) > 10:
                rest = sum(part.bytes for part in used.peak.parts[10:])
                lines.append(f"  {bytes_text(rest):>10}  {len(used.peak.parts) - 10} more")
        return "\n".join(lines)


def memory(trace: Any) -> Memory:
    """Show the bytes alive over time, and what held them at the peak.

    Args:
        trace: A Trace, an executor that recorded one, or the path of a saved one.

    Returns:
        A view: a chart per device. `print` lists the largest variables of each peak.

    Raises:
        FileError: The file is damaged, empty, or no trace.
        ValueError: The trace holds no memory.
    """
    return Memory(as_trace(trace))
