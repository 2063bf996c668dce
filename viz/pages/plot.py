"""Shared parts of charts: SVG elements, axes, legends, notes; nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from dpexec.viz.pages import looks
from dpexec.viz.pages.style import DARK, LIGHT, css

MARGIN = 24.0
HATCHED = "collective"
"""The role whose bars are hatched: communication differs from computation without colour, too."""

_CHAR = {10: 6.1, 11: 6.7, 12: 7.3, 13: 8.0, 16: 9.4}  # pixels of a wide character, by font size


def text_width(text: str, size: int = 12) -> float:
    """Return an upper bound of a text's width in pixels."""
    return len(text) * _CHAR[size]


def number(value: float) -> str:
    """Return a coordinate with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def wrap(text: str, width: float, size: int = 12) -> list[str]:
    """Break a text into lines of at most `width` pixels.

    Example:
        >>> wrap("one two three", 60)
        ['one two', 'three']
    """
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


class Canvas:
    """Collects the elements of a picture from top to bottom.

    Args:
        title: Heading.
        width: Pixels.
        notes: Sentences below the heading.
    """

    def __init__(self, title: str, width: float, notes: Iterable[str] = ()) -> None:
        self.title, self.width = title, width
        self.back: list[str] = []  # drawn first, then the lines of the axes, then the rest
        self.lines: list[str] = []
        self.parts: list[str] = []
        self._lanes: list[tuple[float, float]] = []
        self.y = MARGIN + 14
        for line in wrap(title, width - 2 * MARGIN, 16):
            self.text(MARGIN, self.y, line, "title")
            self.y += 22
        for note in notes:
            for line in wrap(note, width - 2 * MARGIN):
                self.text(MARGIN, self.y, line, "faint")
                self.y += 17

    def text(self, x: float, y: float, content: str, classes: str = "", hint: str = "") -> None:
        """Write a text, its baseline at y."""
        title = f"<title>{escape(hint)}</title>" if hint else ""
        self.parts.append(
            f'<text class="{classes}" x="{number(x)}" y="{number(y)}">{title}'
            f"{escape(content)}</text>"
        )

    def bar(
        self, x: float, y: float, width: float, height: float, role: str, hint: str = ""
    ) -> None:
        """Draw a bar in the colours of a role; without a frame if it is too narrow for one."""
        solid = " solid" if width < 3 else ""
        title = f"<title>{escape(hint)}</title>" if hint else ""
        self.parts.append(
            f'<rect class="bar r-{role}{solid}" x="{number(x)}" y="{number(y)}" '
            f'width="{number(max(width, 0.6))}" height="{number(height)}">{title}</rect>'
        )

    def box(self, x: float, y: float, width: float, height: float, classes: str) -> None:
        """Draw a plain rectangle."""
        self.parts.append(_rectangle(x, y, width, height, classes))

    def lane(self, x: float, y: float, width: float, height: float) -> None:
        """Draw the background of a row of bars or of a chart."""
        self.back.append(_rectangle(x, y, width, height, "lane"))
        self._lanes.append((y, y + height))

    def line(self, path: str) -> None:
        """Draw a line of an axis."""
        self.lines.append(f'<path class="grid" d="{path}"/>')

    def dot(self, x: float, y: float, role: str, hint: str) -> None:
        """Draw a point of a curve."""
        self.parts.append(
            f'<circle class="dot c-{role}" cx="{number(x)}" cy="{number(y)}" r="3.5">'
            f"<title>{escape(hint)}</title></circle>"
        )

    def path(self, line: str, classes: str, hint: str = "") -> None:
        """Draw a path."""
        title = f"<title>{escape(hint)}</title>" if hint else ""
        self.parts.append(f'<path class="{classes}" d="{line}">{title}</path>')

    def legend(self, items: Sequence[tuple[str, str]]) -> None:
        """Write a legend of roles and their names; the role "" is the critical path."""
        x = MARGIN
        for role, label in items:
            width = 20 + text_width(label) + 18
            if x > MARGIN and x + width > self.width - MARGIN:
                x = MARGIN
                self.y += 20
            if role:
                self.bar(x, self.y - 1, 14, 12, role)
            else:
                self.box(x, self.y + 4, 14, 3.5, "critical")
            self.text(x + 20, self.y + 9.5, label, "faint")
            x += width
        self.y += 24

    def axis_below(self, x: float, width: float, places: Sequence[tuple[float, str]]) -> None:
        """Draw an axis below all lanes drawn since the last axis, with lines through these lanes.

        Labels without room are left out.

        Args:
            x: Left end.
            width: Width of the axis.
            places: Positions between 0 and 1, with their labels.
        """
        free = -1e9
        for share, label in places:
            at = x + share * width
            for top, bottom in self._lanes:
                self.line(f"M{number(at)} {number(top)}V{number(bottom)}")
            self.line(f"M{number(at)} {number(self.y)}V{number(self.y + 4)}")
            half = text_width(label, 11) / 2
            if at - half > free and at + half < self.width - 2:
                self.text(at, self.y + 17, label, "tick middle")
                free = at + half + 6
        self._lanes.clear()
        self.y += 24

    def svg(self) -> str:
        """Return the document."""
        w, h = number(self.width), number(self.y + MARGIN)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="dpx" role="img" '
                f'width="{w}" height="{h}" viewBox="0 0 {w} {h}">',
                f"<title>{escape(self.title)}</title>",
                f"<style>\n{css()}\n{_chart_css()}\n</style>",
                f"<defs>{_hatch()}{looks.patterns()}</defs>",
                f'<rect class="page" width="{w}" height="{h}"/>',
                *self.back,
                *self.lines,
                *self.parts,
                "</svg>",
                "",
            ]
        )


def _rectangle(x: float, y: float, width: float, height: float, classes: str) -> str:
    return (
        f'<rect class="{classes}" x="{number(x)}" y="{number(y)}" width="{number(width)}" '
        f'height="{number(height)}"/>'
    )


def _hatch() -> str:
    return (
        '<pattern id="dpx-hatch" width="5" height="5" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect class="hatch-back" width="5" height="5"/>'
        '<rect class="hatch-line" width="2" height="5"/></pattern>'
    )


def _chart_css() -> str:
    rules = [
        ".dpx .tick { font-size: 11px; }",
        ".dpx .small { font-size: 10px; }",
        ".dpx .end { text-anchor: end; }",
        ".dpx .sentence { font-family: system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; }",
        ".dpx .grid { fill: none; stroke-width: 1; opacity: 0.28; }",
        ".dpx rect.bar { stroke-width: 1; }",
        ".dpx .critical { stroke: none; }",
        ".dpx rect.hatch-back, .dpx rect.hatch-line { stroke: none; }",
        ".dpx .curve { fill: none; stroke-width: 2; }",
        ".dpx .peak { fill: none; stroke-width: 1.4; stroke-dasharray: 3 3; }",
        ".dpx .area { stroke-width: 0.8; }",
        ".dpx .dashed { stroke-dasharray: 6 4; }",
        *_colours(LIGHT, "#1b2530", "#5c6975"),
        *looks.picture_rules(dark=False),
        "@media (prefers-color-scheme: dark) {",
        *_colours(DARK, "#e7edf3", "#9aa7b4"),
        *looks.picture_rules(dark=True),
        "}",
    ]
    return "\n".join(rules)


def _colours(roles: dict[str, tuple[str, str]], strong: str, faint: str) -> list[str]:
    rules = [
        f".dpx .critical {{ fill: {strong}; }}",
        f".dpx .peak {{ stroke: {strong}; }}",
        f".dpx .grid {{ stroke: {faint}; }}",
        f".dpx .sentence {{ fill: {strong}; }}",
        f".dpx text.tick, .dpx text.small {{ fill: {strong}; }}",
    ]
    for role, (line, fill) in roles.items():
        rules.append(f".dpx .r-{role} {{ stroke: {line}; fill: {fill}; }}")
        rules.append(f".dpx .r-{role}.solid {{ fill: {line}; stroke: none; }}")
        rules.append(f".dpx .curve.c-{role} {{ stroke: {line}; }}")
        rules.append(f".dpx .dot.c-{role} {{ fill: {line}; }}")
    line, fill = roles[HATCHED]
    rules.append(f".dpx .hatch-back {{ fill: {fill}; }} .dpx .hatch-line {{ fill: {line}; }}")
    rules.append(f".dpx .r-{HATCHED} {{ fill: url(#dpx-hatch); }}")
    return rules
