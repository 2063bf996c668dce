"""The static picture of a comparison: two bars per operator, the largest difference first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpexec.viz.pages.plot import MARGIN, Canvas, text_width
from dpexec.viz.pages.units import cut, seconds_text, time_ticks

if TYPE_CHECKING:
    from dpexec.viz.compare import Change, Comparison, Lone

_WIDTH = 1100.0
_ROWS = 20
_BAR = 9.0
_LONGEST = 52  # characters of a label
_FIGURES = 190.0  # pixels right of the bars


def render(found: Comparison) -> str:
    """Return a comparison as the text of an SVG document."""
    shown = found.changes[:_ROWS]
    canvas = Canvas(found.title, _WIDTH, found.notes)
    canvas.y += 4
    canvas.legend([("feed", found.names[0]), ("backward", found.names[1])])
    _bars(canvas, shown)
    if len(found.changes) > len(shown):
        canvas.y += 16
        canvas.text(MARGIN, canvas.y, f"and {len(found.changes) - len(shown)} more", "faint")
    for name, lone in zip(found.names, (found.only_before, found.only_after), strict=True):
        _alone(canvas, name, lone)
    return canvas.svg()


def _bars(canvas: Canvas, shown: Sequence[Change]) -> None:
    labels = [cut(change.label, _LONGEST) for change in shown]
    left = MARGIN + max((text_width(label, 11) for label in labels), default=0.0) + 12
    width = _WIDTH - left - MARGIN - _FIGURES
    highest = max((max(c.before, c.after) for c in shown), default=0.0)
    if highest:
        height = len(shown) * (2 * _BAR + 10)
        canvas.lane(left, canvas.y, width, height)
        for change, label in zip(shown, labels, strict=True):
            y = canvas.y + 5
            canvas.text(left - 8, y + _BAR + 4, label, "tick end")
            for place, (seconds, role) in enumerate(
                ((change.before, "feed"), (change.after, "backward"))
            ):
                bar = seconds / highest * width
                canvas.bar(left, y + place * _BAR, bar, _BAR, role, seconds_text(seconds))
            ratio = "" if change.ratio is None else f"  ×{change.ratio:.2f}"
            figures = f"{seconds_text(change.before)} → {seconds_text(change.after)}{ratio}"
            canvas.text(left + width + 10, y + _BAR + 4, figures, "tick")
            canvas.y += 2 * _BAR + 10
        places = [(at / highest, label) for at, label in time_ticks(highest, 8)]
        canvas.axis_below(left, width, places)


def _alone(canvas: Canvas, name: str, lone: Sequence[Lone]) -> None:
    """Operators of one run that the other one does not have."""
    if not lone:
        return
    canvas.y += 26
    canvas.text(MARGIN, canvas.y, f"only in {name}", "lane-name")
    for item in lone[:_ROWS]:
        canvas.y += 17
        text = f"{cut(item.label, _LONGEST)}, {seconds_text(item.seconds)}"
        canvas.text(MARGIN + 12, canvas.y, text, "tick")
    if len(lone) > _ROWS:
        canvas.y += 17
        canvas.text(MARGIN + 12, canvas.y, f"and {len(lone) - _ROWS} more", "faint")
