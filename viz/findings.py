"""`dpexec.viz.analyse`: where the time of a run went, and what to change."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from dpexec.viz.findings_svg import render
from dpexec.viz.measured.analysis import Analysis, analysis_of
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.pages.load import as_trace
from dpexec.viz.pages.page_data import BarData, FigureData, SectionData, SentenceData, TextData
from dpexec.viz.pages.units import counted, percent, seconds_text
from dpexec.viz.pages.view import View
from dpexec.viz.pages.words import PARTS

from dpexec.engine.trace import Trace

_WAITS = 8


class Findings(View):
    """An analysis with its pictures.

    Args:
        trace: What was recorded.
        steps: Numbers of the steps to look at; None for all but first ones that
            were slower.

    Raises:
        ValueError: The trace is empty, or has no such step.
    """

    def __init__(self, trace: Trace | Schedule, steps: Iterable[int] | None = None) -> None:
        schedule = Schedule.of(trace, steps)
        self.analysis: Analysis = analysis_of(schedule)
        self.notes = schedule.left_out
        count = len(self.analysis.steps) - self.analysis.left_out
        self.title = (
            f"Where the time goes · {counted(count, 'step')}, "
            f"median {seconds_text(self.analysis.median)}"
        )

    @cached_property
    def svg(self) -> str:
        """The findings as an SVG document."""
        return render(self.analysis, self.title, self.notes)

    def to_json(self) -> dict[str, Any]:
        """Return the analysis as plain JSON values."""
        return self.analysis.to_json()

    def payload(self) -> TextData:
        """Return what the interactive page draws."""
        found = self.analysis
        bars: list[BarData] = [
            {
                "label": f"device {use.device}",
                "unit": "fraction",
                "parts": [(PARTS[name], value) for name, value in use.parts.items() if value],
            }
            for use in found.devices
        ]
        advice: list[SentenceData] = [
            {"text": one.text, "tone": "warn", "nodes": list(one.nodes)} for one in found.advice
        ]
        waits: list[SentenceData] = [{"text": text, "tone": "plain"} for text in self._waits()]
        facts: list[SentenceData] = [
            {"text": self._path(), "tone": "plain", "nodes": list(found.path.nodes)}
        ]
        if found.traffic.total:
            facts.append({"text": str(found.traffic), "tone": "plain"})
        sections: list[SectionData] = [
            {"heading": "Steps", "figures": self._figures(), "sentences": facts},
            {"heading": "What each device did", "bars": bars},
        ]
        if advice:
            sections.append({"heading": "What to change", "sentences": advice})
        if waits:
            sections.append({"heading": "Longest waits", "sentences": waits})
        return {
            "type": "text",
            "title": self.title,
            "notes": self.notes,
            "sections": sections,
        }

    def _figures(self) -> list[FigureData]:
        found = self.analysis
        uses = found.devices
        figures: list[FigureData] = [
            {"label": "median step", "value": found.median, "unit": "seconds"},
            {"label": "steps", "value": len(found.steps) - found.left_out, "unit": "count"},
            {"label": "critical path", "value": found.path.seconds, "unit": "seconds"},
        ]
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

    def _path(self) -> str:
        path = self.analysis.path
        return (
            f"The critical path of step {path.step} is {seconds_text(path.seconds)} of "
            f"{seconds_text(path.step_seconds)} ({percent(path.share)}): {len(path.slices)} "
            "pieces of work that had to happen one after another."
        )

    def _waits(self) -> list[str]:
        longest = [wait for wait in self.analysis.waits if wait.share >= 0.001][:_WAITS]
        return [
            f"device {wait.device}: {seconds_text(wait.seconds)} ({percent(wait.share)}), "
            f"{PARTS[wait.cause]}, for {wait.task}"
            for wait in longest
        ]

    def __str__(self) -> str:
        moved = [str(self.analysis.traffic)] if self.analysis.traffic.total else []
        lines = [self.title, *self.notes, self._path(), *moved, ""]
        for use in self.analysis.devices:
            parts = sorted(use.parts.items(), key=lambda item: -item[1])
            texts = [f"{percent(value)} {PARTS[name]}" for name, value in parts if value >= 0.0005]
            if use.overlap is not None:
                texts.append(f"{percent(use.overlap)} of all communication hidden by computing")
            lines.append(f"device {use.device}: {', '.join(texts)}")
        if self.analysis.advice:
            lines += ["", "What to change:"]
            lines += [f"- {one}" for one in self.analysis.advice]
        return "\n".join(lines)


def analyse(trace: Any, *, steps: Iterable[int] | None = None) -> Findings:
    """Say where the time of a run went: utilisation, causes of waiting, critical path, advice.

    Args:
        trace: A Trace, an executor that recorded one, or the path of a saved one.
        steps: Numbers of the steps to look at; None for all but first ones that
            were slower.

    Returns:
        A view; `print` it, or read its `analysis`.

    Raises:
        FileError: The file is damaged, empty, or no trace.
        ValueError: The trace has no such step.
    """
    return Findings(as_trace(trace), steps)
