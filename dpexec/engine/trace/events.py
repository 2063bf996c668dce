"""The dataclasses of a trace, which hold events and memory use, and their JSON form."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args

from dpexec.engine.core import hooks
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.trace import columns
from dpexec.engine.trace.columns import TraceFormatError

__all__ = ["FORMAT", "VERSION", "Allocation", "Event", "Kind", "Trace", "TraceFormatError", "tick"]

FORMAT = "dpexec.trace"
VERSION = 3
_READ = (2, VERSION)
"""Files of version 2 hold events in columns, separate from the rows that Chrome draws."""

Kind = Literal["task", "op", "collective", "feed", "fetch", "transfer", "failure"]
KINDS: tuple[str, ...] = get_args(Kind)

MemoryKind = Literal["parameter", "state", "gradient", "temporary", "feed", "arena"]
MEMORY_KINDS: tuple[str, ...] = get_args(MemoryKind)


_START, _STOP = attrgetter("start"), attrgetter("stop")


def tick(seconds: float) -> float:
    """A time in whole nanoseconds, the resolution of clocks and files."""
    return round(seconds * 1e9) / 1e9  # equal to round(seconds, 9), in a quarter of its time


@dataclass(slots=True)  # not frozen: a trace has 100,000 of them, made in a quarter of the time
class Event:
    """One execution of a task, operator or transfer; it is shared, and not to be changed.

    Args:
        name: The displayed name: the op type, or the name of the segment.
        kind: "task" for a scheduled task, "op" for an operator inside one, "collective" for an
            operation over several devices, "feed" and "fetch" for a step's inputs and outputs,
            "transfer" for values sent between processes, "failure" for what raised an error, so
            that its step was not completed.
        device: Index of the device, None when the event belongs to all of them.
        key: Key of its task; the ops of a task carry the key of that task.
        start: Seconds on a monotonic clock.
        stop: Seconds on the same clock, not before start.
        thread: Number of the thread that did the work.
        args: Further facts, anything that JSON can hold: "parts", the names of the operators that a
            fused kernel stands for; "bytes" and "devices" of a collective or transfer; "worker";
            "busy", the seconds of processor time of an operator in Python that slept or waited;
            "error", "text" and "line" of a failure, the class and the text of the error and the
            user's line that made the operator, or that raised it in a function of the user.
        node: Number of the operator in the graph; None if it is not an operator of the graph.
        step: Number of the step, from 0.
    """

    name: str
    kind: Kind
    device: int | None
    key: str
    start: float
    stop: float
    thread: int = 0
    args: Mapping[str, Any] = field(default_factory=dict)
    node: int | None = None
    step: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"event {self.name!r}: kind must be one of {KINDS}, not {self.kind!r}")
        if self.stop < self.start:
            raise ValueError(
                f"event {self.name!r}: stops at {self.stop}, before it starts at {self.start}"
            )

    @property
    def duration(self) -> float:
        """Seconds from start to stop."""
        return self.stop - self.start


@dataclass(slots=True)  # not frozen, as events
class Allocation:
    """An allocation or a release of device memory; it is shared, and not to be changed.

    Rows of kind "arena" are memory reserved for machine code. Values that the code computes there
    are listed as well, as "gradient" or "temporary", while they are needed. So the memory of live
    values is the sum of all kinds but "arena".

    Args:
        time: Seconds on the clock of the events.
        device: Index of the device.
        name: Name of the variable or the arena.
        bytes: Size; negative for a release.
        kind: "parameter", "state" (of an optimizer, or a counter), "gradient", "temporary", "feed"
            or "arena".
    """

    time: float
    device: int
    name: str
    bytes: int
    kind: MemoryKind

    def __post_init__(self) -> None:
        if self.kind not in MEMORY_KINDS:
            raise ValueError(
                f"memory of {self.name!r}: kind must be one of {MEMORY_KINDS}, not {self.kind!r}"
            )


EVENT_COLUMNS: columns.Columns = {
    "name": "text",
    "kind": "text",
    "device": "integer or null",
    "key": "text",
    "start": "number",
    "stop": "number",
    "thread": "integer",
    "args": "object",
    "node": "integer or null",
    "step": "integer",
}
_MEMORY_COLUMNS: columns.Columns = {
    "time": "number",
    "device": "integer",
    "name": "text",
    "bytes": "integer",
    "kind": "text",
}


@dataclass(frozen=True, slots=True, repr=False)
class Trace:
    """Events in order of their start, and facts about the run as a whole.

    Args:
        events: The events.
        meta: Facts: scheduler, num_threads, mode, steps, places, version, native ...; "build",
            fields of the BuildStrategy; "processors", rows of three numbers of seconds: when, and
            how long the process's threads had worked and had waited for a processor until then;
            "resident", rows of seconds and the MiB of memory that the process had then; "meetings",
            rows of two numbers of seconds: from when until when this trainer waited for others to
            begin a step; "preparing", the same of preparations for new shapes; "reading", of waits
            for batches; "recovering", of steps that were repeated as a worker was lost; "shapes",
            rows of time, name and shape, where a value had a shape for which its step was prepared.
        graph: The graph in the file format "dpexec.graph"; nodes of events refer to it.
        memory: Allocations and releases, in order of time.

    Example:
        >>> trace = Trace((Event("relu", "op", 0, "fwd", 0.0, 0.5),), {"devices": 1})
        >>> Trace.from_json(trace.to_json()) == trace
        True
    """

    events: tuple[Event, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    graph: Mapping[str, Any] | None = None
    memory: tuple[Allocation, ...] = ()

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def __repr__(self) -> str:
        steps = len({event.step for event in self.events})
        took = max((e.stop for e in self.events), default=0.0) - min(
            (e.start for e in self.events), default=0.0
        )
        return (
            f"<Trace: {len(self.events)} events in {steps} steps on {len(self.devices)} devices, "
            f"{1e3 * took:.1f} ms>"
        )

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices that have events, in order."""
        return tuple(sorted({e.device for e in self.events if e.device is not None}))

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that have events, in order."""
        return tuple(sorted({e.step for e in self.events}))

    @property
    def span(self) -> tuple[float, float]:
        """First start and last stop in seconds; (0, 0) when nothing ran."""
        if not self.events:
            return 0.0, 0.0
        return min(map(_START, self.events)), max(map(_STOP, self.events))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        shown = hooks.picture(self) if self.events else {}
        return {**shown, "text/plain": f"<Trace: {len(self.events)} events>"}

    def save(self, path: str | os.PathLike[str], *, chrome: bool = True) -> Path:
        """Write the trace to a file: see :func:`dpexec.engine.trace.files.save`."""
        from dpexec.engine.trace.files import save

        return save(self, path, chrome=chrome)

    def to_json(self, *, events: bool = True) -> dict[str, Any]:
        """Return the trace as plain JSON values, column by column, with format name and version.

        Args:
            events: Whether to include the events.
        """
        made = {
            "format": FORMAT,
            "version": VERSION,
            "meta": dict(self.meta),
            "graph": self.graph,
            "memory": columns.pack(_MEMORY_COLUMNS, self.memory),
        }
        if events:
            made["events"] = columns.pack(EVENT_COLUMNS, self.events)
        return made

    @classmethod
    def from_json(
        cls, data: Mapping[str, Any], events: Iterable[tuple[Any, ...]] | None = None
    ) -> Trace:
        """Build a trace from the result of `to_json`.

        Args:
            data: plain JSON values.
            events: The fields of every event, if the data lacks them.

        Returns:
            The trace.

        Raises:
            TraceFormatError: The data is not a trace, is damaged, or is of another version.
        """
        if data.get("format") != FORMAT:
            raise TraceFormatError(f"not a dpexec trace: its format is {data.get('format')!r}")
        version = data.get("version")
        if version not in _READ:
            raise TraceFormatError(
                f"a dpexec trace of version {version!r}, but this dpexec reads versions "
                f"{' and '.join(map(str, _READ))}: read it with the one that wrote it"
            )
        if events is None:
            events = columns.unpack(EVENT_COLUMNS, data.get("events"), "events")
        return cls(
            _made(Event, events),
            _mapping(data, "meta") or {},
            _mapping(data, "graph"),
            _made(Allocation, columns.unpack(_MEMORY_COLUMNS, data.get("memory"), "memory")),
        )


def _mapping(data: Mapping[str, Any], field_name: str) -> dict[str, Any] | None:
    found = data.get(field_name)
    if found is not None and not isinstance(found, dict):
        raise TraceFormatError(f"damaged: {field_name} is no object, but {type(found).__name__}")
    return found


def _made(kind: type[Any], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    try:
        return tuple(kind(*row) for row in rows)
    except ValueError as error:
        raise TraceFormatError(f"damaged: {error}") from error
