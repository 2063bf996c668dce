"""The JSON that chrome://tracing and ui.perfetto.dev open.

Format: "Trace Event Format" of the Chromium project: complete events (ph "X"), metadata ("M"),
arrows between tasks ("s" to "f") and counters ("C"); microseconds since the first event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpexec.engine.trace.events import FORMAT, Event, Trace, TraceFormatError

__all__ = ["from_chrome", "to_chrome"]

_MICRO = 1e6
_NANO_DIGITS = 3  # of microseconds

Track = tuple[int, str]
"""Number of the process, and name of the track."""
Row = dict[str, Any]


def to_chrome(trace: Trace) -> dict[str, Any]:
    """Return the trace in Chrome's format.

    There is a process for every device, one for what devices do together, and one for what comes in
    and goes out; in each a track for every thread, on which what a task did lies inside of it.
    Arrows go from a task to those that wait for it. Counters show the memory of each device and the
    bytes that were moved.

    Args:
        trace: What to export.

    Returns:
        A JSON object with "traceEvents", "displayTimeUnit" and "otherData", which is the trace.
    """
    clock = _Clock(min([trace.span[0], *(item.time for item in trace.memory)], default=0.0))
    placed = list(_placed(trace))
    tracks = {track: n + 1 for n, track in enumerate(sorted({track for track, _ in placed}))}
    rows = list(_names(trace, tracks))
    rows.extend(
        {
            "name": event.name,
            "cat": event.kind,
            "ph": "X",
            "pid": track[0],
            "tid": tracks[track],
            **clock.of(event),
            "args": _arguments(event),
        }
        for track, event in placed
    )
    tasks = [(track, event) for track, event in placed if event.kind == "task"]
    rows.extend(_arrows(trace, tasks, tracks, clock))
    rows.extend(_memory(trace, clock))
    rows.extend(_moved(trace, clock))
    return {"traceEvents": rows, "displayTimeUnit": "ms", "otherData": trace.to_json()}


class _Clock:
    """Microseconds since the begin, in whole nanoseconds, so that parts stay inside."""

    def __init__(self, origin: float) -> None:
        self._origin = origin

    def at(self, time: float) -> float:
        return round((time - self._origin) * _MICRO, _NANO_DIGITS)

    def of(self, event: Event) -> dict[str, float]:
        start = self.at(event.start)
        return {"ts": start, "dur": round(self.at(event.stop) - start, _NANO_DIGITS)}


def _arguments(event: Event) -> dict[str, Any]:
    facts = {"key": event.key, "step": event.step, "node": event.node, "device": event.device}
    return {**event.args, **{name: value for name, value in facts.items() if value is not None}}


# ---- processes and tracks


def _process(trace: Trace, event: Event) -> int:
    """Feeds and fetches come first, then the devices, then what they do together."""
    if event.device is not None:
        return event.device + 1
    return 0 if event.kind in ("feed", "fetch") else max(trace.devices, default=-1) + 2


def _process_name(trace: Trace, process: int) -> str:
    if process == 0:
        return "feed and fetch"
    if process - 1 not in trace.devices:
        return "collectives"
    places = trace.meta.get("places") or []
    place = f" ({places[process - 1]})" if process <= len(places) else ""
    return f"device {process - 1}{place}"


def _placed(trace: Trace) -> Iterator[tuple[Track, Event]]:
    """Every event with its track.

    Slices of one track never overlap unless one is part of the other, its task: what a thread seems
    to do at the same time gets a second track.
    """
    opened: dict[tuple[int, str], list[list[Event]]] = {}
    for event in sorted(trace.events, key=lambda e: (e.start, -e.stop, e.kind != "task")):
        worker = event.args.get("worker")
        name = f"thread {event.thread}" + (f" of {worker}" if worker else "")
        process = _process(trace, event)
        lanes = opened.setdefault((process, name), [])
        number = next((n for n, lane in enumerate(lanes) if _fits(event, lane)), len(lanes))
        if number == len(lanes):
            lanes.append([])
        lanes[number].append(event)
        yield (process, name + (f" ({number + 1})" if number else "")), event


def _fits(event: Event, lane: list[Event]) -> bool:
    """Whether the event may go into a lane: onto nothing, or into what it is part of."""
    while lane and lane[-1].stop <= event.start:
        lane.pop()
    if not lane:
        return True
    top = lane[-1]
    return event.kind != "task" and top.key == event.key and event.stop <= top.stop


def _names(trace: Trace, tracks: Mapping[Track, int]) -> Iterator[Row]:
    for process in sorted({process for process, _ in tracks}):
        yield _meta("process_name", process, 0, name=_process_name(trace, process))
        yield _meta("process_sort_index", process, 0, sort_index=process)
    for (process, name), number in tracks.items():
        yield _meta("thread_name", process, number, name=name)
        yield _meta("thread_sort_index", process, number, sort_index=number)


def _meta(kind: str, process: int, thread: int, **args: Any) -> Row:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": args}


# ---- arrows and counters


def _arrows(
    trace: Trace,
    tasks: list[tuple[Track, Event]],
    tracks: Mapping[Track, int],
    clock: _Clock,
) -> Iterator[Row]:
    """From the end of every task to the begin of those that wait for it, step by step."""
    after = {task["key"]: task["after"] for task in (trace.graph or {}).get("tasks", ())}
    first: dict[tuple[int, str], tuple[Track, Event]] = {}
    last: dict[tuple[int, str], tuple[Track, Event]] = {}
    for track, event in tasks:
        place = event.step, event.key
        if place not in first or event.start < first[place][1].start:
            first[place] = track, event
        if place not in last or event.stop > last[place][1].stop:
            last[place] = track, event
    number = 0
    for (step, key), (track, event) in first.items():
        for before in after.get(key, ()):
            if (step, before) not in last:
                continue
            number += 1
            source_track, source = last[step, before]
            begin, length = clock.of(source).values()
            ends = {"name": "waits for", "cat": "dependency", "id": number}
            leave = round(begin + max(0.0, length - 10**-_NANO_DIGITS), _NANO_DIGITS)
            yield _point("s", source_track, tracks, leave, ends)
            yield _point("f", track, tracks, clock.at(event.start), {**ends, "bp": "e"})


def _point(kind: str, track: Track, tracks: Mapping[Track, int], at: float, facts: Row) -> Row:
    return {**facts, "ph": kind, "pid": track[0], "tid": tracks[track], "ts": at}


def _memory(trace: Trace, clock: _Clock) -> Iterator[Row]:
    """The bytes of each kind that a device holds, whenever they change."""
    held: dict[int, dict[str, int]] = {}
    latest: dict[tuple[int, float], Row] = {}
    for item in trace.memory:
        kinds = held.setdefault(item.device, {})
        kinds[item.kind] = kinds.get(item.kind, 0) + item.bytes
        at = clock.at(item.time)
        row = latest.setdefault(
            (item.device, at),
            {"name": "memory", "ph": "C", "pid": item.device + 1, "tid": 0, "ts": at},
        )
        row["args"] = dict(kinds)  # what comes at the same time replaces it
    yield from latest.values()


def _moved(trace: Trace, clock: _Clock) -> Iterator[Row]:
    """The bytes that collectives and transfers have moved so far."""
    total = 0
    process = max(trace.devices, default=-1) + 2
    moving = [event for event in trace if "bytes" in event.args and event.kind != "feed"]
    for event in sorted(moving, key=lambda event: event.stop):
        total += event.args["bytes"]
        row = {"name": "bytes moved", "ph": "C", "pid": process, "tid": 0}
        yield {**row, "ts": clock.at(event.stop), "args": {"bytes": total}}


# ---- reading back


def from_chrome(data: Mapping[str, Any]) -> Trace:
    """Read back what `to_chrome` made, exactly.

    Args:
        data: the content of a file.

    Returns:
        The trace.

    Raises:
        TraceFormatError: The file is not one of dpexec's, or damaged.
    """
    other = data.get("otherData")
    if not isinstance(other, dict) or other.get("format") != FORMAT:
        raise TraceFormatError("a Chrome trace, but not one that dpexec wrote")
    return Trace.from_json(other)
