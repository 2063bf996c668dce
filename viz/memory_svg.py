"""The static picture of memory: a stack over time per device, and the variables of the peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dpexec.viz.measured.memory_use import COLOURS, DeviceMemory, Peak
from dpexec.viz.measured.schedule import Schedule, Step
from dpexec.viz.pages.plot import MARGIN, Canvas, number, text_width
from dpexec.viz.pages.units import bytes_text, cut, percent, size_ticks, time_ticks

_WIDTH = 1180.0
_LEFT = 96.0
_HEIGHT = 190.0
_HEAD = 22.0  # room above the peak for its label
_LISTED = 8


def render(schedule: Schedule, devices: Sequence[DeviceMemory], title: str) -> str:
    """Return the picture of the step with the highest peak as the text of an SVG document."""
    largest = max(devices, key=lambda used: used.peak.bytes)
    step = _step_of(schedule, largest)
    notes = []
    if len(schedule.steps) > 1:
        notes = [f"This is step {step.number}, in which device {largest.device} has its peak."]
    canvas = Canvas(title, _WIDTH, notes)
    used = [kind for kind in COLOURS if any(d.kinds[kind].any() for d in devices)]
    canvas.y += 4
    canvas.legend([(COLOURS[kind], kind) for kind in used])
    highest = float(max(max(d.peak.bytes, d.work_area.max(initial=0)) for d in devices))
    for device in devices:
        _chart(canvas, device, step, max(1.0, highest))
        _parts(canvas, device.peak)
    return canvas.svg()


def _step_of(schedule: Schedule, used: DeviceMemory) -> Step:
    """A step in or after which a device has its peak; the typical one if it qualifies."""
    moments = used.times[used.alive == used.peak.bytes]
    usual = [time for time in moments if schedule.counted[0].start <= time]
    time = (usual or moments)[0]
    return next((step for step in schedule.steps if time <= step.stop), schedule.steps[-1])


def _chart(canvas: Canvas, used: DeviceMemory, step: Step, highest: float) -> None:
    """Draw a device during a step; all devices have the same scale."""
    canvas.y += 16
    canvas.text(MARGIN, canvas.y, f"device {used.device}", "lane-name")
    area = int(used.work_area.max(initial=0))
    if area:
        text = f"dashed: {bytes_text(area)} work area of machine code, without parameters and feeds"
        canvas.text(MARGIN + _LEFT, canvas.y, text, "faint")
    canvas.y += 12
    left, width = MARGIN + _LEFT, _WIDTH - 2 * MARGIN - _LEFT
    times, columns = _columns(used, step, int(width))
    top = canvas.y
    bottom = top + _HEIGHT
    per_byte = (_HEIGHT - _HEAD) / highest
    canvas.lane(left, top, width, _HEIGHT)
    for mark, label in size_ticks(highest):
        y = bottom - mark * per_byte
        canvas.line(f"M{number(left - 4)} {number(y)}H{number(left + width)}")
        canvas.text(left - 8, y + 4, label, "tick end")
    xs = left + times * width
    frame = left, width, bottom, per_byte
    _stack(canvas, used, (xs, columns), frame, area * per_byte if area else -1.0)
    if area:
        course = _steps(xs, left + width, bottom - used.work_area[columns] * per_byte)
        canvas.path("M" + course, "curve dashed c-feed")
    canvas.y = bottom
    _peak_mark(canvas, used.peak, step, frame)
    span = step.seconds
    places = [(at / span if span else 0.0, text) for at, text in time_ticks(span)]
    canvas.axis_below(left, width, places)


def _stack(
    canvas: Canvas,
    used: DeviceMemory,
    course: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    frame: tuple[float, float, float, float],
    line: float,
) -> None:
    """Draw the kinds on top of each other, with names that do not touch the line."""
    xs, columns = course
    left, width, bottom, per_byte = frame
    base = np.zeros(len(columns))
    areas = []
    for kind in COLOURS:
        sizes = used.kinds[kind][columns].astype(float)
        if sizes.any():
            lower = bottom - base * per_byte
            area = _area(xs, left + width, lower, base + sizes, bottom, per_byte)
            canvas.path(area, f"area r-{COLOURS[kind]}", f"{kind} of device {used.device}")
            areas.append((kind, (base * per_byte, sizes * per_byte)))
            base = base + sizes
    for kind, area_of in areas:
        _name_area(canvas, kind, (left, width, bottom), xs, area_of, line)


def _name_area(
    canvas: Canvas,
    kind: str,
    frame: tuple[float, float, float],
    xs: np.ndarray[Any, Any],
    area: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    line: float,
) -> None:
    """Write the name of an area where it is level and high enough for it, if anywhere.

    Args:
        canvas: The picture.
        kind: The name.
        frame: Left end, width and lower edge of the chart.
        xs: Where each value begins.
        area: For each value, lower edge and height of the area, above the chart's lower edge.
        line: Height of a line that must not cross the name.
    """
    left, width, bottom = frame
    lower, height = area
    word = int(text_width(kind, 10)) + 8
    lengths = np.diff([*xs, left + width]).round().astype(int)
    low, high = np.repeat(lower, lengths), np.repeat(lower + height, lengths)
    if len(low) < word:
        return
    windows = np.lib.stride_tricks.sliding_window_view
    floor, ceiling = windows(low, word).max(axis=1), windows(high, word).min(axis=1)
    best = int((ceiling - floor).argmax())
    bands = [(floor[best], ceiling[best])]
    if floor[best] < line < ceiling[best]:
        bands = [(floor[best], line), (line, ceiling[best])]
    under, over = max(bands, key=lambda band: band[1] - band[0])
    if over - under >= 13:
        canvas.text(left + best + word / 2, bottom - (under + over) / 2 + 3.5, kind, "small middle")


def _columns(
    used: DeviceMemory, step: Step, pixels: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """For each pixel: its left edge, between 0 and 1, and the position of its largest sum."""
    alive = used.alive
    edges = step.start + np.arange(pixels + 1) / pixels * step.seconds
    first = np.maximum(np.searchsorted(used.times, edges[:-1], "right") - 1, 0)
    after = np.maximum(np.searchsorted(used.times, edges[1:], "right"), first + 1)
    found = [a + int(alive[a:b].argmax()) for a, b in zip(first, after, strict=True)]
    kept = [0, *(n for n in range(1, pixels) if found[n] != found[n - 1])]
    return np.array(kept) / pixels, np.array(found)[kept]


def _steps(xs: np.ndarray[Any, Any], end: float, ys: np.ndarray[Any, Any]) -> str:
    """A line of horizontal and vertical pieces."""
    rights = [*xs[1:], end]
    return "L".join(
        f"{number(x)} {number(y)}H{number(right)}"
        for x, right, y in zip(xs, rights, ys, strict=True)
    )


def _area(
    xs: np.ndarray[Any, Any],
    end: float,
    lower: np.ndarray[Any, Any],
    sums: np.ndarray[Any, Any],
    bottom: float,
    per_byte: float,
) -> str:
    """The outline of one kind: along its upper edge, and back along the lower one."""
    upper = _steps(xs, end, bottom - sums * per_byte)
    rights = [*xs[1:], end]
    back = "".join(
        f"L{number(right)} {number(y)}H{number(x)}"
        for x, right, y in reversed(list(zip(xs, rights, lower, strict=True)))
    )
    return f"M{upper}{back}Z"


def _peak_mark(
    canvas: Canvas, peak: Peak, step: Step, frame: tuple[float, float, float, float]
) -> None:
    left, width, bottom, per_byte = frame
    if not step.start <= peak.time <= step.stop:
        return
    share = (peak.time - step.start) / step.seconds if step.seconds else 0.0
    x, y = left + share * width, bottom - peak.bytes * per_byte
    canvas.path(f"M{number(x)} {number(y)}V{number(bottom)}", "peak")
    label = f"peak {bytes_text(peak.bytes)}"
    half = text_width(label, 11) / 2
    at = min(max(x, left + half + 4), left + width - half - 4)
    canvas.text(at, y - 7, label, "tick middle")


def _parts(canvas: Canvas, peak: Peak) -> None:
    """The largest variables of a peak, a bar each."""
    shown = peak.parts[:_LISTED]
    if not shown:
        return
    name_width = min(max(text_width(part.name, 11) for part in shown), 420.0)
    left = MARGIN + _LEFT
    bars = left + name_width + 12
    room = _WIDTH - bars - MARGIN - 210
    canvas.y += 14
    canvas.text(left, canvas.y, "the peak is made of", "faint")
    canvas.y += 8
    for part in shown:
        name = cut(part.name, int(name_width / text_width("x", 11)))
        canvas.text(left, canvas.y + 11, name, "tick")
        width = room * part.bytes / shown[0].bytes
        share = part.bytes / peak.bytes if peak.bytes else 0.0
        canvas.bar(bars, canvas.y + 1, width, 12, COLOURS[part.kind], part.name)
        text = f"{bytes_text(part.bytes)}, {percent(share)}, {part.kind}"
        canvas.text(bars + width + 8, canvas.y + 11, text, "faint")
        canvas.y += 18
    if len(peak.parts) > len(shown):
        rest = peak.bytes - sum(part.bytes for part in shown)
        canvas.text(
            left,
            canvas.y + 11,
            f"and {len(peak.parts) - len(shown)} more, {bytes_text(rest)}",
            "faint",
        )
        canvas.y += 18
    canvas.y += 10
