"""Places the boxes of a diagram: a lane per device, collectives in a lane between them.

A layered layout after Sugiyama, one lane at a time. A link that crosses rows gets a slot in each of
them, so that no line runs behind a box. If that would take too many slots, long links run straight
behind the boxes. A collective has a port in every lane that takes part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dpexec.viz.graphs.model import Box, Diagram, Link
from dpexec.viz.graphs.order import rows

BOX_HEIGHT = 38.0
ROW_GAP = 26.0
COLLECTIVE_HEIGHT = 30.0
CHARACTER = 7.25  # width of one character of a box's first line, the monospace face at 12 px
SMALL = 6.05  # the same at 10 px
LONGEST = 36  # characters of a line; in longer ones the middle is cut out
_SLOT, _PORT = 8.0, 14.0
_BOX_GAP, _LINE_GAP = 16.0, 7.0
_LANE_PADDING, _LANE_GAP = 22.0, 26.0
FRAME_HEAD = 16.0  # room for the name of a task above its first row
_SLOTS = 4000  # the most slots of all lanes together
_HOMING = 0.7  # how strongly boxes are drawn to the middle, so that long chains do not drift
_SWEEPS, _FEW_SWEEPS, _MANY_BOXES = 8, 2, 1500


def shorten(text: str, longest: int = LONGEST) -> str:
    """Cut the middle out of a text that is too long for a box.

    Example:
        >>> shorten("embedding_lookup_table_of_words", 15)
        'embeddi…f_words'
    """
    if len(text) <= longest:
        return text
    head = (longest - 1) // 2
    return text[: longest - 1 - head] + "…" + text[-head:]


def box_width(box: Box) -> float:
    """The width that both lines of a box need."""
    first, second = len(shorten(box.label)), len(shorten(box.detail))
    ends = 28 if box.device is not None else 44  # round ones need more
    return round(max(first * CHARACTER + 14, second * SMALL) + ends, 1)  # a sign stands beside


@dataclass(slots=True, eq=False)
class Item:
    """Something that takes room in one row of one lane: a box, a port or a passing line.

    `above` and `below` are the neighbours that lines connect it with.
    """

    row: int
    width: float
    box: Box | None = None
    port_of: Box | None = None
    x: float = 0.0
    above: list[Item] = field(default_factory=list)
    below: list[Item] = field(default_factory=list)

    @property
    def left(self) -> float:
        """The x of its left edge."""
        return self.x - self.width / 2


@dataclass(slots=True)
class Lane:
    """The column of a device.

    `routes` are the links with the items they pass: source, slots, target. Links that are too long
    for slots are `far`: they run straight, behind the boxes.
    """

    device: int
    rows: list[list[Item]]
    routes: list[tuple[Link, list[Item]]] = field(default_factory=list)
    far: list[tuple[Link, list[Item]]] = field(default_factory=list)
    x: float = 0.0
    width: float = 0.0

    def items(self) -> list[Item]:
        """All items, row by row."""
        return [item for row in self.rows for item in row]


@dataclass(slots=True)
class Layout:
    """The positions of all items; x of an item is absolute, y is that of its row.

    `frames` are the tasks of a plan: device, key, first and last row.
    """

    lanes: list[Lane]
    collectives: dict[int, tuple[Box, int]]
    centre: float
    tops: list[float]
    heights: list[float]
    width: float
    height: float
    frames: list[tuple[int, str, int, int]] = field(default_factory=list)


def place(diagram: Diagram) -> Layout:
    """Lay out a diagram.

    Args:
        diagram: Its links must not form a cycle.

    Returns:
        Rows from top to bottom, all lanes on the same rows; equal replicas look equal.
    """
    table = rows(diagram)
    row_of = {box.id: number for number, row in enumerate(table) for box in row}
    reach = _reach(diagram, row_of)
    lanes = [_lane(diagram, device, table, row_of, reach) for device in diagram.lanes]
    sweeps = _SWEEPS if len(diagram.boxes) < _MANY_BOXES else _FEW_SWEEPS
    for lane in lanes:
        _order(lane, sweeps)
        _spread(lane, sweeps)
    collectives = {b.id: (b, row_of[b.id]) for b in diagram.boxes if b.device is None}
    widest = max((box_width(box) for box, _ in collectives.values()), default=0.0)
    centre, width = _side_by_side(lanes, widest)
    heights = [
        COLLECTIVE_HEIGHT if any(box.device is None for box in row) else BOX_HEIGHT for row in table
    ]
    frames = _frames(diagram, row_of)
    headed = {first for _, _, first, _ in frames}
    tops, y = [], 0.0
    for number, height in enumerate(heights):
        y += FRAME_HEAD if number in headed else 0.0
        tops.append(y)
        y += height + ROW_GAP
    height = y - ROW_GAP if tops else 0.0
    return Layout(lanes, collectives, centre, tops, heights, width, height, frames)


def _frames(diagram: Diagram, row_of: dict[int, int]) -> list[tuple[int, str, int, int]]:
    spans: dict[tuple[int, str], list[int]] = {}
    for box in diagram.boxes:
        if box.task in diagram.tasks and box.device is not None:
            spans.setdefault((box.device, str(box.task)), []).append(row_of[box.id])
    return [(*where, min(found), max(found)) for where, found in spans.items()]


def _reach(diagram: Diagram, row_of: dict[int, int]) -> int:
    """The most rows that a link may pass to get a slot in each of them."""
    spans: dict[tuple[int, int], int] = {}
    for link in diagram.links:
        trunk = (link.source, link.lane)
        spans[trunk] = max(spans.get(trunk, 0), row_of[link.target] - row_of[link.source] - 1)
    reach = max(spans.values(), default=0)
    while reach and sum(min(span, reach) for span in spans.values()) > _SLOTS:
        reach //= 2
    return reach


def _lane(
    diagram: Diagram, device: int, table: list[list[Box]], row_of: dict[int, int], reach: int
) -> Lane:
    """Collect the items of one device and connect them with lines."""
    lane = Lane(device, [[] for _ in table])
    boxes = {box.id: box for box in diagram.boxes}
    items: dict[int, Item] = {}

    def item(node: int) -> Item:
        if node not in items:
            box = boxes[node]
            new = (
                Item(row_of[node], _PORT, port_of=box)
                if box.device is None
                else Item(row_of[node], box_width(box), box=box)
            )
            items[node] = new
            lane.rows[new.row].append(new)
        return items[node]

    links = [link for link in diagram.links if link.lane == device]
    inside = [link for link in links if _of_lane(boxes, link.source, link.target, device)]
    for row in table:
        for box in row:
            if box.device == device or device in box.reaches:
                item(box.id)
    trunks: dict[int, list[Item]] = {}
    for link in sorted(inside, key=lambda link: (row_of[link.source], row_of[link.target])):
        source, target = item(link.source), item(link.target)
        if target.row - source.row - 1 > reach:
            lane.far.append((link, [source, target]))
            continue
        trunk = trunks.setdefault(link.source, [source])
        while trunk[-1].row < target.row - 1:
            slot = Item(trunk[-1].row + 1, _SLOT)
            lane.rows[slot.row].append(slot)
            _join(trunk[-1], slot)
            trunk.append(slot)
        passed = trunk[: target.row - source.row]
        _join(passed[-1], target)
        lane.routes.append((link, [*passed, target]))
    return lane


def _of_lane(boxes: dict[int, Box], source: int, target: int, device: int) -> bool:
    return all(boxes[node].device in (None, device) for node in (source, target))


def _join(upper: Item, lower: Item) -> None:
    if lower not in upper.below:
        upper.below.append(lower)
        lower.above.append(upper)


def _order(lane: Lane, sweeps: int) -> None:
    """Reorder every row by the mean place of its neighbours, sweeping down and up."""
    places = {id(item): k / max(1, len(row)) for row in lane.rows for k, item in enumerate(row)}
    for sweep in range(sweeps):
        down = sweep % 2 == 0
        for row in lane.rows if down else reversed(lane.rows):
            keys = {}
            for item in row:
                near = item.above if down else item.below
                mean = sum(places[id(n)] for n in near) / len(near) if near else places[id(item)]
                keys[id(item)] = mean
            row.sort(key=lambda item: keys[id(item)])
            for k, item in enumerate(row):
                places[id(item)] = (k + 0.5) / len(row)


def _gap(left: Item, right: Item) -> float:
    """Distance that the centres of two neighbours must keep."""
    gap = _BOX_GAP if left.box and right.box else _LINE_GAP
    return (left.width + right.width) / 2 + gap


def _spread(lane: Lane, sweeps: int) -> None:
    """Give every item an x near its neighbours', without overlaps."""
    for row in lane.rows:
        _settle(row, [0.0] * len(row))
    for sweep in range(sweeps):
        down = sweep % 2 == 0
        for row in lane.rows if down else reversed(lane.rows):
            _settle(row, [_wish(item, down) for item in row])
    _gather(lane)
    items = lane.items()
    left = min((item.left for item in items), default=0.0)
    right = max((item.left + item.width for item in items), default=0.0)
    lane.width = max(right - left, 120.0) + 2 * _LANE_PADDING
    shift = lane.width / 2 - (left + right) / 2
    for item in items:
        item.x += shift


