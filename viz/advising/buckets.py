"""Advice on collectives that are many and small: each takes time however small it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from dpexec.viz.advising.waits import Advice, worth
from dpexec.viz.measured.activities import Activities, activities_of
from dpexec.viz.measured.replay import Replay
from dpexec.viz.measured.schedule import Schedule, Slice
from dpexec.viz.measured.what_if import WhatIf
from dpexec.viz.pages.units import bytes_text, seconds_text

_MANY = 4
_SMALLEST = 0.25
"""The share of the collectives, the smallest ones, whose time says what any of them takes."""

_SLOW = 1e9
"""Bytes a second that are moved at least; the rest of the time does not depend on them."""

_FUSED = "fused_all_reduce"  # as the pass of that name calls its collectives
_SIZE = "FLAGS_fuse_parameter_memory_size (in MB, before the program is compiled)"


def buckets_advice(schedule: Schedule, what_if: WhatIf) -> Iterator[Advice]:
    """Say what a step would save if all of its collectives were one.

    Args:
        schedule: The trace.
        what_if: Replays of steps.
    """
    steps = [_collectives(activities_of(schedule, step)) for step in schedule.middle]
    found = [sorted(step, key=lambda piece: _bytes(schedule, piece)) for step in steps]
    counts = [len({piece.event.node for piece in step}) for step in found]
    if min(counts, default=0) < _MANY:
        return
    fixed = median(_fixed(schedule, step) for step in found)
    if not fixed:
        return
    count, sizes = round(median(counts)), [_bytes(schedule, p) for step in found for p in step]
    saved = what_if.saved(lambda replay: _as_one(replay, fixed))
    text = (
        f"a step has {count} collectives of {bytes_text(median(sizes))} each (the median), which "
        f"take {seconds_text(fixed)} however small they are: {_remedy(schedule)}"
    )
    nodes = sorted({piece.event.node for piece in found[0] if piece.event.node is not None})
    yield Advice(worth(text, saved), tuple(nodes), saved)


def _collectives(activities: Activities) -> list[Slice]:
    pieces = {one.piece.id: one.piece for one in activities.all if one.waits_for is None}
    schedule = activities.runs.schedule
    return [piece for piece in pieces.values() if _is_collective(schedule, piece)]


def _is_collective(schedule: Schedule, piece: Slice) -> bool:
    """Whether it could be one with others: rows of sparse gradients stay apart."""
    if piece.event.kind != "collective" or piece.event.node is None:
        return False
    return all(var["bytes"] is not None for var in _made(schedule, piece))


def _made(schedule: Schedule, piece: Slice) -> list[dict[str, Any]]:
    facts, node = schedule.facts, piece.event.node
    if facts is None or node is None:
        return []
    return [facts.vars[var] for var in facts.by_id[node]["outputs"]]


def _bytes(schedule: Schedule, piece: Slice) -> int:
    """The bytes of a collective, of one device."""
    made = _made(schedule, piece)
    devices = len({var["device"] for var in made}) or 1
    return sum(var["bytes"] or 0 for var in made) // devices


def _fixed(schedule: Schedule, ordered: Sequence[Slice]) -> float:
    """Seconds of a collective of no bytes: what the smallest ones take, less what bytes explain."""
    smallest = ordered[: max(1, round(_SMALLEST * len(ordered)))]
    times = (
        piece.event.duration - piece.event.args.get("waited", 0.0) - _bytes(schedule, piece) / _SLOW
        for piece in smallest
    )
    return max(0.0, median(times))


def _as_one(replay: Replay, fixed: float) -> float:
    """Seconds of a step in which all collectives but the last pass without that time."""
    activities = replay.activities
    times, delays = replay.recorded.copy(), list(activities.delays)
    places = [
        at
        for at, one in enumerate(activities.all)
        if one.waits_for is None and _is_collective(activities.runs.schedule, one.piece)
    ]
    last = activities.all[places[-1]].piece.event.node if places else None
    for at in places:
        if activities.all[at].piece.event.node == last:
            continue
        times[at] -= min(times[at], fixed)
        if activities.is_first(at):
            delays[at] = min(0.0, delays[at])
    return replay.seconds(times, delays)


def _remedy(schedule: Schedule) -> str:
    names = {node["name"] for node in schedule.facts.nodes} if schedule.facts else set()
    if _FUSED in names:
        return f"{_SIZE} makes fewer and larger ones"
    if _FUSED.removeprefix("fused_") not in names:
        return f"AllReduce mode joins them, with fuse_all_reduce_ops and {_SIZE}"
    return f"BuildStrategy.fuse_all_reduce_ops = True joins those of a layer, {_SIZE} more of them"
