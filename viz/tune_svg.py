"""The static picture of tuning: a row per setting, its ratio with the interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpexec.viz.pages.plot import MARGIN, Canvas, number, text_width
from dpexec.viz.pages.units import cut
from dpexec.viz.tuning.search import Tried

_WIDTH = 1000.0
_ROW = 24.0
_LONGEST = 48
_ROLES = {"faster": "optimize", "slower": "collective", "the same": "feed"}
_MOST = 30


def render(title: str, notes: Sequence[str], tried: Sequence[Tried]) -> str:
    """Return the settings as the text of an SVG document."""
    canvas = Canvas(title, _WIDTH, notes)
    canvas.y += 6
    ran = [one for one in tried if one.ratio is not None][:_MOST]
    if ran:
        canvas.legend([(role, verdict) for verdict, role in _ROLES.items()])
        _rows(canvas, ran)
    idle = [one for one in tried if one.ratio is None]
    if idle:
        canvas.y += 22
        canvas.text(MARGIN, canvas.y, "Did not run", "lane-name")
    for one in idle[:_MOST]:
        canvas.y += 17
        text = f"{cut(str(one.setting), _LONGEST)}: {one.reason}"
        canvas.text(MARGIN + 12, canvas.y, cut(text, 130), "tick")
    if len(idle) > _MOST:
        canvas.y += 17
        canvas.text(MARGIN + 12, canvas.y, f"and {len(idle) - _MOST} more", "faint")
    return canvas.svg()


def _rows(canvas: Canvas, ran: Sequence[Tried]) -> None:
    labels = [cut(str(one.setting), _LONGEST) for one in ran]
    left = MARGIN + max(text_width(label, 11) for label in labels) + 14
    width = _WIDTH - MARGIN - left - 64
    low, high = _span([one.ratio.median for one in ran if one.ratio])
    for one, label in zip(ran, labels, strict=True):
        ratio = one.ratio
        assert ratio is not None
        canvas.lane(left, canvas.y, width, _ROW - 6)
        canvas.text(left - 8, canvas.y + 13, label, "tick end")
        ends = [
            left + (min(high, max(low, value)) - low) / (high - low) * width
            for value in (ratio.low, ratio.median, ratio.high)
        ]
        role = _ROLES.get(one.verdict, "feed")
        hint = f"{label}: ×{ratio.median:.3f}, {ratio.low:.3f} to {ratio.high:.3f}"
        canvas.bar(ends[0], canvas.y + 4, max(2.0, ends[2] - ends[0]), _ROW - 14, role, hint)
        canvas.dot(ends[1], canvas.y + (_ROW - 6) / 2, role, hint)
        canvas.text(left + width + 8, canvas.y + 13, f"×{ratio.median:.2f}", "tick")
        canvas.y += _ROW
    one_at = left + (1 - low) / (high - low) * width
    canvas.path(f"M{number(one_at)} {number(canvas.y)}v{number(-_ROW * len(ran))}", "peak")
    step = 0.1 if high - low < 1.2 else 0.5
    marks = [k * step for k in range(math.ceil(low / step - 1e-9), int(high / step + 1e-9) + 1)]
    places = [((mark - low) / (high - low), f"×{mark:g}") for mark in marks]
    canvas.axis_below(left, width, places)
    canvas.text(left, canvas.y + 10, "time of a step, compared with what is set now", "faint")
    canvas.y += 14


def _span(medians: Sequence[float]) -> tuple[float, float]:
    """The range of the axis: round numbers, with 1 inside; much slower settings are cut off."""
    low = min(0.9, *(value - 0.1 for value in medians))
    high = max(1.1, *(min(value, 2.0) + 0.1 for value in medians))
    return max(0.0, int(low * 10) / 10), -int(-high * 10) / 10
