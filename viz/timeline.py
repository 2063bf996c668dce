"""`dpexec.viz.timeline`: tasks and operators over time, a row per device and thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from dpexec.viz.advising.path_text import waited
from dpexec.viz.graphs.groups import Group, groups
from dpexec.viz.measured.critical_path import critical_path
from dpexec.viz.measured.failures import failure_texts, failures
from dpexec.viz.measured.memory_use import live_counters
from dpexec.viz.measured.moments import moments
from dpexec.viz.measured.runs import runs_of
from dpexec.viz.measured.schedule import Schedule, Slice
from dpexec.viz.pages.load import as_trace
from dpexec.viz.pages.page_data import PlayData, SlicesData, TimelineData, TimelineGroupData
from dpexec.viz.pages.style import ROLE_NAMES
from dpexec.viz.pages.units import counted, seconds_text
from dpexec.viz.pages.view import View
from dpexec.viz.timeline_svg import render

from dpexec.engine.trace import Trace

_NANO = 1e9
_NAMED = 4  # failed steps in the title
_FOLDING = ("repeat", "block", "layer")
"""Kinds of groups that are shown as slices."""


class Timeline(View):
    """The slices of a run on their tracks.

    Args:
        trace: What a run recorded, such as `replicas.trace`.
        steps: Numbers of the steps to show; None for all. The static picture shows the typical one.
        layers: The groups of the trace's graph, if they are known already.

    Raises:
        ValueError: The trace is empty, or has no such step.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec import viz
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))
        >>> how = fluid.ExecutionStrategy()
        >>> how.trace = True
        >>> two = fluid.CompiledProgram(main).with_data_parallel(
        ...     loss.name, exec_strategy=how, places=fluid.cpu_places(2)
        ... )
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     for step in range(3):
        ...         _ = exe.run(two, feed={"x": np.ones([4, 2], "float32")}, fetch_list=[loss])
        >>> viz.timeline(two).save("run.html")  # doctest: +SKIP
    """

    def __init__(
        self,
        trace: Trace | Schedule,
        steps: Iterable[int] | None = None,
        layers: Sequence[Group] | None = None,
    ) -> None:
        self._layers = layers
        self._schedule = Schedule.of(trace, steps)
        schedule = self._schedule
        chosen, shown = schedule.steps or schedule.failed, schedule.shown
        times = counted(len(chosen), "step") if len(chosen) > 1 else f"step {chosen[0].number}"
        devices = counted(len(schedule.devices), "device")
        typical = "the typical one " if len(schedule.steps) > 1 else ""
        took = seconds_text(shown.seconds)
        self.title = f"Timeline · {devices} · {times} · {typical}{took}"
        self._failed = failures(schedule)
        if self._failed:
            numbers = [str(one.step.number) for one in self._failed]
            some = "step" if len(numbers) == 1 else "steps"
            self.title += f" · failed: {some} {', '.join(numbers[:_NAMED])}"
            self.title += "…" if len(numbers) > _NAMED else ""

    @cached_property
    def svg(self) -> str:
        """The typical step as an SVG document."""
        return render(self._schedule, self._schedule.shown, self.title)

    def payload(self) -> TimelineData:
        """Return what the interactive page draws: all steps."""
        schedule = self._schedule
        origin = schedule.trace.span[0]
        order = sorted(
            schedule.slices, key=lambda p: (p.track, p.event.start, -p.event.stop, p.depth)
        )
        position = {piece.id: index for index, piece in enumerate(order)}
        roles, names = list(ROLE_NAMES), list(dict.fromkeys(piece.event.name for piece in order))
        slices = self._columns(order, names, roles)
        last = max(piece.event.stop for piece in order)
        made: TimelineData = {
            "type": "timeline",
            "title": self.title,
            "notes": failure_texts(self._failed),
            "span": (min(slices["start"]), round((last - origin) * _NANO)),
            "tracks": [
                {"name": track.name, "group": track.group, "device": track.device}
                for track in schedule.tracks
            ],
            "names": names,
            "roles": roles,
            "slices": slices,
            "typical": schedule.shown.number,
            "flows": [(position[a], position[b]) for a, b in _flows(schedule)],
            "critical": [
                position[index]
                for step in schedule.steps
                for index in critical_path(schedule, step.number).slices
            ],
            "counters": live_counters(schedule),
            "details": self._details(order, position),
        }
        if schedule.facts is not None:
            if schedule.steps:
                made["play"] = self._play()
            made["groups"] = self._groups()
        return made

    def _groups(self) -> list[TimelineGroupData]:
        """Layers and equal blocks of the graph, into which operators can be folded."""
        graph = self._schedule.trace.graph
        assert graph is not None
        found = groups(dict(graph)) if self._layers is None else self._layers
        kept = [group for group in found if group.kind in _FOLDING]
        place = {group.id: number for number, group in enumerate(kept)}
        parents = {group.id: group.parent for group in found}

        def around(group: Group) -> int | None:
            parent = group.parent
            while parent is not None and parent not in place:
                parent = parents[parent]
            return None if parent is None else place[parent]

        inner: dict[int, int] = {}  # by operator, the innermost group, which comes last
        for group in kept:
            inner.update(dict.fromkeys(group.nodes, group.id))
        nodes: list[list[int]] = [[] for _ in kept]
        for node, number in inner.items():
            nodes[place[number]].append(node)
        return [
            {"label": g.label, "kind": g.kind, "parent": around(g), "nodes": own}
            for g, own in zip(kept, nodes, strict=True)
        ]

    def _play(self) -> PlayData:
        """The typical step, moment by moment."""
        found, origin = moments(self._schedule), self._schedule.trace.span[0]

        def at(seconds: float) -> int:
            return round((seconds - origin) * _NANO)

        return {
            "step": found.step,
            "span": (at(found.start), at(found.stop)),
            "nodes": [work.nodes for work in found.works],
            "start": [at(work.start) for work in found.works],
            "stop": [at(work.stop) for work in found.works],
            "waits": [
                {
                    "device": wait.device,
                    "span": (at(wait.start), at(wait.stop)),
                    "nodes": wait.nodes,
                    "text": wait.text,
                }
                for wait in found.waits
            ],
        }

    def _details(
        self, order: Sequence[Slice], position: Mapping[int, int]
    ) -> dict[str, dict[str, Any]]:
        """Further facts: other recorded data, and why a slice of the path began so late."""
        found = {
            str(position[piece.id]): dict(piece.event.args)
            for piece in order
            if piece.event.args and piece.event.kind != "op"
        }
        for step in self._schedule.steps:
            for index, text in waited(critical_path(self._schedule, step.number)).items():
                found.setdefault(str(position[index]), {})["began"] = text
        return found

    def _columns(
        self, order: Sequence[Slice], names: Sequence[str], roles: Sequence[str]
    ) -> SlicesData:
        schedule, origin = self._schedule, self._schedule.trace.span[0]
        number = {name: index for index, name in enumerate(names)}
        events = [piece.event for piece in order]
        starts = [round((event.start - origin) * _NANO) for event in events]
        stops = [round((event.stop - origin) * _NANO) for event in events]
        return {
            "track": [piece.track for piece in order],
            "depth": [piece.depth for piece in order],
            "start": starts,
            "duration": [stop - start for start, stop in zip(starts, stops, strict=True)],
            "name": [number[event.name] for event in events],
            "role": [roles.index(schedule.role_of(piece)) for piece in order],
            "node": [event.node for event in events],
            "step": [event.step for event in events],
        }


def _flows(schedule: Schedule) -> list[tuple[int, int]]:
    """Pairs of slices: of each run, and of the run that it waited for last."""
    found = []
    for step in schedule.steps:
        runs = runs_of(schedule, step)
        for run, sources in zip(runs.runs, runs.before, strict=True):
            if sources:
                last = max(sources, key=lambda index: runs.runs[index].stop)
                found.append((runs.runs[last].piece.id, run.piece.id))
    return found


def timeline(trace: Any, *, steps: Iterable[int] | None = None) -> Timeline:
    """Show tasks and their operators over time, a row per device and thread.

    Args:
        trace: A Trace, an executor that recorded one, or the path of a saved one.
        steps: Numbers of the steps to show; None for all.

    Returns:
        A view: the static picture shows the typical step, the page all of them.

    Raises:
        FileError: The file is damaged, empty, or no trace.
        ValueError: The trace has no such step.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec import viz
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), size=2))
        ...     _ = fluid.optimizer.SGD(0.1).minimize(loss)
        >>> how = fluid.ExecutionStrategy()
        >>> how.trace = True
        >>> two = fluid.CompiledProgram(main).with_data_parallel(
        ...     loss.name, exec_strategy=how, places=fluid.cpu_places(2)
        ... )
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     for _ in range(3):
        ...         _ = exe.run(two, feed={"x": np.ones((4, 4), "float32")})
        >>> viz.timeline(two)  # doctest: +ELLIPSIS
        <Timeline: Timeline · 2 devices · 3 steps · the typical one ...>
    """
    return Timeline(as_trace(trace), steps)
