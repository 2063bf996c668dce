"""The JSON that chrome://tracing and ui.perfetto.dev open.

Format: "Trace Event Format" of the Chromium project, complete events (ph "X"), microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpexec.trace.events import FORMAT, Event, Trace, TraceFormatError

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
    return {"traceEvents": rows, "displayTimeUnit": "ms", "otherData": trace.to_json()}


def _meta(kind: str, thread: int, **args: Any) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": _PROCESS, "tid": thread, "args": args}


def from_chrome(data: Mapping[str, Any]) -> Trace:
    """Read back what `to_chrome` made, exactly; of version 1 times agree to a nanosecond.

    Raises:
        TraceFormatError: The file is not one of dpexec's, or damaged.
    """
    other = data.get("otherData")
    if not isinstance(other, dict) or other.get("format") != FORMAT:
        raise TraceFormatError("a Chrome trace, but not one that dpexec wrote")
    return Trace.from_json(
        {**other, "events": _old_rows(data)} if other.get("version") == 1 else other
    )


def _old_rows(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The events of version 1, which were nowhere but in the rows that Chrome shows."""
    rows = []
    try:
        for row in data["traceEvents"]:
            if row["ph"] != "X":
                continue
            args = dict(row["args"])
            start = float(data["otherData"]["origin"]) + row["ts"] / _MICRO
            what = {name: args.pop(name) for name in ("key", "device", "thread")}
            times = {"start": start, "stop": start + row["dur"] / _MICRO}
            rows.append({"name": row["name"], "kind": row["cat"], **what, **times, "args": args})
    except (KeyError, TypeError, ValueError) as error:
        raise TraceFormatError(f"damaged: a row is not what it should be ({error!r})") from error
    return rows
