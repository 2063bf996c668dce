"""Writes a laid-out diagram as SVG: no script, no font, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from dpexec.viz.graphs.layout import (
    BOX_HEIGHT,
    COLLECTIVE_HEIGHT,
    FRAME_HEAD,
    Item,
    Lane,
    Layout,
    box_width,
    place,
    shorten,
)
from dpexec.viz.graphs.model import Box, Diagram, Link
from dpexec.viz.pages.style import ROLE_NAMES, SIGNS, css

_MARGIN = 24.0
_LANE_HEAD = 40.0
_LANE_FOOT = 18.0
_PORT_SPACING = 11.0
_ARROW = 5.0


def render(diagram: Diagram) -> str:
    """Return the picture of a diagram as the text of an SVG document."""
    return _Picture(diagram, place(diagram)).text()


@dataclass(frozen=True, slots=True)
class Placed:
    """The positions of the boxes in a picture, in pixels.

    Args:
        width: Width of the picture.
        height: Height of the picture.
        boxes: By id of the box: left, top, width and height.
    """

    width: float
    height: float
    boxes: dict[int, tuple[float, float, float, float]]


def placed(diagram: Diagram) -> Placed:
    """Return where `render` draws the boxes of a diagram."""
    picture = _Picture(diagram, place(diagram))
    return Placed(picture.width, picture.height, dict(picture.boxes()))


def _number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


class _Picture:
    """Turns one layout into SVG elements; x and y of the page start at the margin."""

    def __init__(self, diagram: Diagram, layout: Layout) -> None:
        self.diagram, self.layout = diagram, layout
        self.head = _MARGIN + 52 + 18 * len(diagram.notes)
        self.width = max(layout.width + 2 * _MARGIN, self._legend_end(), 11 * len(diagram.title))
        self.left = (self.width - layout.width) / 2
        self.height = self.head + _LANE_HEAD + layout.height + _LANE_FOOT + _MARGIN

    def text(self) -> str:
        w, h = _number(self.width), _number(self.height)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="dpx" role="img" '
            f'width="{w}" height="{h}" viewBox="0 0 {w} {h}">',
            f"<title>{escape(self.diagram.title)}</title>",
            f"<style>\n{css()}\n</style>",
            f'<rect class="page" width="{w}" height="{h}"/>',
            *self._heading(),
        ]
        for lane in self.layout.lanes:
            parts.extend(self._lane(lane))
        frames, names = self._frames()
        parts.extend(frames)
        for lane in self.layout.lanes:
            parts.extend(self._far(lane))
            parts.extend(self._lines(lane))
        parts.extend(self._across())
        parts.extend(names)
        for box, row in self.layout.collectives.values():
            parts.extend(self._collective(box, row))
        for lane in self.layout.lanes:
            parts.extend(self._box(i.box, self._x(i), self._top(i.row)) for i in _boxes(lane))
        return "\n".join([*parts, "</svg>", ""])

    # Places

    def _x(self, item: Item) -> float:
        return self.left + item.x

    def _top(self, row: int) -> float:
        return self.head + _LANE_HEAD + self.layout.tops[row]

    def _bottom(self, row: int) -> float:
        return self._top(row) + self.layout.heights[row]

    def boxes(self) -> Iterator[tuple[int, tuple[float, float, float, float]]]:
        """Every box with its left edge, top, width and height."""
        for box, row in self.layout.collectives.values():
            width, middle = box_width(box), self.left + self.layout.centre
            yield box.id, (middle - width / 2, self._bus(row) - BOX_HEIGHT / 2, width, BOX_HEIGHT)
        for item in (item for lane in self.layout.lanes for item in _boxes(lane)):
            assert item.box is not None
            width = box_width(item.box)
            yield item.box.id, (self._x(item) - width / 2, self._top(item.row), width, BOX_HEIGHT)

    # Parts

    def _present(self) -> list[str]:
        used = {box.role for box in self.diagram.boxes}
        return [role for role in ROLE_NAMES if role in used]

    def _legend_end(self) -> float:
        return 2 * _MARGIN + sum(34 + 7.5 * len(ROLE_NAMES[role]) for role in self._present())

    def _heading(self) -> Iterator[str]:
        x, y = _MARGIN, _MARGIN + 14
        yield _text(x, y, "title", self.diagram.title)
        for note in self.diagram.notes:
            y += 18
            yield _text(x, y, "faint", note)
        y += 14
        for role in self._present():
            yield (
                f'<g class="{role}"><rect x="{_number(x)}" y="{_number(y)}" '
                f'width="14" height="14" rx="3"/>{_text(x + 7, y + 10.5, "sign", SIGNS[role])}</g>'
            )
            yield _text(x + 20, y + 11.5, "faint", ROLE_NAMES[role])
            x += 34 + 7.5 * len(ROLE_NAMES[role])

    def _lane(self, lane: Lane) -> Iterator[str]:
        x, height = self.left + lane.x, self.height - self.head - _MARGIN
        yield (
            f'<rect class="lane" x="{_number(x)}" y="{_number(self.head)}" '
            f'width="{_number(lane.width)}" height="{_number(height)}" rx="10"/>'
        )
        name = self.diagram.lane_name(lane.device)
        yield _text(x + lane.width / 2, self.head + 22, "lane-name middle", name)

    def _frames(self) -> tuple[list[str], list[str]]:
        """Frames around the tasks of a plan, and their names, which no line may cross."""
        lanes = {lane.device: lane for lane in self.layout.lanes}
        frames, names = [], []
        for device, key, first, last in self.layout.frames:
            lane, name = lanes[device], f"task {key}"
            x, width = self.left + lane.x + 6, lane.width - 12
            top, bottom = self._top(first) - FRAME_HEAD - 6, self._bottom(last) + 8
            frames.append(
                f'<rect class="frame" x="{_number(x)}" y="{_number(top)}" '
                f'width="{_number(width)}" height="{_number(bottom - top)}" rx="8"/>'
            )
            names.append(
                f'<rect class="lane" x="{_number(x + 6)}" y="{_number(top + 3)}" '
                f'width="{_number(len(name) * 6.8)}" height="15"/>'
                + _text(x + 8, top + 15, "faint", name)
            )
        return frames, names

    def _lines(self, lane: Lane) -> Iterator[str]:
        starts, stops = _ends(lane)
        for link, items in lane.routes:
            path, y = "", 0.0
            for upper, lower in pairwise(items):
                x1 = self._x(upper) + starts[id(upper), id(lower)]
                x2 = self._x(lower) + stops[id(upper), id(lower)]
                path += f"M{_number(x1)} {_number(self._leave(upper))}" if not path else ""
                path += _curve(x1, self._leave(upper), x2, self._enter(lower))
                y = self._top(lower.row)
                if lower.box is None:
                    path += f"V{_number(self._leave(lower))}"
            yield self._link(link, path, (x2, y) if items[-1].box else None)

    def _far(self, lane: Lane) -> Iterator[str]:
        for link, (upper, lower) in lane.far:
            x1, y1, x2, y2 = self._x(upper), self._leave(upper), self._x(lower), self._enter(lower)
            path = f"M{_number(x1)} {_number(y1)}" + _curve(x1, y1, x2, y2)
            yield self._link(link, path, None, "line far")

    def _link(
        self, link: Link, path: str, head: tuple[float, float] | None, kind: str = "line"
    ) -> str:
        """A line with a tooltip about the values that it passes."""
        arrow = f'<path class="head" d="{_arrow(*head)}"/>' if head else ""
        said = escape(self.diagram.flow_details(link))
        return f'<g><title>{said}</title><path class="{kind}" d="{path}"/>{arrow}</g>'

    def _bus(self, row: int) -> float:
        return self._top(row) + COLLECTIVE_HEIGHT / 2

    def _leave(self, item: Item) -> float:
        """Where the lines below an item begin."""
        if item.box:
            return self._top(item.row) + BOX_HEIGHT
        return self._bus(item.row) if item.port_of else self._bottom(item.row)

    def _enter(self, item: Item) -> float:
        """Where the lines from above end."""
        if item.box:
            return self._top(item.row) - _ARROW
        return self._top(item.row)

    def _across(self) -> Iterator[str]:
        """Lines between boxes of different lanes that no collective joins."""
        boxes = {i.box.id: i for lane in self.layout.lanes for i in _boxes(lane) if i.box}
        for link in self.diagram.links:
            upper, lower = boxes.get(link.source), boxes.get(link.target)
            if upper is None or lower is None or upper.box is None or lower.box is None:
                continue
            if upper.box.device == lower.box.device:
                continue
            x1, y1 = self._x(upper), self._leave(upper)
            x2, y2 = self._x(lower), self._top(lower.row)
            path = (
                f"M{_number(x1)} {_number(y1)}C{_number(x1)} {_number(y1 + 30)} "
                f"{_number(x2)} {_number(y2 - 30)} {_number(x2)} {_number(y2 - _ARROW)}"
            )
            yield self._link(link, path, (x2, y2), "line across")

    def _collective(self, box: Box, row: int) -> Iterator[str]:
        y = self._bus(row)
        ports = [
            self._x(item)
            for lane in self.layout.lanes
            for item in lane.rows[row]
            if item.port_of is box
        ]
        middle = self.left + self.layout.centre
        ends = _number(min([*ports, middle])), _number(max([*ports, middle]))
        yield f'<g class="{box.role}"><path class="bus" d="M{ends[0]} {_number(y)}H{ends[1]}"/>'
        for x in ports:
            yield f'<circle class="dot" cx="{_number(x)}" cy="{_number(y)}" r="3.6"/>'
        yield "</g>"
        yield self._box(box, middle, y - BOX_HEIGHT / 2)

    def _box(self, box: Box | None, x: float, y: float) -> str:
        assert box is not None
        width = box_width(box)
        radius, sign = BOX_HEIGHT / 2 if box.device is None else 6, SIGNS[box.role]
        lines = [
            f'<g class="{box.role}"><title>{escape(box.tooltip)}</title>'
            f'<rect x="{_number(x - width / 2)}" y="{_number(y)}" width="{_number(width)}" '
            f'height="{_number(BOX_HEIGHT)}" rx="{_number(radius)}"/>'
            + _text(x - width / 2 + (9 if box.device is None else 0) + 10, y + 15, "sign", sign)
        ]
        if box.detail:
            lines.append(_text(x, y + 16, "middle", shorten(box.label)))
            lines.append(_text(x, y + 30, "detail middle", shorten(box.detail)))
        else:
            lines.append(_text(x, y + BOX_HEIGHT / 2 + 4, "middle", shorten(box.label)))
        return "".join([*lines, "</g>"])


def _boxes(lane: Lane) -> list[Item]:
    return [item for item in lane.items() if item.box]


def _ends(lane: Lane) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int], float]]:
    """Offsets of lines from the middles of their boxes, at both ends, so that they stay apart."""
    starts: dict[tuple[int, int], float] = {}
    stops: dict[tuple[int, int], float] = {}
    for item in lane.items():
        room = item.width * 0.7 if item.box else 0.0
        for near, offsets, below in ((item.below, starts, True), (item.above, stops, False)):
            spacing = min(_PORT_SPACING, room / max(1, len(near)))
            for place_, other in enumerate(sorted(near, key=lambda n: n.x)):
                key = (id(item), id(other)) if below else (id(other), id(item))
                offsets[key] = (place_ - (len(near) - 1) / 2) * spacing
    return starts, stops


def _text(x: float, y: float, classes: str, content: str) -> str:
    return f'<text class="{classes}" x="{_number(x)}" y="{_number(y)}">{escape(content)}</text>'


def _curve(x1: float, y1: float, x2: float, y2: float) -> str:
    if x1 == x2:
        return f"V{_number(y2)}"
    half = _number((y1 + y2) / 2)
    return f"C{_number(x1)} {half} {_number(x2)} {half} {_number(x2)} {_number(y2)}"


def _arrow(x: float, y: float) -> str:
    back = _number(y - _ARROW - 1)
    return f"M{_number(x)} {_number(y)}L{_number(x - 3.5)} {back}H{_number(x + 3.5)}Z"
