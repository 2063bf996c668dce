"""The figures in the columns of a table, for a group of slices."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.viz.measured import traffic
from dpexec.viz.measured.grouping import By
from dpexec.viz.measured.schedule import Schedule, Slice


def times(group: Sequence[Slice], by: By) -> list[float]:
    """Seconds of every call; a node's call includes the operators of its blocks."""
    if by == "task":
        return [piece.event.duration for piece in group]
    call_of: dict[int | None, int] = {}
    times: dict[int, float] = {}
    for piece in group:  # outer ones come first
        call = call_of.get(piece.parent, piece.id) if by == "node" else piece.id
        call_of[piece.id] = call
        times[call] = times.get(call, 0.0) + max(0.0, piece.own)
    return list(times.values())


def bytes(schedule: Schedule, group: Sequence[Slice]) -> float | None:
    """Bytes per call, from the recording or from the graph."""
    total = 0
    for piece in group:
        size = piece.event.args.get("bytes")
        if size is None and schedule.facts is not None and piece.event.node is not None:
            size = schedule.facts.bytes_of(schedule.nodes_of(piece))
        if size is None:
            return None
        total += size
    return total / len(group)


def moved(schedule: Schedule, group: Sequence[Slice], by: By) -> float | None:
    """Bytes that a step moved, as far as known; those of a task include its operators'."""
    tasks = by == "task"
    sizes = schedule.once(("moved", tasks), lambda: _moved_in(schedule, tasks))
    known = [sizes[piece.id] for piece in group if piece.id in sizes]
    return sum(known) / len(schedule.counted) if known else None


def _moved_in(schedule: Schedule, tasks: bool) -> dict[int, int]:
    """Bytes by slice, or by the task that the slice is part of."""
    found: dict[int, int] = {}
    for index, sizes in traffic.moved(schedule).items():
        parent = schedule.by_id[index].parent if tasks else None
        place = index if parent is None else parent
        found[place] = found.get(place, 0) + sum(sizes.values())
    return found


def gflops(schedule: Schedule, group: Sequence[Slice], seconds: float) -> float | None:
    """Floating point operations per nanosecond, if those of all slices are known."""
    facts = schedule.facts
    if facts is None or not seconds:
        return None
    known: dict[int, float | None] = {}
    total = 0.0
    for piece in group:
        node = piece.event.node
        if node is None:
            return None
        if node not in known:
            parts = [facts.by_id[part].get("flops") for part in schedule.nodes_of(piece)]
            counted = [part for part in parts if part is not None]
            known[node] = sum(counted) if counted else None
        one = known[node]
        if one is None:
            return None
        total += one
    return total / seconds / 1e9
