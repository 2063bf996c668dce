"""`dpexec.viz.memory`: bytes alive over time, per device, and the variables of the peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from dpexec.viz.advising.growth import growth_text
from dpexec.viz.graphs.lifetimes import Lifetimes
from dpexec.viz.measured.memory_use import (
    COLOURS,
    NANO,
    POINTS,
    DeviceMemory,
    Held,
    memory_of,
    nanoseconds,
    thinned,
)
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.memory_svg import render
from dpexec.viz.pages.load import as_trace
from dpexec.viz.pages.page_data import DeviceMemoryData, MemoryData
from dpexec.viz.pages.units import bytes_text, wrapped
from dpexec.viz.pages.view import View

from dpexec.engine.trace import Trace

_LISTED = 10
_LARGE = 0.05
"""Of what takes at least this share of a peak, the text says which operators it is for."""

_STANDING = ("parameter", "state", "feed")
"""The kinds of what is there before a step."""

_SAID = 4
"""The most devices whose peaks are put into words on the page."""


class Memory(View):
    """Bytes alive over time, per device.

    Args:
        trace: A trace with memory events, or its schedule.

    Raises:
        ValueError: The trace holds no memory.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec import viz
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))
        >>> how = fluid.ExecutionStrategy()
        >>> how.trace = True
        >>> two = fluid.CompiledProgram(main).with_data_parallel(
        ...     loss.name, exec_strategy=how, places=fluid.cpu_places(2)
        ... )
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     for step in range(3):
        ...         _ = exe.run(two, feed={"x": np.ones([4, 2], "float32")}, fetch_list=[loss])
        >>> isinstance(viz.memory(two), viz.Memory)
        True
    """

    def __init__(self, trace: Trace | Schedule) -> None:
        self._source = trace
        self._trace = trace.trace if isinstance(trace, Schedule) else trace
        self.devices = memory_of(trace)
        largest = max(self.devices, key=lambda used: used.peak.bytes)
        self.title = f"Memory · peak {bytes_text(largest.peak.bytes)} on device {largest.device}"

    @cached_property
    def _schedule(self) -> Schedule:
        return Schedule.of(self._source)

    @cached_property
    def svg(self) -> str:
        """The step with the highest peak as an SVG document."""
        return render(self._schedule, self.devices, self.title)

    def payload(self) -> MemoryData:
        """Return what the interactive page draws."""
        notes = [*map(_by_kind, self.devices[:_SAID]), *self._grown]
        if max(len(used.times) for used in self.devices) > POINTS:
            notes.append(f"Of the course of a device {POINTS} points are shown, peaks among them.")
        return {
            "type": "memory",
            "title": self.title,
            "notes": notes,
            "devices": [self._device(used) for used in self.devices],
            "looks": COLOURS,
            "view": self._view(),
        }

    @property
    def _grown(self) -> list[str]:
        text = growth_text(self._schedule) if self._schedule.steps else ""
        return [text] if text else []

    @cached_property
    def _lifetimes(self) -> Lifetimes | None:
        facts = self._schedule.facts
        return None if facts is None else Lifetimes(facts)

    def _ends(self, used: DeviceMemory, part: Held) -> tuple[str, str, tuple[int, ...]]:
        """What makes a value, what reads it last, and the numbers of both."""
        if self._lifetimes is None:
            return "", "", ()
        ends = self._lifetimes.of(used.device, part.name)
        made = None if part.kind in _STANDING else ends.made
        nodes = tuple(node for node in (made, ends.read) if node is not None)
        return self._lifetimes.text(made), self._lifetimes.text(ends.read), nodes

    def _view(self) -> tuple[int, int]:
        """The span of the counted steps and of those with the peaks, in nanoseconds.

        Warm-up steps are left out: they take longer than all others together.
        """
        schedule, start = self._schedule, self._trace.span[0]
        peaks = [used.peak.time for used in self.devices]
        shown = list(schedule.counted)
        shown += [s for s in schedule.steps if any(s.start <= t <= s.stop for t in peaks)]
        begin, end = min(step.start for step in shown), max(step.stop for step in shown)
        return round((begin - start) * NANO), round((end - start) * NANO)

    def _device(self, used: DeviceMemory) -> DeviceMemoryData:
        kept = thinned(used.alive, POINTS)
        kinds = {kind: sizes[kept].tolist() for kind, sizes in used.kinds.items() if sizes.any()}
        peak = used.peak
        data: DeviceMemoryData = {
            "name": f"device {used.device}",
            "times": nanoseconds(used.times[kept], self._trace),
            "kinds": kinds,
            "peak": {
                "time": round((peak.time - self._trace.span[0]) * NANO),
                "bytes": peak.bytes,
                "parts": [
                    (part.name, part.kind, part.bytes, *self._ends(used, part))
                    for part in peak.parts
                ],
            },
        }
        if used.work_area.any():
            data["work_area"] = used.work_area[kept].tolist()
        return data

    def __str__(self) -> str:
        lines: list[str] = []
        said: list[tuple[Held, ...]] = []
        for used in self.devices:
            lines += wrapped(_by_kind(used))
            if used.peak.parts in said:
                lines.append(f"  as on device {self.devices[said.index(used.peak.parts)].device}")
            else:
                lines += self._parts(used)
            said.append(used.peak.parts)
        return "\n".join([*lines, *wrapped(*self._grown)])

    def _parts(self, used: DeviceMemory) -> Iterator[str]:
        """A line for each of the largest variables of a peak."""
        for part in used.peak.parts[:_LISTED]:
            yield f"  {bytes_text(part.bytes):>10}  {part.kind:<10} {part.name}"
            made, read, _ = self._ends(used, part)
            if made and part.bytes >= _LARGE * used.peak.bytes:
                until = f"; read last by {read}" if read else "; no operator reads it"
                yield f"{'':26}made by {made}{until}"
        if len(used.peak.parts) > _LISTED:
            rest = sum(part.bytes for part in used.peak.parts[_LISTED:])
            yield f"  {bytes_text(rest):>10}  {len(used.peak.parts) - _LISTED} more"


def _by_kind(used: DeviceMemory) -> str:
    """What the peak of a device is made of, the largest kind first."""
    sizes: Counter[str] = Counter()
    for part in used.peak.parts:
        sizes[part.kind] += part.bytes
    texts = [f"{bytes_text(size)} {kind}" for kind, size in sizes.most_common()]
    return f"device {used.device}: peak {bytes_text(used.peak.bytes)}: {', '.join(texts)}"


def memory(trace: Any) -> Memory:
    """Show the bytes alive over time, and the variables that held them at the peak.

    Args:
        trace: A Trace, an executor that recorded one, or the path of a saved one.

    Returns:
        A view: a chart per device. `print` lists the largest variables of each peak.

    Raises:
        FileError: The file is damaged, empty, or no trace.
        ValueError: The trace holds no memory.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec import viz
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), size=2))
        ...     _ = fluid.optimizer.SGD(0.1).minimize(loss)
        >>> how = fluid.ExecutionStrategy()
        >>> how.trace = True
        >>> two = fluid.CompiledProgram(main).with_data_parallel(
        ...     loss.name, exec_strategy=how, places=fluid.cpu_places(2)
        ... )
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     for _ in range(3):
        ...         _ = exe.run(two, feed={"x": np.ones((4, 4), "float32")})
        >>> print(viz.memory(two))  # doctest: +ELLIPSIS
        device 0: peak 156 B: 80 B gradient, 40 B parameter, 32 B feed, 4 B state
                64 B  gradient   fc_0.w_0@GRAD
                                  made by mul_grad...
                32 B  parameter  fc_0.w_0
                32 B  feed       x
        ...
    """
    return Memory(as_trace(trace))
