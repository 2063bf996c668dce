"""`dpexec.viz.animate`: a recorded step as a film, and as a page with a playhead."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from dpexec.viz.animate_frames import READABLE, film, scale_of
from dpexec.viz.draw import Drawing, draw
from dpexec.viz.measured.moments import Moments, moments
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.memory import memory
from dpexec.viz.overlay import overlay_of
from dpexec.viz.pages.load import FileError, as_trace
from dpexec.viz.pages.page import page
from dpexec.viz.pages.page_data import StackData
from dpexec.viz.pages.picture import cairo
from dpexec.viz.pages.stack import stacked
from dpexec.viz.pages.units import counted, seconds_text
from dpexec.viz.pages.view import View
from dpexec.viz.timeline import Timeline

from dpexec.engine.trace import Trace

_COARSER = ("block", "repeat", "part", "stage")  # kinds of groups to fold to, one after the other


class Animation(View):
    """An animation of a recorded step.

    Args:
        trace: The trace, with its graph.
        step: Number of the step; None for the typical one.
        seconds: Duration of the film.
        rate: Frames per second of the film.
        drawing: The graph.

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
        >>> viz.animate(two).save("step.gif")  # doctest: +SKIP
    """

    formats = (*View.formats, ".gif")

    def __init__(
        self, trace: Trace, step: int | None, seconds: float, rate: int, drawing: Drawing
    ) -> None:
        self._schedule = Schedule(trace, None if step is None else [step])
        self.seconds, self.rate, self.drawing = seconds, rate, drawing
        self.moments: Moments = moments(self._schedule)
        drawing.overlay = overlay_of(self._schedule)
        self._timeline = Timeline(self._schedule)
        self._memory = memory(trace) if trace.memory else None
        took = seconds_text(self.moments.stop - self.moments.start)
        devices = counted(len(self._schedule.devices), "device")
        self.title = f"Step {self.moments.step} · {took} on {devices}"

    @property
    def _views(self) -> list[View]:
        rest = [] if self._memory is None else [self._memory]
        return [self.drawing, self._timeline, *rest]

    @cached_property
    def html(self) -> str:
        """A page with graph, timeline and memory, through which a playhead moves."""
        return page(self.title, self._views)

    @cached_property
    def svg(self) -> str:
        """The graph, and below it the step, as a still picture."""
        return stacked([self.drawing.svg, self._timeline.svg], self.title)

    @cached_property
    def gif(self) -> bytes:
        """The film.

        Raises:
            RuntimeError: Cairo or Pillow is missing.
        """
        drawing = self.for_film
        return film(self._schedule, self.moments, drawing, self.title, self.seconds, self.rate)

    @cached_property
    def for_film(self) -> Drawing:
        """The graph; one that folds by itself, as far as its texts can be read in a film."""
        drawing = self.drawing
        replicas = "one" if drawing.one_lane else "lanes"
        for kind in _COARSER if drawing.fold == "auto" else ():
            if scale_of(drawing.diagram) >= READABLE:
                break
            drawing = draw(self._schedule.trace, fold=kind, replicas=replicas)
        return drawing

    def payload(self) -> StackData:
        """Return what the interactive page draws."""
        views = [view.payload() for view in self._views]
        return {"type": "stack", "title": self.title, "notes": [], "views": views}

    def encode(self, ending: str) -> str | bytes:
        """Return the content of a file.

        Args:
            ending: The ending of its name, with the dot: one of `formats`.
        """
        return self.gif if ending == ".gif" else super().encode(ending)

    @classmethod
    def ending(cls, path: Any) -> str:
        """The ending of a file's name, see `View.ending`."""
        ending = super().ending(path)
        if ending == ".gif":
            cairo(ending)
        return ending


def animate(
    trace: Any,
    *,
    step: int | None = None,
    seconds: float = 8.0,
    rate: int = 12,
    fold: str = "auto",
    replicas: str = "auto",
) -> Animation:
    """Play a recorded step: operators light up while they run, tensors appear and disappear.

    A device that waits is labelled with the task that it waits for.

    Args:
        trace: A Trace with its graph, an executor that recorded one, or the path of a saved one.
        step: Number of the step; None for the typical one.
        seconds: Duration of the film.
        rate: Frames per second.
        fold: How the graph is folded, see `draw`.
        replicas: A lane for each device or one for all, see `draw`.

    Returns:
        A view: `.save("step.gif")` writes the film, `.save("step.html")` a page with a playhead.
        Films need the extra `viz`.

    Raises:
        FileError: The file is damaged, empty, or no trace, or the trace has no graph.
        ValueError: There is no such step, or the film would have less than two frames.

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
        >>> film = viz.animate(two, seconds=4)
        >>> film.save("step.gif")  # doctest: +SKIP
    """
    if not (seconds > 0 and rate > 0 and seconds * rate >= 2):
        raise ValueError(f"a film of {seconds} seconds with {rate} frames each has no two frames")
    found = as_trace(trace)
    if found.graph is None:
        raise FileError("the trace has no graph: it was recorded without one")
    drawing = draw(found, fold=fold, replicas=replicas)
    return Animation(found, step, seconds, rate, drawing)
