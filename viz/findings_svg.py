"""The static picture of an analysis: a bar per device, the time of every step, sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpexec.viz.advising.analysis import Analysis
from dpexec.viz.measured.shares import DeviceUse, StepTime
from dpexec.viz.pages.looks import role_of
from dpexec.viz.pages.plot import MARGIN, Canvas, number, text_width, wrap
from dpexec.viz.pages.units import percent, seconds_text, time_ticks
from dpexec.viz.pages.words import PARTS

_WIDTH = 1000.0
_LEFT = 96.0
_BAR = 24.0
_STEPS_HEIGHT = 90.0
_STEPS_SHOWN = 200


def render(found: Analysis, title: str, notes: Sequence[str]) -> str:
    """Return an analysis as the text of an SVG document."""
    canvas = Canvas(title, _WIDTH, notes)
    canvas.y += 4
    used = {name for use in found.devices for name, value in use.parts.items() if value}
    canvas.legend([(role_of(name), PARTS[name]) for name in PARTS if name in used])
    for use in found.devices:
        _device(canvas, use)
    if found.devices:
        width = _WIDTH - 2 * MARGIN - _LEFT
        marks = [(share / 100, f"{share}%") for share in range(0, 101, 10)]
        canvas.axis_below(MARGIN + _LEFT, width, marks)
    if len(found.steps) > 1:
        _steps(canvas, found.steps)
    if found.advice:
        canvas.y += 26
        canvas.text(MARGIN, canvas.y, "What to change", "lane-name")
        canvas.y += 4
        for one in found.advice:
            for place, line in enumerate(wrap(one.text, _WIDTH - 2 * MARGIN - 16)):
                canvas.y += 18
                if not place:
                    canvas.text(MARGIN, canvas.y, "–", "sentence")
                canvas.text(MARGIN + 16, canvas.y, line, "sentence")
    return canvas.svg()


def _device(canvas: Canvas, use: DeviceUse) -> None:
    left, width = MARGIN + _LEFT, _WIDTH - 2 * MARGIN - _LEFT
    canvas.text(MARGIN, canvas.y + 16, f"device {use.device}", "lane-name")
    canvas.lane(left, canvas.y, width, _BAR)
    x = left
    for name, value in use.parts.items():
        if not value:
            continue
        part = value * width
        hint = f"{PARTS[name]}: {percent(value)}"
        canvas.bar(x + 0.5, canvas.y + 0.5, part - 1, _BAR - 1, role_of(name), hint)
        label = percent(value)
        if part > text_width(label, 10) + 8:
            half = text_width(label, 10) / 2 + 2
            # Figures on patterns and dark colours would be hard to read.
            canvas.box(x + part / 2 - half, canvas.y + 4, 2 * half, _BAR - 8, "lane")
            canvas.text(x + part / 2, canvas.y + _BAR / 2 + 3.5, label, "small middle")
        x += part
    canvas.y += _BAR + 8


def _steps(canvas: Canvas, steps: Sequence[StepTime]) -> None:
    """A bar for every step; if there are too many, for the longest of several steps."""
    size = -(-len(steps) // _STEPS_SHOWN)
    groups = [steps[at : at + size] for at in range(0, len(steps), size)]
    left, width = MARGIN + _LEFT, _WIDTH - 2 * MARGIN - _LEFT
    canvas.y += 22
    what = "Time of every step" if size == 1 else f"Longest of every {size} steps"
    canvas.text(MARGIN, canvas.y, what, "lane-name")
    canvas.y += 12
    top, bottom = canvas.y, canvas.y + _STEPS_HEIGHT
    highest = max(step.seconds for step in steps) or 1.0
    canvas.lane(left, top, width, _STEPS_HEIGHT)
    for seconds, label in time_ticks(highest, 4):
        y = bottom - seconds / highest * _STEPS_HEIGHT
        canvas.line(f"M{number(left - 4)} {number(y)}H{number(left + width)}")
        canvas.text(left - 8, y + 4, label, "tick end")
    each = min(width / len(groups), 40.0)
    gap = min(4.0, each * 0.25)
    for place, group in enumerate(groups):
        slowest = max(group, key=lambda step: step.seconds)
        height = slowest.seconds / highest * _STEPS_HEIGHT
        hint = f"step {slowest.step}: {seconds_text(slowest.seconds)}"
        canvas.bar(left + place * each, bottom - height, each - gap, height, "forward", hint)
    canvas.y = bottom
    room = text_width(str(groups[-1][0].step), 11) + 8
    shown = max(1, math.ceil(room / each))
    for place in range(0, len(groups), shown):
        x = left + place * each + (each - gap) / 2
        canvas.text(x, bottom + 15, str(groups[place][0].step), "tick middle")
    canvas.y += 20
