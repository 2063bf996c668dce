"""Traces as JSON for chrome://tracing and ui.perfetto.dev.

Every event is stored once: dpexec reads back the same rows that those tools draw.

Format: "Trace Event Format" of the Chromium project: complete events (ph "X"), metadata ("M"),
arrows between tasks ("s" to "f"), counters ("C"), steps as markers ("i") and spans ("b" to "e");
microseconds since the first event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpexec.engine.trace import columns
from dpexec.engine.trace.events import EVENT_COLUMNS, FORMAT, Event, Trace, TraceFormatError

__all__ = ["from_chrome", "to_chrome"]

_NANO = 1_000_000_000
_NANO_OF_MICRO = 1000
_FACTS = ("key", "step", "node", "device")
_ARGS = "args"  # key for those args of an event whose names equal names of its fields

Track = tuple[int, str]
"""Number of the process, and name of the track."""
Row = dict[str, Any]


def to_chrome(trace: Trace) -> dict[str, Any]:
    """Return the trace in Chrome's format.

    There is a process for every device, one for collectives, and one for feeds and fetches. Each
    has a track per thread, on which operators lie inside their tasks. Arrows lead from a task to
    the tasks that wait for it. Counters show the memory of each device and the bytes moved. Markers
    show where steps begin and end.

    Args:
        trace: What to export.

    Returns:
        A JSON object with "traceEvents", "displayTimeUnit" and "otherData", which holds the rest of
        the trace that the rows lack.
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
    rows.extend(_steps(trace, clock))
    other = {**trace.to_json(events=False), "events": _rest(trace, placed, tracks, clock)}
    return {"traceEvents": rows, "displayTimeUnit": "ms", "otherData": other}


class _Clock:
    """Microseconds since the begin in whole nanoseconds, so that parts stay inside their task."""

    def __init__(self, origin: float) -> None:
        self.origin = _nano(origin)

    def at(self, time: float) -> float:
        return (_nano(time) - self.origin) / _NANO_OF_MICRO

    def of(self, event: Event) -> dict[str, float]:
        start, stop = _nano(event.start), _nano(event.stop)
        return {
            "ts": (start - self.origin) / _NANO_OF_MICRO,
            "dur": (stop - start) / _NANO_OF_MICRO,
        }


def _nano(seconds: float) -> int:
    return round(seconds * _NANO)


def _arguments(event: Event) -> dict[str, Any]:
    """The fields and args of an event; args with names of fields are stored separately."""
    facts = {name: getattr(event, name) for name in _FACTS}
    known = {name: value for name, value in facts.items() if value is not None}
    if any(name in event.args for name in (*_FACTS, _ARGS)):
        return {_ARGS: dict(event.args), **known}
    return {**event.args, **known}


# ---- processes and tracks


def _process(event: Event, collectives: int) -> int:
    """The process of an event: feeds and fetches first, then devices, then collectives."""
    if event.device is not None:
        return event.device + 1
    return 0 if event.kind in ("feed", "fetch") else collectives


def _collectives(trace: Trace) -> int:
    """The number of the process of collectives."""
    return max(trace.devices, default=-1) + 2


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

    Slices of a track overlap only if one is the other's task. Other overlapping events of a thread
    get a second track.
    """
    opened: dict[tuple[int, str], list[list[Event]]] = {}
    collectives = _collectives(trace)  # once: it is a search of all events
    for event in sorted(trace.events, key=lambda e: (e.start, -e.stop, e.kind != "task")):
        worker = event.args.get("worker")
        name = f"thread {event.thread}" + (f" of {worker}" if worker else "")
        process = _process(event, collectives)
        lanes = opened.setdefault((process, name), [])
        number = next((n for n, lane in enumerate(lanes) if _fits(event, lane)), len(lanes))
        if number == len(lanes):
            lanes.append([])
        lanes[number].append(event)
        yield (process, name + (f" ({number + 1})" if number else "")), event


def _fits(event: Event, lane: list[Event]) -> bool:
    """Whether a lane has room for the event: it is free at that time, or holds the event's task."""
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
    """Arrows from the end of every task to the begin of the tasks that wait for it, per step."""
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
            leave = round(begin + max(0.0, length - 1 / _NANO_OF_MICRO), 3)
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
        row["args"] = dict(kinds)  # a later change at the same time replaces it
    yield from latest.values()


