"""Measurements by operator of the graph, by which the graph view is coloured."""

from __future__ import annotations

import numpy as np
from dpexec.viz.loop_rounds import rounds_of
from dpexec.viz.measured.activities import activities_of
from dpexec.viz.measured.critical_path import CriticalPath, critical_path
from dpexec.viz.measured.failures import failures
from dpexec.viz.measured.memory_use import memory_of
from dpexec.viz.measured.schedule import Schedule, Slice
from dpexec.viz.measured.turns import turns_of
from dpexec.viz.measured.typical import Typical
from dpexec.viz.pages.page_data import OverlayData, ReplayData

_NANO = 1e9
_DIGITS = 9  # decimals of seconds: no clock resolves less than a nanosecond
_MADE_IN_A_STEP = ("gradient", "temporary")


def overlay_of(schedule: Schedule) -> OverlayData | None:
    """Return time, slack, critical path and memory of every operator.

    Args:
        schedule: A trace.

    Returns:
        Columns by position of the node in the trace's graph: seconds per step and seconds of them
        on the critical path, both medians over the steps; slack in the typical step, which the page
        can replay; bytes of outputs that are alive at their device's peak; what failed. A kernel
        for several operators is shared out evenly among them; operators of a block count for the
        operator that runs it. None for a trace without a graph.
    """
    graph = schedule.trace.graph
    if graph is None:
        return None
    found_failures = reversed(failures(schedule))  # the first one of an operator is said
    failed = {str(node): one.text for one in found_failures for node in one.nodes}
    if not schedule.steps:
        return {"failed": failed}
    position = {node["id"]: index for index, node in enumerate(graph["nodes"])}
    count, typical = len(position), critical_path(schedule)
    found = _PerStep(), _PerStep()
    for step in schedule.counted:
        path = critical_path(schedule, step.number)
        for index in step.slices:
            piece = schedule.by_id[index]
            nodes = [position[node] for node in _nodes(schedule, piece)]
            for column, seconds in zip(found, (piece.own, path.times.get(index, 0.0)), strict=True):
                for node in nodes:
                    column.add(node, step.number, seconds / len(nodes))
    time, effect = (column.typical(count) for column in found)
    overlay: OverlayData = {
        "time": [one and round(one.median, _DIGITS) for one in time],
        "spread": [one and round(one.spread, _DIGITS) for one in time],
        "slack": _slack(schedule, typical, position),
        "effect": [one and round(one.median, _DIGITS) for one in effect],
        "critical": list(typical.nodes),
        "replay": _replay(schedule, position),
    }
    if failed:
        overlay["failed"] = failed
    found_rounds = rounds_of(schedule)
    if found_rounds:
        overlay["rounds"] = found_rounds
    if schedule.trace.memory:
        overlay["memory"] = _memory(schedule, position)
    return overlay


class _PerStep:
    """Seconds of operators by step."""

    def __init__(self) -> None:
        self._sums: dict[int, dict[int, float]] = {}

    def add(self, node: int, step: int, seconds: float) -> None:
        steps = self._sums.setdefault(node, {})
        steps[step] = steps.get(step, 0.0) + seconds

    def typical(self, count: int) -> list[Typical | None]:
        """By operator, over the steps in which it ran; None if it never ran."""
        found: list[Typical | None] = [None] * count
        by_length: dict[int, list[int]] = {}
        for node, steps in self._sums.items():
            by_length.setdefault(len(steps), []).append(node)
        for nodes in by_length.values():  # mostly all ran in all steps
            rows = np.array([list(self._sums[node].values()) for node in nodes], np.float64)
            for node, one in zip(nodes, Typical.of_rows(rows), strict=True):
                found[node] = one
        return found


def _slack(schedule: Schedule, path: CriticalPath, position: dict[int, int]) -> list[float | None]:
    found: list[float | None] = [None] * len(position)
    for index, spare in path.slack.items():
        for node in _nodes(schedule, schedule.by_id[index]):
            known = found[position[node]]
            found[position[node]] = spare if known is None else min(spare, known)
    return found


def _nodes(schedule: Schedule, piece: Slice) -> tuple[int, ...]:
    """The operators that the time of a slice belongs to."""
    if not piece.is_leaf_work:
        return ()
    nodes = schedule.nodes_of(piece)
    if nodes:
        return nodes
    around = schedule.node_of(piece)
    return () if around is None else (around,)


def _replay(schedule: Schedule, position: dict[int, int]) -> ReplayData:
    """The typical step, for the page to replay."""
    activities = activities_of(schedule, schedule.typical)
    owners: dict[tuple[int, ...], int] = {}
    owner = []
    for one in activities.all:
        nodes = tuple(position[node] for node in _nodes(schedule, one.piece) if node in position)
        owner.append(owners.setdefault(nodes, len(owners)))
    made: ReplayData = {
        "step": round(schedule.typical.seconds * _NANO),
        "time": [round((one.stop - one.start) * _NANO) for one in activities.all],
        "delay": [round(delay * _NANO) for delay in activities.delays],
        "before": activities.before,
        "owner": owner,
        "owners": list(owners),
    }
    turns = turns_of(activities)
    if len(turns.waiting):
        spans = np.rint(turns.seconds * _NANO).astype(np.int64)
        columns = turns.waiting, turns.source, spans, turns.is_inside
        made["waits"] = list(zip(*(column.tolist() for column in columns), strict=True))
    return made


def _memory(schedule: Schedule, position: dict[int, int]) -> list[int | None]:
    """By operator, bytes of its outputs at the peak; parameters and states count for none."""
    graph = schedule.trace.graph
    assert graph is not None
    maker: dict[tuple[int | None, str], int] = {}
    for node in graph["nodes"]:
        for var in (graph["vars"][number] for number in node["outputs"]):
            maker.setdefault((var["device"], var["name"]), position[node["id"]])
    found: list[int | None] = [None] * len(position)
    for device in memory_of(schedule):
        for part in device.peak.parts:
            index = maker.get((device.device, part.name))
            if index is not None and part.kind in _MADE_IN_A_STEP:
                found[index] = (found[index] or 0) + part.bytes
    return found
