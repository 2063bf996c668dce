"""The static picture of a simulation: step time and efficiency over the number of devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dpexec.viz.measured.predict import Prediction
from dpexec.viz.pages.plot import MARGIN, Canvas, number
from dpexec.viz.pages.units import percent, seconds_text, time_ticks

_WIDTH = 1100.0
_LEFT = 76.0
_HEIGHT = 220.0
_BETWEEN = 40.0
_HEAD = 24.0  # room above the highest point for its label


def render(
    title: str,
    notes: Sequence[str],
    scan: Sequence[Prediction],
    chosen: int,
    end: Prediction | None,
) -> str:
    """Return a simulation as the text of an SVG document."""
    canvas = Canvas(title, _WIDTH, notes)
    canvas.y += 18
    top = canvas.y
    width = (_WIDTH - 2 * MARGIN - 2 * _LEFT - _BETWEEN) / 2
    highest = max(p.step for p in scan) or 1.0
    marks = [(at / highest, label) for at, label in time_ticks(highest, 6)]
    steps = [(p.devices, p.step / highest, seconds_text(p.step)) for p in scan]
    _chart(canvas, (MARGIN + _LEFT, top, width), "time of a step", marks, steps, (chosen, end))
    best = max(1.0, *(p.efficiency for p in scan))
    shares = [(share / 100 / best, f"{share}%") for share in range(0, int(best * 100) + 1, 20)]
    points = [(p.devices, p.efficiency / best, percent(p.efficiency)) for p in scan]
    left = MARGIN + 2 * _LEFT + width + _BETWEEN
    _chart(canvas, (left, top, width), "throughput per device", shares, points, (chosen, end))
    canvas.y = top + 14 + _HEIGHT + 46
    return canvas.svg()


def _chart(
    canvas: Canvas,
    frame: tuple[float, float, float],
    title: str,
    marks: Sequence[tuple[float, str]],
    points: Sequence[tuple[int, float, str]],
    special: tuple[int, Prediction | None],
) -> None:
    """One line over the number of devices, on a logarithmic axis."""
    left, top, width = frame
    canvas.text(left - _LEFT, top, title, "lane-name")
    bottom = top + 14 + _HEIGHT
    canvas.lane(left, top + 14, width, _HEIGHT)
    high = _HEIGHT - _HEAD
    for share, label in marks:
        y = bottom - share * high
        canvas.line(f"M{number(left - 4)} {number(y)}H{number(left + width)}")
        canvas.text(left - 8, y + 4, label, "tick end")
    x_of = _places([devices for devices, _, _ in points], left, width)
    chosen, end = special
    for devices, share, label in points:
        x, y = x_of(devices), bottom - share * high
        if devices == chosen or (end is not None and devices == end.devices):
            canvas.path(f"M{number(x)} {number(y)}V{number(bottom)}", "peak")
        rises = points[0][1] < points[-1][1]  # the side on which the line leaves room
        canvas.text(x - 4 if rises else x + 4, y - 8, label, "small end" if rises else "small")
        canvas.text(x, bottom + 15, str(devices), "tick middle")
    if end is not None and end.devices in {devices for devices, _, _ in points}:
        canvas.text(x_of(end.devices), bottom + 28, "scaling ends", "small middle")
    line = "L".join(f"{number(x_of(d))} {number(bottom - s * high)}" for d, s, _ in points)
    canvas.path(f"M{line}", "curve c-forward")
    for devices, share, label in points:
        canvas.dot(x_of(devices), bottom - share * high, "forward", f"{devices} devices: {label}")
    canvas.text(left + width, bottom + 28, "devices", "faint end")


def _places(numbers: Sequence[int], left: float, width: float) -> Callable[[int], float]:
    span = math.log2(max(numbers)) or 1.0
    inset = 52.0
    return lambda devices: left + inset + math.log2(devices) / span * (width - 2 * inset)
