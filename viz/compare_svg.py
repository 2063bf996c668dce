"""The static picture of a comparison: causes as a waterfall, then operators side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpexec.viz.pages.plot import MARGIN, Canvas, number, text_width
from dpexec.viz.pages.units import cut, seconds_text, shortened, time_ticks

ROWS = 20
LONGEST = 52
"""Characters of a label."""

_WIDTH = 1100.0
_BAR = 9.0
_FIGURES = 190.0  # pixels right of the bars
_FALL = 24.0
_SPREAD = 230.0


@dataclass(frozen=True)
class Bar:
    """A row of a picture.

    Args:
        label: Text beside the bar.
        before: Seconds in the first run; in the waterfall, where the bar begins.
        after: Seconds in the second run; in the waterfall, where the bar ends.
        figures: Text behind the bar.
        certain: Whether the difference is more than noise.
    """

    label: str
    before: float
    after: float
    figures: str
    certain: bool = True


def render(
    title: str,
    notes: Sequence[str],
    names: tuple[str, str],
    steps: tuple[float, float],
    falls: Sequence[Bar],
    bars: Sequence[Bar],
    lone: Sequence[Sequence[str]],
) -> str:
    """Return a comparison as the text of an SVG document.

    Args:
        title: Heading.
        notes: Sentences below it.
        names: Names of the runs.
        steps: Seconds of the median step of each run.
        falls: The causes; each begins where the previous one ends. Empty for unrelated runs.
        bars: The operators of both runs.
        lone: By run: operators that only this run has.
    """
    canvas = Canvas(title, _WIDTH, notes)
    canvas.y += 4
    if falls:
        _waterfall(canvas, names, steps, falls)
        canvas.text(MARGIN, canvas.y + 6, "Operators", "lane-name")
        canvas.y += 18
    canvas.legend([("feed", names[0]), ("backward", names[1])])
    _bars(canvas, bars[:ROWS])
    if len(bars) > ROWS:
        canvas.y += 16
        canvas.text(MARGIN, canvas.y, f"and {len(bars) - ROWS} more", "faint")
    for name, members in zip(names, lone, strict=True):
        _alone(canvas, name, members)
    return canvas.svg()


def _waterfall(
    canvas: Canvas, names: tuple[str, str], steps: tuple[float, float], falls: Sequence[Bar]
) -> None:
    """From one step's time to the other's, a row per cause; the axis shows only that range."""
    canvas.legend([("collective", "longer"), ("optimize", "shorter"), ("feed", "noise, or a step")])
    labels = [shortened(fall.label, LONGEST) for fall in falls]
    left = MARGIN + max(text_width(text, 11) for text in (*labels, *names)) + 12
    width = _WIDTH - left - MARGIN - _SPREAD
    ends = [*steps, *(end for fall in falls for end in (fall.before, fall.after))]
    least, high = min(ends), max(ends)  # below 0 where causes of shorter steps come first
    low = min(least, max(0.0, least - 0.25 * (high - least))) if high > least else 0.0
    span = (high - low) * 1.04 or 1.0

    def row(label: str, start: float, stop: float, role: str, figures: str) -> None:
        a, b = (left + (min(start, stop) - low) / span * width, abs(stop - start) / span * width)
        canvas.text(left - 8, canvas.y + 14, label, "tick end")
        canvas.lane(left, canvas.y, width, _FALL - 4)
        canvas.bar(a, canvas.y + 3, max(b, 1.5), _FALL - 10, role, f"{label}: {figures}")
        canvas.text(left + width + 10, canvas.y + 14, figures, "tick")
        canvas.y += _FALL

    row(cut(names[0], LONGEST), max(0.0, low), steps[0], "feed", seconds_text(steps[0]))
    for fall, label in zip(falls, labels, strict=True):
        x = left + (fall.before - low) / span * width
        canvas.line(f"M{number(x)} {number(canvas.y - 4)}v{number(_FALL)}")
        role = "collective" if fall.after > fall.before else "optimize"
        row(label, fall.before, fall.after, role if fall.certain else "feed", fall.figures)
    row(cut(names[1], LONGEST), max(0.0, low), steps[1], "feed", seconds_text(steps[1]))
    ticks = [(at, label) for at, label in time_ticks(low + span, 8) if at >= low]
    if len(ticks) < 3:  # the steps differ too little for round numbers
        ticks = [(low + span * k / 4, seconds_text(low + span * k / 4)) for k in range(5)]
    canvas.axis_below(left, width, [((at - low) / span, label) for at, label in ticks])
    canvas.y += 12


def _bars(canvas: Canvas, shown: Sequence[Bar]) -> None:
    labels = [shortened(bar.label, LONGEST) for bar in shown]
    left = MARGIN + max((text_width(label, 11) for label in labels), default=0.0) + 12
    width = _WIDTH - left - MARGIN - _FIGURES
    highest = max((max(bar.before, bar.after) for bar in shown), default=0.0)
    if highest:
        height = len(shown) * (2 * _BAR + 10)
        canvas.lane(left, canvas.y, width, height)
        for bar, label in zip(shown, labels, strict=True):
            y = canvas.y + 5
            canvas.text(left - 8, y + _BAR + 4, label, "tick end")
            for place, (seconds, role) in enumerate(
                ((bar.before, "feed"), (bar.after, "backward"))
            ):
                length = seconds / highest * width
                canvas.bar(left, y + place * _BAR, length, _BAR, role, seconds_text(seconds))
            canvas.text(left + width + 10, y + _BAR + 4, bar.figures, "tick")
            canvas.y += 2 * _BAR + 10
        places = [(at / highest, label) for at, label in time_ticks(highest, 8)]
        canvas.axis_below(left, width, places)


def _alone(canvas: Canvas, name: str, lone: Sequence[str]) -> None:
    """Operators of one run that the other one does not have."""
    if not lone:
        return
    canvas.y += 26
    canvas.text(MARGIN, canvas.y, f"only in {name}", "lane-name")
    for text in lone[:ROWS]:
        canvas.y += 17
        canvas.text(MARGIN + 12, canvas.y, text, "tick")
    if len(lone) > ROWS:
        canvas.y += 17
        canvas.text(MARGIN + 12, canvas.y, f"and {len(lone) - ROWS} more", "faint")
