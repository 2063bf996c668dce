"""The first view of a report of several programs that run in turn, such as those of a GAN."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise

from dpexec.viz.measured.schedule import Schedule, Step
from dpexec.viz.measured.shares import apart
from dpexec.viz.measured.typical import Typical
from dpexec.viz.measured.what_if import Effect, what_if
from dpexec.viz.pages.page_data import BarData, SectionData, SentenceData, TextData
from dpexec.viz.pages.plot import MARGIN, Canvas, wrap
from dpexec.viz.pages.units import counted, percent, seconds_text, spread_text, wrapped
from dpexec.viz.pages.view import View

_WIDTH = 1000.0
_EFFECTS = 6
_LEAST = 0.005
"""The share of all time that a type of operator must save to be listed."""


class InTurn(View):
    """How programs share the time of a run, and what would make all of it shorter.

    Steps count as in the views of each program: without first ones that took longer. Time between
    two steps counts if both do, and without what the traces name, such as preparing a step.

    Args:
        schedules: The traces, by name of the program; recorded by one process.
    """

    def __init__(self, schedules: Mapping[str, Schedule]) -> None:
        self.schedules = dict(schedules)
        self.seconds = {
            name: sum(step.seconds for step in schedule.counted)
            for name, schedule in self.schedules.items()
        }
        self.between = _between(self.schedules)
        self.whole = sum(self.seconds.values()) + self.between
        self.title = f"In turn · {counted(len(self.schedules), 'program')}"

    @cached_property
    def sentences(self) -> list[str]:
        """How the programs share the time, and what would help most."""
        said = []
        for name, schedule in sorted(self.schedules.items(), key=lambda one: -self.seconds[one[0]]):
            usual = Typical.of([step.seconds for step in schedule.counted])
            said.append(
                f"{name}: {percent(self._share(self.seconds[name]))} of the time, "
                f"{counted(len(schedule.counted), 'step')}, median {seconds_text(usual.median)}"
                f"{spread_text(usual.spread)}."
            )
        said.append(
            f"Between steps: {percent(self._share(self.between))} of the time, in the script, in "
            "programs that were not recorded, or for batches."
        )
        return said

    @cached_property
    def gains(self) -> list[tuple[str, str, float]]:
        """Program, type of operator, and the share of all time that it saves if twice as fast."""
        found = [
            (name, effect.name, self._share(self._saved(schedule, effect)))
            for name, schedule in self.schedules.items()
            for effect in what_if(schedule).effects("type")
        ]
        known = [gain for gain in found if gain[2] >= _LEAST]
        return sorted(known, key=lambda gain: -gain[2])[:_EFFECTS]

    def _saved(self, schedule: Schedule, effect: Effect) -> float:
        """Seconds of all its steps, as the replayed ones tell it."""
        usual = what_if(schedule).seconds
        whole = sum(step.seconds for step in schedule.counted)
        return whole * effect.half / usual if usual else 0.0

    def _share(self, seconds: float) -> float:
        return seconds / self.whole if self.whole else 0.0

    def payload(self) -> TextData:
        """Return what the interactive page draws."""
        bars: list[BarData] = [
            {"label": name, "unit": "fraction", "parts": [("steps", self._share(spent), "compute")]}
            for name, spent in self.seconds.items()
        ]
        rest = self._share(self.between)
        bars.append({"label": "between", "unit": "fraction", "parts": [("rest", rest, "unknown")]})
        shares: list[SentenceData] = [{"text": text, "tone": "plain"} for text in self.sentences]
        worth: list[BarData] = [
            {
                "label": f"{type_} in {name}",
                "unit": "fraction",
                "parts": [("twice as fast", share, "half")],
            }
            for name, type_, share in self.gains
        ]
        sections: list[SectionData] = [
            {"heading": "Which program takes the time", "bars": bars, "sentences": shares}
        ]
        if worth:
            heading = "How much shorter all of it would be, by type"
            sections.append({"heading": heading, "bars": worth})
        return {"type": "text", "title": self.title, "notes": [], "sections": sections}

    @cached_property
    def svg(self) -> str:
        """The sentences as an SVG document."""
        canvas = Canvas(self.title, _WIDTH, [])
        for text in (*self.sentences, *self._said_gains()):
            for line in wrap(text, _WIDTH - 2 * MARGIN):
                canvas.y += 18
                canvas.text(MARGIN, canvas.y, line, "sentence")
            canvas.y += 8
        return canvas.svg()

    def _said_gains(self) -> list[str]:
        return [
            f"{type_} of {name}, twice as fast, makes all of it {percent(share)} shorter."
            for name, type_, share in self.gains
        ]

    def __str__(self) -> str:
        return "\n".join(wrapped(self.title, *self.sentences, *self._said_gains()))


def _between(schedules: Mapping[str, Schedule]) -> float:
    """Seconds between steps that follow each other, of whatever programs, if both count."""
    steps: list[tuple[Step, Schedule, bool]] = []
    for schedule in schedules.values():
        known = {step.number for step in schedule.counted}
        steps += [(step, schedule, step.number in known) for step in schedule.steps]
    steps.sort(key=lambda one: one[0].start)
    found = 0.0
    for (before, _, counts), (after, schedule, also) in pairwise(steps):
        if counts and also and after.start > before.stop:
            gap = after.start - before.stop
            found += max(0.0, gap - apart(schedule, before.stop, after.start))
    return found