def _gather(lane: Lane) -> None:
    """Move items that no line connects with the largest part towards it, as far as possible."""
    parts = _connected(lane)
    if len(parts) < 2:
        return
    parts.sort(key=len, reverse=True)
    middle = sum(item.x for item in parts[0]) / len(parts[0])
    beside: dict[int, tuple[Item | None, Item | None]] = {}
    for row in lane.rows:
        for item, left, right in zip(row, [None, *row], [*row[1:], None], strict=False):
            beside[id(item)] = left, right
    for part in parts[1:]:
        own = {id(item) for item in part}
        lowest, highest = -math.inf, math.inf
        for item in part:
            left, right = beside[id(item)]
            if left is not None and id(left) not in own:
                lowest = max(lowest, left.x + _gap(left, item) - item.x)
            if right is not None and id(right) not in own:
                highest = min(highest, right.x - _gap(item, right) - item.x)
        wish = middle - sum(item.x for item in part) / len(part)
        shift = max(min(wish, highest), lowest)
        for item in part:
            item.x += shift


def _connected(lane: Lane) -> list[list[Item]]:
    """The connected components of a lane's items."""
    seen: set[int] = set()
    parts = []
    for start in lane.items():
        if id(start) in seen:
            continue
        seen.add(id(start))
        part = [start]
        for item in part:  # grows meanwhile
            for other in (*item.above, *item.below):
                if id(other) not in seen:
                    seen.add(id(other))
                    part.append(other)
        parts.append(part)
    return parts


