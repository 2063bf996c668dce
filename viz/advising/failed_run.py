"""The view of a run of which no step was completed: what failed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from dpexec.viz.measured.failures import SHOWN, Failure, failure_texts, failures, others
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.pages.page_data import SectionData, SentenceData, TextData
from dpexec.viz.pages.plot import MARGIN, Canvas, wrap
from dpexec.viz.pages.view import View

_WIDTH = 1000.0


class FailedRun(View):
    """What a report shows instead of figures if no step was completed.

    Args:
        schedule: The trace.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._failed = failures(schedule)
        self.title = "What failed · no step was completed"

    @cached_property
    def svg(self) -> str:
        """The sentences as an SVG document."""
        canvas = Canvas(self.title, _WIDTH, [])
        for text in failure_texts(self._failed):
            for line in wrap(text, _WIDTH - 2 * MARGIN):
                canvas.y += 18
                canvas.text(MARGIN, canvas.y, line, "sentence")
            canvas.y += 8
        return canvas.svg()

    def payload(self) -> TextData:
        """Return what the interactive page draws."""
        sections = failed_sections(self._failed)
        return {"type": "text", "title": self.title, "notes": [], "sections": sections}

    def __str__(self) -> str:
        return "\n".join([self.title, *failure_texts(self._failed)])


def failed_sections(found: Sequence[Failure]) -> list[SectionData]:
    """Return the section of a page about failures; none if there are none.

    Args:
        found: the failures of the run.
    """
    sentences: list[SentenceData] = [
        {"text": one.text, "tone": "warn", "nodes": list(one.nodes), "step": one.step.number}
        for one in found[:SHOWN]
    ]
    if len(found) > SHOWN:
        sentences.append({"text": others(found), "tone": "warn"})
    return [{"heading": "What failed", "sentences": sentences}] if sentences else []