def _moved(trace: Trace, clock: _Clock) -> Iterator[Row]:
    """The bytes that collectives and transfers have moved so far."""
    total, process = 0, _collectives(trace)
    moving = [event for event in trace if "bytes" in event.args and event.kind != "feed"]
    for event in sorted(moving, key=lambda event: event.stop):
        total += event.args["bytes"]
        row = {"name": "bytes moved", "ph": "C", "pid": process, "tid": 0}
        yield {**row, "ts": clock.at(event.stop), "args": {"bytes": total}}


# ---- reading back


def _steps(trace: Trace, clock: _Clock) -> Iterator[Row]:
    """A marker across all tracks where a step begins, and a track with the steps."""
    spans: dict[int, tuple[float, float]] = {}
    for event in trace.events:
        first, last = spans.get(event.step, (event.start, event.stop))
        spans[event.step] = min(first, event.start), max(last, event.stop)
    for number, (first, last) in sorted(spans.items()):
        place = {"pid": 0, "tid": 0, "cat": "step"}
        args = {"step": number}
        ends = {**place, "name": "step", "id": number, "args": args}
        line = {**place, "name": f"step {number}", "ph": "i", "s": "g", "args": args}
        yield {**line, "ts": clock.at(first)}
        yield {**ends, "ph": "b", "ts": clock.at(first)}
        yield {**ends, "ph": "e", "ts": clock.at(last)}


def _rest(
    trace: Trace,
    placed: Sequence[tuple[Track, Event]],
    tracks: Mapping[Track, int],
    clock: _Clock,
) -> dict[str, Any]:
    """Facts about the events that the rows lack.

    These are the number of events, the thread of every track, and the origin of times in
    nanoseconds; where needed, also the order of the events, and times that are not whole
    nanoseconds.
    """
    threads = {tracks[track]: event.thread for track, event in placed}
    rest: dict[str, Any] = {
        "count": len(placed),
        "origin": clock.origin,
        "threads": [threads[number] for number in sorted(threads)],
    }
    at = {id(event): number for number, (_, event) in enumerate(placed)}
    order = [at[id(event)] for event in trace.events]
    if order != sorted(order):
        rest["order"] = order
    times = [(event.start, event.stop) for _, event in placed]
    if any(_nano(time) / _NANO != time for pair in times for time in pair):
        rest["times"] = times
    return rest


def from_chrome(data: Mapping[str, Any]) -> Trace:
    """Read back a result of `to_chrome`, exactly.

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
    events = other.get("events")
    if not isinstance(events, dict) or "origin" not in events:
        return Trace.from_json(other)  # the events are in columns, or it is damaged
    try:
        rows = [row for row in data["traceEvents"] if row["ph"] == "X"]
        fields = _fields(rows, events)
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise TraceFormatError(f"damaged: events lack {error}") from error
    return Trace.from_json(other, events=fields)


def _fields(rows: Sequence[Row], rest: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The fields of the events, in the order of the trace."""
    if len(rows) != rest["count"]:
        raise TraceFormatError(f"damaged: {len(rows)} of {rest['count']} events")
    facts = [row["args"] for row in rows]
    found = {
        "name": [row["name"] for row in rows],
        "kind": [row["cat"] for row in rows],
        "device": [fact.get("device") for fact in facts],
        "key": [fact["key"] for fact in facts],
        **_times(rows, rest),
        "thread": [rest["threads"][row["tid"] - 1] for row in rows],
        "node": [fact.get("node") for fact in facts],
        "step": [fact["step"] for fact in facts],
        "args": [_own(fact) for fact in facts],
    }
    made = columns.typed(EVENT_COLUMNS, found, "events")
    order = rest.get("order")
    if order is None:
        return list(made)
    if sorted(order) != list(range(len(rows))):
        raise TraceFormatError("damaged: the order of the events")
    listed = list(made)
    return [listed[number] for number in order]


def _own(arguments: Row) -> Row:
    """The args of an event, restored from the result of `_arguments`."""
    if _ARGS in arguments:
        own: Row = arguments[_ARGS]
        return own
    return {name: value for name, value in arguments.items() if name not in _FACTS}


def _times(rows: Sequence[Row], rest: Mapping[str, Any]) -> dict[str, list[float]]:
    if "times" in rest:
        return {
            "start": [start for start, _ in rest["times"]],
            "stop": [stop for _, stop in rest["times"]],
        }
    begun = [rest["origin"] + round(row["ts"] * _NANO_OF_MICRO) for row in rows]
    took = [round(row["dur"] * _NANO_OF_MICRO) for row in rows]
    return {
        "start": [start / _NANO for start in begun],
        "stop": [(start + length) / _NANO for start, length in zip(begun, took, strict=True)],
    }
