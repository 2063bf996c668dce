"""What was measured, by operator of the graph: what the graph view colours by."""

from __future__ import annotations

from dpexec.viz.measured.critical_path import critical_path
from dpexec.viz.measured.schedule import Schedule, Slice
from dpexec.viz.memory import memory_of
from dpexec.viz.pages.page_data import OverlayData

_MADE_IN_A_STEP = ("gradient", "temporary")


def overlay_of(schedule: Schedule) -> OverlayData | None:
    """Return time, slack, critical path and memory of every operator.

    Args:
        schedule: A trace.

    Returns:
        Columns by position of the node in the trace's graph: seconds per step, where a kernel that
        stands for several operators is shared out evenly, and what blocks run belongs to the
        operator that runs them; slack in the typical step; bytes of outputs that are alive at their
        device's peak. None for a trace without a graph.
    """
    graph = schedule.trace.graph
    if graph is None:
        return None
    position = {node["id"]: index for index, node in enumerate(graph["nodes"])}
    time: list[float | None] = [None] * len(position)
    slack: list[float | None] = [None] * len(position)
    path = critical_path(schedule)
    steps = schedule.counted
    for piece in (schedule.by_id[index] for step in steps for index in step.slices):
        nodes = [position[node] for node in _nodes(schedule, piece)]
        for index in nodes:
            share = piece.own / len(nodes) / len(steps)
            time[index] = (time[index] or 0.0) + share
            spare = path.slack.get(piece.id)
            if spare is not None:
                known = slack[index]
                slack[index] = spare if known is None else min(spare, known)
    overlay: OverlayData = {"time": time, "slack": slack, "critical": list(path.nodes)}
    if schedule.trace.memory:
        overlay["memory"] = _memory(schedule, position)
    return overlay


def _nodes(schedule: Schedule, piece: Slice) -> tuple[int, ...]:
    """The operators that the time of a slice belongs to."""
    if not piece.is_leaf_work:
        return ()
    around = schedule.node_of(piece)
    return schedule.nodes_of(piece) or (() if around is None else (around,))


def _memory(schedule: Schedule, position: dict[int, int]) -> list[int | None]:
    """Bytes at the peak of what each operator made; parameters and states belong to none."""
    graph = schedule.trace.graph
    assert graph is not None
    maker: dict[tuple[int | None, str], int] = {}
    for node in graph["nodes"]:
        for var in (graph["vars"][number] for number in node["outputs"]):
            maker.setdefault((var["device"], var["name"]), position[node["id"]])
    found: list[int | None] = [None] * len(position)
    for device in memory_of(schedule.trace):
        for part in device.peak.parts:
            index = maker.get((device.device, part.name))
            if index is not None and part.kind in _MADE_IN_A_STEP:
                found[index] = (found[index] or 0) + part.bytes
    return found
