"""`dpexec.viz.report`: all views of a run in one file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from dpexec.viz.advising.failed_run import FailedRun
from dpexec.viz.advising.in_turn import InTurn
from dpexec.viz.draw import drawing
from dpexec.viz.findings import Findings
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.memory import Memory
from dpexec.viz.overlay import overlay_of
from dpexec.viz.pages.load import as_graph, as_trace
from dpexec.viz.pages.page import page
from dpexec.viz.pages.page_data import RunData
from dpexec.viz.pages.stack import stacked
from dpexec.viz.pages.view import View
from dpexec.viz.passes import passes
from dpexec.viz.table import table_of
from dpexec.viz.timeline import Timeline

from dpexec.engine.core.memory import no_cycles_sought
from dpexec.engine.trace import Trace


class Report(View):
    """Several views of one run as the tabs of a page.

    Args:
        title: Heading.
        views: The tabs, from left to right.

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
        >>> viz.report(two).save("report.html")  # doctest: +SKIP
    """

    def __init__(self, title: str, views: Sequence[View]) -> None:
        self.title, self.views = title, tuple(views)

    @cached_property
    @no_cycles_sought()
    def html(self) -> str:
        """One page with all views; it loads nothing."""
        return page(self.title, self.views)

    @cached_property
    def svg(self) -> str:
        """The static pictures of all views, one below the other."""
        return stacked([view.svg for view in self.views], self.title)

    def payload(self) -> RunData:
        """Return what the tabs draw; within another report they are tabs of their own."""
        views = [view.payload() for view in self.views]
        return {"type": "run", "title": self.title, "notes": [], "views": views}


@no_cycles_sought()
def report(
    source: Any, path: str | os.PathLike[str] | None = None, *, title: str | None = None
) -> Report:
    """Put all views of a run into one offline page.

    The graph is coloured by measurements, and a selection in one view also shows in the others.

    Args:
        source: A Trace, a ParallelExecutor or CompiledProgram that recorded one
            (`ExecutionStrategy.trace = True`), or the path of a saved trace. Of programs that run
            in turn, as those of a GAN, a list of them, or names and programs.
        path: Where to write the page at once; None for nowhere.
        title: Heading; None for one with the duration of a step.

    Returns:
        The report: findings, graph, timeline, memory, table and passes, as far as the trace holds
        their data. `.save("report.html")`, or leave it at the end of a notebook cell.

    Raises:
        FileError: The file is damaged, empty, or no trace.
        RuntimeError: Nothing was recorded.
        ValueError: One of several programs completed no step.

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
        >>> viz.report(two).save("report.html")  # doctest: +SKIP
        >>> viz.report(two)  # doctest: +ELLIPSIS
        <Report: dpexec run · ...>
    """
    several = _programs(source)
    made = _in_turn(several, title) if several else _of_one(source, title)
    if path is not None:
        made.save(Path(path))
    return made


def _programs(source: Any) -> dict[str, Any]:
    """The programs by name, if the source is several."""
    if isinstance(source, (list, tuple)):
        return {f"program {number}": one for number, one in enumerate(source, 1)}
    if isinstance(source, Mapping) and not {"format", "traceEvents"} & source.keys():
        return {str(name): one for name, one in source.items()}
    return {}


def _in_turn(several: Mapping[str, Any], title: str | None) -> Report:
    schedules = {name: Schedule(as_trace(source)) for name, source in several.items()}
    for name, schedule in schedules.items():
        if not schedule.steps:
            raise ValueError(f"{name} completed no step: viz.report of it alone says what failed")
    runs = [_of_one(source, None, schedules[name]) for name, source in several.items()]
    for name, run in zip(several, runs, strict=True):
        run.title = f"{name} · {run.title.partition(' · ')[2]}"
    first = InTurn(schedules)
    return Report(
        title or f"dpexec run · {first.title.partition(' · ')[2]} in turn", [first, *runs]
    )


def _of_one(source: Any, title: str | None, schedule: Schedule | None = None) -> Report:
    """The report of a program's trace."""
    schedule = schedule or Schedule(as_trace(source))
    trace = schedule.trace
    first: View = Findings(schedule) if schedule.steps else FailedRun(schedule)
    views: list[View] = [first]
    layers = None
    if trace.graph is not None:
        # Files were checked as they were read, and what an executor describes needs no check.
        is_checked = not isinstance(source, Trace)
        graph = drawing(dict(trace.graph) if is_checked else as_graph(trace))
        graph.overlay = overlay_of(schedule)
        layers = graph.groups
        views.append(graph)
    views.append(Timeline(schedule, layers=layers))
    if schedule.steps:
        if trace.memory:
            views.append(Memory(schedule))
        views.append(table_of(schedule))
    if _is_recorded(source):
        if trace.graph and trace.graph.get("passes"):
            views.append(passes(trace))
    else:
        views.append(passes(source))  # compiled once more
    return Report(title or f"dpexec run · {first.title.partition(' · ')[2]}", views)


def _is_recorded(source: Any) -> bool:
    """Whether the source is only a recorded trace, without a program."""
    return isinstance(source, (str, os.PathLike, Mapping, Trace))
