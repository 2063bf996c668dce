"""Draws the packages of dpexec and their imports: ``docs/pictures/rooms.svg``.

Usage: python -m tests.architecture, from the root of the repository. The arrows are read from the
imports of the sources; an arrow that follows from others is left out. A test compares the file.
"""

from __future__ import annotations

import ast
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from tests.test_import_direction import ENTRY, PICTURES, ROOT, SOURCES, imports, module_name

PICTURE = ROOT / "docs" / "pictures" / "rooms.svg"
SURFACE, COMMANDS = "fluid's surface", "commands"
WIDTH, BOX, HEIGHT, GAP = 1180, 176, 62, 40
COLOURS = {SURFACE: "#cfe3f5", COMMANDS: "#e4e4e4", "viz": "#f6dfc0", "dashboard": "#f6dfc0"}

Arrows = Mapping[str, set[str]]


def room_of(module: str) -> str:
    """The box that a module belongs to."""
    top, second, *_ = [*module.split(".")[1:], "", ""]
    if top == "engine":
        return second
    if top in PICTURES:
        return top
    return COMMANDS if top in ENTRY and module != "dpexec" else SURFACE


def arrows() -> Arrows:
    """Which room imports from which, the package itself apart, which connects all."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        module = module_name(path)
        for _, name in imports(path):
            if name.startswith("dpexec.") and module != "dpexec":
                found[room_of(module)].add(room_of(name))
    return {room: there - {room, ""} for room, there in found.items() if room}


def reduced(found: Arrows) -> Arrows:
    """Without the arrows that follow from others."""
    below: dict[str, set[str]] = {}

    def reached(room: str) -> set[str]:
        if room not in below:
            below[room] = set()
            for other in found.get(room, ()):
                below[room] |= {other} | reached(other)
        return below[room]

    return {
        room: {t for t in there if not any(t in reached(o) for o in there - {t})}
        for room, there in found.items()
    }


def levels(found: Arrows) -> list[list[str]]:
    """Rooms by height: each lies above all that it imports from."""
    height: dict[str, int] = {}

    def measure(room: str) -> int:
        if room not in height:
            height[room] = 1 + max(map(measure, found.get(room, ())), default=-1)
        return height[room]

    rooms = sorted(set(found) | {t for there in found.values() for t in there})
    top = max(map(measure, rooms))
    return [[room for room in rooms if height[room] == h] for h in range(top, -1, -1)]


def purpose(room: str) -> str:
    """The first line of the documentation of a room."""
    places = {SURFACE: "__init__.py", COMMANDS: "cli.py", "viz": "../viz/__init__.py"}
    inside = "engine/" if (ROOT / "dpexec" / "engine" / room).is_dir() else ""
    path = ROOT / "dpexec" / places.get(room, f"{inside}{room}/__init__.py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].replace("``", "").replace("`", "")


def places(rows: list[list[str]]) -> dict[str, tuple[float, float]]:
    """The middle of the upper edge of every box."""
    found = {}
    for number, row in enumerate(rows):
        for index, room in enumerate(row):
            found[room] = (
                WIDTH * (index + 1) / (len(row) + 1),
                20.0 + number * (HEIGHT + GAP),
            )
    return found


def _box(room: str, x: float, y: float) -> Iterable[str]:
    left = x - BOX / 2
    yield (
        f'<rect x="{left:.0f}" y="{y:.0f}" width="{BOX}" height="{HEIGHT}" rx="6" '
        f'fill="{COLOURS.get(room, "#dcebd8")}" stroke="#5a6570"/>'
    )
    yield f'<text x="{x:.0f}" y="{y + 16:.0f}" class="room">{escape(room)}</text>'
    for line, text in enumerate(textwrap.wrap(purpose(room), 33, max_lines=3)):
        yield f'<text x="{x:.0f}" y="{y + 30 + 12 * line:.0f}">{escape(text)}</text>'


def _line(start: tuple[float, float], end: tuple[float, float]) -> str:
    """An arrow; a long one leaves its box at the side, so that it passes by the boxes below."""
    (x1, y1), (x2, y2) = (start[0], start[1] + HEIGHT), end
    bend = (y2 - y1) / 2
    if y2 - y1 > HEIGHT + GAP:
        side = 1 if x2 > x1 else -1
        x1, y1 = x1 + side * BOX / 2, start[1] + HEIGHT / 2
        first = f"{max(x1, x2) if side > 0 else min(x1, x2):.0f} {y1:.0f}"
    else:
        first = f"{x1:.0f} {y1 + bend:.0f}"
    return (
        f'<path d="M{x1:.0f} {y1:.0f}C{first} {x2:.0f} {y2 - bend:.0f} '
        f'{x2:.0f} {y2:.0f}" marker-end="url(#tip)"/>'
    )


def picture() -> str:
    """The picture as SVG."""
    found = arrows()
    rows, drawn = levels(found), reduced(found)
    where = places(rows)
    height = 20 + len(rows) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        "<title>The rooms of dpexec; an arrow leads from a room to one that it imports</title>",
        "<style>text{font:10px sans-serif;text-anchor:middle;fill:#20262c}"
        ".room{font:bold 13px sans-serif}path{fill:none;stroke:#5a6570}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8" style="fill:#5a6570"/></marker>'
        f'</defs><rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for room in where:
        parts += [_line(where[room], where[there]) for there in sorted(drawn.get(room, ()))]
    for room, (x, y) in where.items():
        parts += _box(room, x, y)
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Write the picture."""
    Path(PICTURE).write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
