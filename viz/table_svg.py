"""The static picture of a table: its first rows, with bars behind one column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.viz.pages.page_data import Unit
from dpexec.viz.pages.plot import MARGIN, Canvas, number, text_width
from dpexec.viz.pages.units import cut, figure_text

_ROWS = 30
_LINE = 20.0
_GAP = 20.0
_LONGEST = 44  # characters of a cell


def render(
    title: str,
    columns: Sequence[tuple[str, Unit]],
    rows: Sequence[Sequence[Any]],
    bars: int,
    remarks: Sequence[str],
) -> str:
    """Return a table as the text of an SVG document.

    Args:
        title: Heading.
        columns: Label and unit of each.
        rows: The cells.
        bars: The column with a bar behind each figure.
        remarks: Sentences below the heading.
    """
    shown = rows[:_ROWS]
    texts = [
        [
            cut(figure_text(cell, unit), _LONGEST)
            for cell, (_, unit) in zip(row, columns, strict=True)
        ]
        for row in shown
    ]
    widths = [
        max(text_width(cell, 11) for cell in (label, *(row[n] for row in texts)))
        for n, (label, _) in enumerate(columns)
    ]
    widths[bars] = max(widths[bars], 110.0)
    whole = 2 * MARGIN + sum(widths) + _GAP * (len(columns) - 1)
    rest = len(rows) - len(shown)
    notes = [*remarks, *([f"The first {len(shown)} of {len(rows)} rows."] if rest else [])]
    canvas = Canvas(title, max(whole, 560.0), notes)
    canvas.y += 12
    _line(canvas, [label for label, _ in columns], columns, widths, "faint")
    canvas.path(f"M{number(MARGIN)} {number(canvas.y + 6)}H{number(whole - MARGIN)}", "grid")
    canvas.y += 4
    largest = max((row[bars] for row in shown), default=0.0)
    left = MARGIN + sum(widths[:bars]) + _GAP * bars
    for row, cells in zip(shown, texts, strict=True):
        canvas.y += _LINE
        if largest:
            canvas.bar(left, canvas.y - 12, widths[bars] * row[bars] / largest, 15, "forward")
        _line(canvas, cells, columns, widths, "tick")
    return canvas.svg()


def _line(
    canvas: Canvas,
    cells: Sequence[str],
    columns: Sequence[tuple[str, Unit]],
    widths: Sequence[float],
    style: str,
) -> None:
    x = MARGIN
    for cell, (_, unit), width in zip(cells, columns, widths, strict=True):
        if unit == "text":
            canvas.text(x, canvas.y, cell, style)
        else:
            canvas.text(x + width, canvas.y, cell, f"{style} end")
        x += width + _GAP
