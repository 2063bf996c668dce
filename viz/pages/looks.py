"""The looks of bars: a colour and a pattern for each meaning, the same in pages and pictures.

Patterns distinguish colours of the same lightness, in grey prints and for colour-blind readers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Pattern = Literal["plain", "rising", "falling", "level", "upright", "cross", "grid", "dots"]


@dataclass(frozen=True, slots=True)
class Look:
    """The look of a meaning.

    Args:
        light: Colour on light pages.
        dark: Colour on dark pages.
        pattern: Name of the pattern that is drawn on it.
    """

    light: str
    dark: str
    pattern: Pattern


LOOKS = {
    "compute": Look("#2f7fc1", "#56a5e0", "plain"),
    "communication": Look("#d9682b", "#f0834a", "rising"),
    "data": Look("#7ccfb8", "#34b78f", "dots"),
    "overhead": Look("#c58db4", "#b36a9e", "falling"),
    "turn": Look("#a9a1dd", "#8d83cf", "grid"),
    "dependency": Look("#efe3a0", "#a89a3a", "upright"),
    "straggler": Look("#e6ae45", "#d19a33", "cross"),
    "no_free_thread": Look("#8fa85a", "#7f9a48", "level"),
    "scheduler": Look("#dde4eb", "#4a5661", "plain"),
    "unknown": Look("#eef1f4", "#39434d", "level"),
    "half": Look("#1f8a68", "#34b78f", "plain"),
    "none": Look("#9ad9c3", "#1d6b53", "rising"),
}
"""Looks of the parts of a device's time (see `words.PARTS`), then of savings: those if something
took half the time, and the additional ones if it took no time."""

_INK = "#10161c"
_ALPHA = 0.55
_LINES = {
    "plain": "",
    "rising": "M-1 1l2 -2M0 6l6 -6M5 7l2 -2",
    "falling": "M-1 5l2 2M0 0l6 6M5 -1l2 2",
    "level": "M0 3h6",
    "upright": "M3 0v6",
    "cross": "M-1 1l2 -2M0 6l6 -6M5 7l2 -2M-1 5l2 2M0 0l6 6M5 -1l2 2",
    "grid": "M3 0v6M0 3h6",
    "dots": "M2 3a1 1 0 1 0 2 0a1 1 0 1 0 -2 0",
}
"""Paths in a tile of six by six."""


def role_of(meaning: str) -> str:
    """Return the name of a meaning's look for `Canvas.bar` and `Canvas.legend`."""
    return f"is-{meaning}"


def patterns() -> str:
    """Return the definitions of the patterns that fill bars of an SVG document."""
    return "".join(
        f'<pattern id="dpx-is-{name}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect class="back-{name}" width="6" height="6"/>{_ink(look.pattern)}</pattern>'
        for name, look in LOOKS.items()
    )


def _ink(pattern: Pattern) -> str:
    return f'<path class="ink" d="{_LINES[pattern]}"/>' if _LINES[pattern] else ""


def picture_rules(dark: bool) -> list[str]:
    """Return the style rules of an SVG document, light or dark."""
    rules = [] if dark else [f".dpx .ink {{ fill: none; stroke: {_INK}; opacity: {_ALPHA}; }}"]
    for name, look in LOOKS.items():
        colour = look.dark if dark else look.light
        rules.append(f".dpx rect.back-{name} {{ fill: {colour}; stroke: none; }}")
        rules.append(f".dpx .r-is-{name} {{ fill: url(#dpx-is-{name}); stroke: {colour}; }}")
    return rules


def page_rules() -> str:
    """Return the style rules of a page: a class for each meaning, `is-compute` and so on."""
    rules = []
    for name, look in LOOKS.items():
        tile = (
            "<svg xmlns='http://www.w3.org/2000/svg' width='6' height='6'>"
            f"<path d='{_LINES[look.pattern]}' fill='none' stroke='{_INK}' opacity='{_ALPHA}'/>"
            "</svg>"
        )
        image = tile.replace("#", "%23").replace("<", "%3C").replace(">", "%3E")
        rules.append(
            f".is-{name}{{--part:{look.light};"
            f'background-image:url("data:image/svg+xml,{image}")}}'
            f":root[data-theme=dark] .is-{name}{{--part:{look.dark}}}"
        )
    return "\n".join(rules)