def _pull(item: Item, other: Item) -> float:
    """The weight of a line between two items: how important it is that the line is straight.

    Lines from box to box have the largest weight, then lines that pass a row. So the main chain is
    vertical, and lines that bypass it run beside it.
    """
    if item.box and other.box:
        return 16.0
    return 1.0 if item.box or other.box else 8.0


def _wish(item: Item, down: bool) -> float:
    """The x for an item that its neighbours above (or below) suggest."""
    near = (item.above if down else item.below) or item.above or item.below
    pulls = [_pull(item, other) for other in near]
    if not near:
        return item.x
    drawn = sum(pull * other.x for pull, other in zip(pulls, near, strict=True))
    return drawn / (sum(pulls) + (_HOMING if item.box else 0.0))


def _settle(row: Sequence[Item], wishes: Sequence[float]) -> None:
    """Place a row as near to the wishes as its order and gaps allow (least squares).

    Pool adjacent violators: after subtracting the gaps, the positions must not decrease.
    """
    offsets = [0.0]
    for left, right in pairwise(row):
        offsets.append(offsets[-1] + _gap(left, right))
    blocks: list[tuple[float, float, int]] = []  # weighted sum, weight, number of items
    for item, wish, offset in zip(row, wishes, offsets, strict=False):
        weight = 3.0 if item.box else 2.0
        block = ((wish - offset) * weight, weight, 1)
        while blocks and blocks[-1][0] / blocks[-1][1] >= block[0] / block[1]:
            total, mass, count = blocks.pop()
            block = (block[0] + total, block[1] + mass, block[2] + count)
        blocks.append(block)
    settled = [total / mass for total, mass, count in blocks for _ in range(count)]
    for item, start, offset in zip(row, settled, offsets, strict=False):
        item.x = start + offset


def _side_by_side(lanes: list[Lane], collective: float) -> tuple[float, float]:
    """Put the lanes beside each other, with room for the collectives in the middle.

    Returns:
        x of the middle of the collectives' lane, and the total width.
    """
    middle = (len(lanes) + 1) // 2
    x = centre = 0.0
    for number, lane in enumerate(lanes):
        if number == middle and collective:
            centre = x + collective / 2
            x += collective + _LANE_GAP
        lane.x = x
        for item in lane.items():
            item.x += x
        x += lane.width + _LANE_GAP
    if collective and middle >= len(lanes):
        centre = x + collective / 2
        x += collective + _LANE_GAP
    return centre, max(0.0, x - _LANE_GAP)
