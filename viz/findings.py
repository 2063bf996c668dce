"""`dpexec.viz.analyse`: where the time of a run went, and what to change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import Any

from dpexec.viz.advising.analysis import Analysis, analysis_of
from dpexec.viz.advising.apart import Apart
from dpexec.viz.advising.failed_run import failed_sections
from dpexec.viz.advising.growth import growth_text
from dpexec.viz.advising.path_text import path_sentences
from dpexec.viz.advising.slow_steps import slow_steps
from dpexec.viz.findings_svg import render
from dpexec.viz.measured.bodies import rounds_text
from dpexec.viz.measured.contention import contention
from dpexec.viz.measured.copies import copies_of
from dpexec.viz.measured.failures import failure_texts, failures
from dpexec.viz.measured.grouping import By
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.measured.shares import homes_of
from dpexec.viz.measured.what_if import Effect, what_if
from dpexec.viz.pages.load import as_trace
from dpexec.viz.pages.page_data import (
    BarData,
    FigureData,
    SectionData,
    SentenceData,
    StepsData,
    TextData,
)
from dpexec.viz.pages.units import counted, percent, seconds_text, shortened, spread_text, wrapped
from dpexec.viz.pages.view import View
from dpexec.viz.pages.words import PARTS

from dpexec.engine.trace import Trace

_WAITS = 8
_EFFECTS = 6
_NAME = 46  # characters of a name in text
GROUPED: tuple[By, ...] = ("type", "layer")
_LEAST = 0.005
"""A type or layer is listed if making it faster would save at least this share of a step."""


class Findings(View):
    """An analysis with its pictures.

    Args:
        trace: What a run recorded, such as `replicas.trace`.
        steps: Numbers of the steps to analyse; None for all except slow first ones.

    Raises:
        ValueError: The trace is empty, has no such step, or no completed one.

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
        >>> viz.analyse(two).save("findings.html")  # doctest: +SKIP
    """

    def __init__(self, trace: Trace | Schedule, steps: Iterable[int] | None = None) -> None:
        self.schedule = schedule = Schedule.of(trace, steps)
        self._failed = failures(schedule)
        if not schedule.steps:
            raise ValueError("\n".join(["no step was completed", *failure_texts(self._failed)]))
        self._replays = what_if(schedule)
        self.analysis: Analysis = analysis_of(schedule)
        self.notes = schedule.left_out
        self._crowded = contention(schedule)
        if str(self._crowded):
            self.notes.append(str(self._crowded))
        others = rounds_text(schedule), str(copies_of(schedule)), growth_text(schedule)
        self.notes += [text for text in others if text]
        counted_steps = self.analysis.steps[self.analysis.left_out :]
        self._apart = Apart(counted_steps)
        self.notes[:0] = self._apart.headlines()
        count = len(self.analysis.steps) - self.analysis.left_out
        self.title = (
            f"Where the time goes · {counted(count, 'step')}, "
            f"median {seconds_text(self.analysis.median)}{spread_text(self.analysis.spread)}"
        )

    @cached_property
    def svg(self) -> str:
        """The findings as an SVG document."""
        failed = failure_texts(self._failed)
        return render(self.analysis, self.title, [*failed, *self._facts(), *self.notes])

    def to_json(self) -> dict[str, Any]:
        """Return the analysis, and the steps that failed, as plain JSON values."""
        return {**self.analysis.to_json(), "failures": [one.to_json() for one in self._failed]}

    def payload(self) -> TextData:
        """Return what the interactive page draws."""
        found = self.analysis
        homes = homes_of(self.schedule)
        bars: list[BarData] = [
            {
                "label": f"device {use.device}{homes.get(use.device, '')}",
                "unit": "fraction",
                "parts": [(PARTS[name], value, name) for name, value in use.parts.items() if value],
            }
            for use in found.devices
        ]
        advice: list[SentenceData] = [
            {"text": one.text, "tone": "warn", "nodes": list(one.nodes)} for one in found.advice
        ]
        waits: list[SentenceData] = [{"text": text, "tone": "plain"} for text in self._waits()]
        facts: list[SentenceData] = [{"text": text, "tone": "plain"} for text in self._facts()]
        facts[0]["nodes"] = list(found.path.nodes)
        sections: list[SectionData] = [
            {"heading": "Steps", "figures": self._figures(), "sentences": facts},
            {"heading": "What each device did", "bars": bars},
        ]
        if len(found.steps) > 1:
            sections.insert(1, {"heading": "Time of every step", "steps": self._every_step()})
        sections[:0] = failed_sections(self._failed)
        if advice:
            sections.append({"heading": "What to change", "sentences": advice})
        sections += self._forecasts()
        if waits:
            sections.append({"heading": "Longest waits", "sentences": waits})
        return {
            "type": "text",
            "title": self.title,
            "notes": self.notes,
            "sections": sections,
        }

    def _forecasts(self) -> Iterator[SectionData]:
        """The savings by types and layers."""
        ends = f" (in brackets, twice as fast: range over {self._ranged} steps)"
        for by in GROUPED:
            faster = [
                _worth(effect, self._replays.seconds, self._range(effect))
                for effect in self._effects(by)
            ]
            if faster:
                heading = f"How much shorter a step would be, by {by}{ends if self._ranged else ''}"
                yield {"heading": heading, "bars": faster}

    def _every_step(self) -> StepsData:
        found = self.analysis
        return {
            "numbers": [step.step for step in found.steps],
            "seconds": [step.seconds for step in found.steps],
            "left_out": found.left_out,
            "median": found.median,
        }

    def _figures(self) -> list[FigureData]:
        found = self.analysis
        uses = found.devices
        figures: list[FigureData] = [
            {
                "label": "median step",
                "value": found.median,
                "unit": "seconds",
                "hint": spread_text(found.spread).strip(),
            },
            {"label": "steps", "value": len(found.steps) - found.left_out, "unit": "count"},
            {
                "label": "if scheduling were free",
                "value": found.path.unhindered,
                "unit": "seconds",
                "hint": f"step {found.path.step} without the delays on its critical path",
            },
        ]
        figures[1:1] = self._apart.figures()
        if uses:
            mean = sum(use.compute for use in uses) / len(uses)
            figures.append({"label": "computing", "value": mean, "unit": "fraction"})
        hidden = [use.overlap for use in uses if use.overlap is not None]
        if hidden:
            share = sum(hidden) / len(hidden)
            figures.append({"label": "hidden communication", "value": share, "unit": "fraction"})
        if found.traffic.total:
            total = found.traffic.total
            figures.append({"label": "moved a step", "value": total, "unit": "bytes"})
        return figures

    def _facts(self) -> list[str]:
        traffic = self.analysis.traffic
        moved = [str(traffic)] if traffic.total else []
        path = path_sentences(self.analysis.path, copies_of(self.schedule))
        return [*path, *self._slow_steps, *moved]

    @cached_property
    def _slow_steps(self) -> list[str]:
        """Why the longest steps took much longer than the typical one, if they did."""
        return slow_steps(self.schedule, self.analysis, self._crowded)

    def _effects(self, by: By) -> list[Effect]:
        """The types, or the layers, that would save most if they were faster."""
        least = _LEAST * self._replays.seconds
        known = (
            effect
            for effect in self.analysis.effects
            if effect.by == by and effect.none > least and (by == "type" or effect.nodes)
        )
        return [*islice(known, _EFFECTS)]

    def what_if(self, name: str, faster: float, *, by: By = "type") -> float:
        """Replay the recorded steps with something faster; returns the seconds of a step.

        Dependencies, and the thread of each task, stay as they were recorded.

        Args:
            name: Name of a type of operator, or of something else as given by `by`.
            faster: How many times as fast; below 1 is slower, infinity takes no time at all.
            by: What the name denotes: "type", "node" (an operator, with its name in `viz.table`),
                "layer", "task" or "role".

        Returns:
            The median over the steps.

        Raises:
            ValueError: The trace has nothing of that name; `faster` is not above 0.
        """
        return self._replays.step_if(by, name, faster)

    def _waits(self) -> list[str]:
        longest = [wait for wait in self.analysis.waits if wait.share >= 0.001][:_WAITS]
        return [
            f"device {wait.device}: {seconds_text(wait.seconds)} ({percent(wait.share)}), "
            f"{PARTS[wait.cause]}, for {wait.task}"
            for wait in longest
        ]

    def _table(self) -> list[str]:
        """The savings by types and layers, as lines of text."""
        tables = [(by, found) for by in GROUPED if (found := self._effects(by))]
        if not tables:
            return []
        shown = [effect for _, found in tables for effect in found]
        width = min(_NAME, 2 + max(len(e.name) for e in shown))
        lines = ["", "How much shorter a step would be:"]
        for by, found in tables:
            head = f"{'on the path':>12}  {'twice as fast':>22}  {'no time':>10}"
            lines.append(f"{by:<{width}}  {head if by == tables[0][0] else ''}".rstrip())
            lines += [
                f"  {shortened(effect.name, width - 2):<{width - 2}}  "
                f"{seconds_text(effect.path):>12}  "
                f"{_shorter(effect.half, self._replays.seconds) + self._range(effect):>22}  "
                f"{_shorter(effect.none, self._replays.seconds):>10}"
                for effect in found
            ]
        waits = [effect.name for effect in shown if effect.frees_threads and effect.by == "type"]
        why = [f"Other threads wait for Python of {', '.join(waits)}."] if waits else []
        if count := self._ranged:
            why.append(f"In brackets: the range over {counted(count, 'replayed step')}.")
        return [*lines, *wrapped(*why)]

    @property
    def _ranged(self) -> int:
        """The number of replayed steps, if they are several that tell a range."""
        count = len(self._replays.steps)
        return count if count > 1 else 0

    def _range(self, effect: Effect) -> str:
        """The range of a forecast over the replayed steps, as shares of a step."""
        if not self._ranged or not self._replays.seconds:
            return ""
        low, high = (percent(each / self._replays.seconds) for each in effect.ends)
        return f" ({low.removesuffix('%')}–{high})"

    def __str__(self) -> str:
        failed = failure_texts(self._failed)
        lines = [*wrapped(self.title, *failed, *self.notes, *self._facts()), ""]
        homes = homes_of(self.schedule)
        for use in self.analysis.devices:
            parts = sorted(use.parts.items(), key=lambda item: -item[1])
            texts = [f"{percent(value)} {PARTS[name]}" for name, value in parts if value >= 0.0005]
            if use.overlap is not None:
                texts.append(f"{percent(use.overlap)} of all communication hidden by computing")
            home = homes.get(use.device, "")
            lines += wrapped(f"device {use.device}{home}: {', '.join(texts)}")
        if self.analysis.advice:
            lines += ["", "What to change:"]
            lines += wrapped(*(f"- {one}" for one in self.analysis.advice))
        lines += self._table()
        return "\n".join(lines)


def _shorter(seconds: float, step: float) -> str:
    return f"-{percent(seconds / step)}" if step and seconds else "0%"


def _worth(effect: Effect, step: float, ends: str) -> BarData:
    """The saving by a type or layer, as shares of a step."""
    half, none = effect.half / step, effect.none / step
    return {
        "label": f"{effect.name}{ends}",
        "unit": "fraction",
        "parts": [("twice as fast", half, "half"), ("no time at all", none - half, "none")],
    }


def analyse(trace: Any, *, steps: Iterable[int] | None = None) -> Findings:
    """Say where the time of a run went: utilisation, causes of waiting, critical path, advice.

    Args:
        trace: A Trace, an executor that recorded one, or the path of a saved one.
        steps: Numbers of the steps to analyse; None for all except slow first ones.

    Returns:
        A view; `print` it, or read its `analysis`.

    Raises:
        FileError: The file is damaged, empty, or no trace.
        ValueError: The trace has no such step, or no completed one: the message says what failed.

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
        >>> print(viz.analyse(two, steps=[2]))  # doctest: +ELLIPSIS
        Where the time goes · ...
        A step moved 40 B, all of it inside one process.
        ...
    """
    return Findings(as_trace(trace), steps)
