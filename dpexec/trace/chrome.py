"""Trace files: the JSON that chrome://tracing and ui.perfetto.dev open, and dpexec's own.

Format: "Trace Event Format" of the Chromium project, complete events (ph "X"), microseconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpexec.trace.events import FORMAT, VERSION, Event, Trace, TraceFormatError

_PROCESS = 1
_MICRO = 1e6


def _group(event: Event) -> tuple[int, int]:
    """Sort key of the lane group: devices in order, then the collectives."""
    return (1, 0) if event.device is None else (0, event.device)


def _group_name(group: tuple[int, int]) -> str:
    return "collectives" if group == (1, 0) else f"device {group[1]}"


def _fits(event: Event, open_events: list[Event]) -> bool:
    """Whether the event may go into a lane: onto nothing, or into the task it is part of."""
    while open_events and open_events[-1].stop <= event.start:
        open_events.pop()
    if not open_events:
        return True
    top = open_events[-1]
    return event.kind != "task" and top.key == event.key and event.stop <= top.stop


def _lanes(events: tuple[Event, ...]) -> Iterator[tuple[tuple[int, int], int, Event]]:
    """Yield (group, number of the lane in its group, event).

    Slices of one lane never overlap unless one is part of the other, its task: tasks of one device
    that ran at the same time on two threads get a second lane.
    """
    lanes: dict[tuple[int, int], list[list[Event]]] = {}
    for event in sorted(events, key=lambda e: (e.start, -e.stop, e.kind != "task")):
        group = lanes.setdefault(_group(event), [])
        fitting = (number for number, opened in enumerate(group) if _fits(event, opened))
        number = next(fitting, len(group))
        if number == len(group):
            group.append([])
        group[number].append(event)
        yield _group(event), number, event


def to_chrome(trace: Trace) -> dict[str, Any]:
    """Return the trace in Chrome's format: a lane per device, then one for collectives.

    Args:
        trace: What to export. Times become microseconds since the first event.

    Returns:
        A JSON object with "traceEvents", "displayTimeUnit" and "otherData".
    """
    origin = trace.span[0]
    placed = list(_lanes(trace.events))
    threads = {lane: n for n, lane in enumerate(sorted({(g, k) for g, k, _ in placed}))}
    rows: list[dict[str, Any]] = [_meta("process_name", 0, name="dpexec")]
    for (group, number), thread in threads.items():
        suffix = f" ({number + 1})" if number else ""
        rows.append(_meta("thread_name", thread, name=_group_name(group) + suffix))
        rows.append(_meta("thread_sort_index", thread, sort_index=thread))
    for group, number, event in placed:
        rows.append(
            {
                "name": event.name,
                "cat": event.kind,
                "ph": "X",
                "pid": _PROCESS,
                "tid": threads[group, number],
                "ts": (event.start - origin) * _MICRO,
                "dur": event.duration * _MICRO,
                "args": {
                    **event.args,
                    "key": event.key,
                    "device": event.device,
                    "thread": event.thread,
                },
            }
        )
    other = {"format": FORMAT, "version": VERSION, "origin": origin, "meta": dict(trace.meta)}
    return {"traceEvents": rows, "displayTimeUnit": "ms", "otherData": other}


def _meta(kind: str, thread: int, **args: Any) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": _PROCESS, "tid": thread, "args": args}


def from_chrome(data: Mapping[str, Any]) -> Trace:
    """Read back what `to_chrome` made; times agree to a nanosecond.

    Raises:
        TraceFormatError: The file is not one of dpexec's.
    """
    other = data.get("otherData", {})
    if other.get("format") != FORMAT or other.get("version") != VERSION:
        raise TraceFormatError(
            "a Chrome trace, but not one that this version of dpexec wrote (otherData.format is "
            f"{other.get('format')!r}, otherData.version is {other.get('version')!r})"
        )
    origin = float(other["origin"])
    events = []
    for row in data["traceEvents"]:
        if row["ph"] != "X":
            continue
        args = dict(row["args"])
        start = origin + row["ts"] / _MICRO
        events.append(
            Event(
                name=row["name"],
                kind=row["cat"],
                device=args.pop("device"),
                key=args.pop("key"),
                start=start,
                stop=start + row["dur"] / _MICRO,
                thread=args.pop("thread"),
                args=args,
            )
        )
    return Trace(tuple(events), other["meta"])


def save(trace: Trace, path: str | os.PathLike[str], *, chrome: bool = True) -> Path:
    """Write a trace to a file.

    Args:
        trace: What to write.
        path: The file; its folder must exist.
        chrome: Chrome's format, which Perfetto opens too; False for dpexec's own, which keeps every
            digit of the times.

    Returns:
        The path.
    """
    target = Path(path)
    content = to_chrome(trace) if chrome else trace.to_json()
    target.write_text(json.dumps(content), encoding="utf-8")
    return target


def load(path: str | os.PathLike[str]) -> Trace:
    """Read a trace that `save` wrote, in either format.

    Raises:
        TraceFormatError: The file holds something else.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise TraceFormatError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise TraceFormatError(f"{path} holds no trace")
    return from_chrome(data) if "traceEvents" in data else Trace.from_json(data)
