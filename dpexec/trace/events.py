"""The events of a run and their JSON form, which carries a version number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

FORMAT = "dpexec.trace"
VERSION = 1

Kind = Literal["task", "op", "collective"]
KINDS: tuple[str, ...] = get_args(Kind)


class TraceFormatError(ValueError):
    """A file or object is not a trace that this version of dpexec can read."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that ran once.

    Args:
        name: What people read: the op type, or the name of the segment.
        kind: "task" for a scheduled task, "op" for an operator inside one, "collective" for an
            operation over several devices.
        device: Index of the device, None when the event belongs to all of them.
        key: Key of the task it belongs to; the ops of a task carry the key of that task.
        start: Seconds on a monotonic clock.
        stop: Seconds on the same clock, not before start.
        thread: Identifier of the thread that did the work.
        args: Further facts, anything that JSON can hold.
    """

    name: str
    kind: Kind
    device: int | None
    key: str
    start: float
    stop: float
    thread: int = 0
    args: Mapping[str, Any] = field(default_factory=dict)

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

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain JSON values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "device": self.device,
            "key": self.key,
            "start": self.start,
            "stop": self.stop,
            "thread": self.thread,
            "args": dict(self.args),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Event:
        """Build an event from what `to_json` returned.

        Raises:
            TraceFormatError: A field is missing or impossible.
        """
        try:
            return cls(
                name=data["name"],
                kind=data["kind"],
                device=data["device"],
                key=data["key"],
                start=float(data["start"]),
                stop=float(data["stop"]),
                thread=int(data["thread"]),
                args=dict(data["args"]),
            )
        except KeyError as error:
            raise TraceFormatError(f"an event lacks the field {error}: {dict(data)}") from error
        except (TypeError, ValueError) as error:
            raise TraceFormatError(f"not an event: {data!r} ({error})") from error


@dataclass(frozen=True, slots=True)
class Trace:
    """Events in order of their start, and facts about the run as a whole.

    Example:
        >>> trace = Trace((Event("relu", "op", 0, "fwd", 0.0, 0.5),), {"devices": 1})
        >>> Trace.from_json(trace.to_json()) == trace
        True
    """

    events: tuple[Event, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices that have events, in order."""
        return tuple(sorted({e.device for e in self.events if e.device is not None}))

    @property
    def span(self) -> tuple[float, float]:
        """First start and last stop in seconds; (0, 0) when nothing ran."""
        if not self.events:
            return 0.0, 0.0
        return min(e.start for e in self.events), max(e.stop for e in self.events)

    def to_json(self) -> dict[str, Any]:
        """Return the trace as plain JSON values, with format name and version."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "meta": dict(self.meta),
            "events": [event.to_json() for event in self.events],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trace:
        """Build a trace from what `to_json` returned.

        Raises:
            TraceFormatError: It is something else, or was written by a newer version.
        """
        if data.get("format") != FORMAT:
            raise TraceFormatError(f"not a dpexec trace: format is {data.get('format')!r}")
        if data.get("version") != VERSION:
            raise TraceFormatError(
                f"trace version {data.get('version')!r}; this dpexec reads version {VERSION}"
            )
        events = data.get("events")
        if not isinstance(events, list):
            raise TraceFormatError("a dpexec trace needs a list of events")
        return cls(tuple(Event.from_json(event) for event in events), dict(data.get("meta", {})))
