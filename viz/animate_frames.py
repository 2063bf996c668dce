"""The frames of a film: the graph with running operators, and below it the step and its memory."""

from __future__ import annotations

import io
from typing import Any

from dpexec.viz.draw import Drawing
from dpexec.viz.graphs.model import Diagram
from dpexec.viz.graphs.svg import Placed, placed
from dpexec.viz.measured.memory_use import memory_of
from dpexec.viz.measured.moments import Moments
from dpexec.viz.measured.schedule import Schedule, Slice
from dpexec.viz.pages.picture import cairo
from dpexec.viz.pages.style import LIGHT
from dpexec.viz.pages.units import cut, seconds_text

_WIDTH, _GRAPH_HEIGHT = 960, 620
_LEFT, _RIGHT, _ROW, _MEMORY = 90, 16, 16, 34
_HEAD = 30
_LINE, _ACCENT, _WARN, _PAGE = "#d0103a", "#1f5fd0", "#a84800", "#ffffff"
_TEXT, _FAINT, _LANE = "#1b2530", "#54616d", "#f4f6f8"
_TENSORS = 24
READABLE = 0.6  # the least scale of a graph that folds by itself
_LEGIBLE = 0.8  # the least scale at which texts of the graph are read
_COLOURS = 256


def film(
    schedule: Schedule,
    moments: Moments,
    drawing: Drawing,
    title: str,
    seconds: float,
    rate: int,
) -> bytes:
    """Return the bytes of an animated GIF.

    Args:
        schedule: The trace.
        moments: The step.
        drawing: Its graph.
        title: Heading.
        seconds: Duration of the film.
        rate: Frames per second.

    Raises:
        RuntimeError: Cairo or Pillow is missing.
    """
    frames = _Frames(schedule, moments, drawing, title)
    count = max(2, round(seconds * rate))
    length = moments.stop - moments.start
    times = [moments.start + length * k / (count - 1) for k in range(count)]
    colours = frames.at(times[count // 2]).quantize(_COLOURS)  # one palette makes the film smaller
    pictures = [frames.at(time).quantize(palette=colours, dither=0) for time in times]
    made = io.BytesIO()
    pictures[0].save(
        made,
        format="GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=[round(1000 / rate)] * (count - 1) + [1500],  # the end stays for a while
        loop=0,
        optimize=False,
    )
    return made.getvalue()


def scale_of(diagram: Diagram) -> float:
    """Return how large a graph is in a film; 1 is the size at which it was laid out."""
    return _scale(placed(diagram))


def _scale(places: Placed) -> float:
    return min(1.0, _WIDTH / places.width, _GRAPH_HEIGHT / places.height)


def _pillow() -> Any:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise RuntimeError("a film needs Pillow: pip install 'dpexec[viz]'") from None
    return Image, ImageDraw, ImageFont


class _Frames:
    """Draws a step at any moment: the changing parts on top of a fixed background."""

    def __init__(self, schedule: Schedule, moments: Moments, drawing: Drawing, title: str) -> None:
        self.image, self.draw, font = _pillow()
        self.schedule, self.moments, self.drawing = schedule, moments, drawing
        self.font, self.bold = font.load_default(12), font.load_default(15)
        diagram = drawing.diagram
        places: Placed = placed(diagram)
        self.scale = _scale(places)
        self.small = font.load_default(max(8.0, 12 * self.scale))
        self.left = (_WIDTH - places.width * self.scale) / 2
        self.boxes = places.boxes
        self.below = _HEAD + places.height * self.scale + 6
        ids = [node["id"] for node in drawing.data["nodes"]]
        self.nodes = {box.id: {ids[at] for at in box.nodes} for box in diagram.boxes}
        self.spans = self._spans()
        self.rows = self._rows()
        self.memory = memory_of(schedule) if schedule.trace.memory else ()
        self.height = round(self.below + _ROW * len(self.rows) + _MEMORY * len(self.memory) + 24)
        self.base = self._base(title)

    # ---- the background

    def _spans(self) -> dict[int, tuple[float, float]]:
        """By operator: its first beginning and its last end."""
        found: dict[int, tuple[float, float]] = {}
        for work in self.moments.works:
            for node in work.nodes:
                start, stop = found.get(node, (work.start, work.stop))
                found[node] = min(start, work.start), max(stop, work.stop)
        return found

    def _rows(self) -> list[tuple[str, list[Slice]]]:
        """The tracks of the step with their work."""
        pieces: dict[int, list[Slice]] = {}
        for index in self.schedule.step(self.moments.step).slices:
            piece = self.schedule.by_id[index]
            if piece.is_leaf_work:
                pieces.setdefault(piece.track, []).append(piece)
        tracks = self.schedule.tracks
        found: list[tuple[str, list[Slice]]] = []
        group = ""
        for track, inside in sorted(pieces.items()):
            one = tracks[track]
            name = f"   {one.name}" if one.group == group else one.group  # a device is named once
            found.append((name, inside))
            group = one.group
        return found

    def _base(self, title: str) -> Any:
        picture = self.image.new("RGB", (_WIDTH, self.height), _PAGE)
        package = cairo(".gif")
        data = package.svg2png(bytestring=self.drawing.svg.encode(), scale=self.scale)
        graph = self.image.open(io.BytesIO(data)).convert("RGB")
        picture.paste(graph, (round(self.left), _HEAD))
        pen = self.draw.Draw(picture)
        pen.text((16, 8), cut(_plain(title), 90), fill=_TEXT, font=self.bold)
        y = self.below
        for name, pieces in self.rows:
            pen.text((16, y), name, fill=_FAINT, font=self.font)
            pen.rectangle((_LEFT, y, _WIDTH - _RIGHT, y + _ROW - 4), fill=_LANE)
            for piece in pieces:
                line, _ = LIGHT[self.schedule.role_of(piece)]
                ends = self._x(piece.event.start), self._x(piece.event.stop)
                pen.rectangle((ends[0], y, max(ends[0] + 0.5, ends[1]), y + _ROW - 4), fill=line)
            y += _ROW
        self._memory(pen, y + 4)
        return picture

    def _memory(self, pen: Any, y: float) -> None:
        most = max((float(used.alive.max(initial=1)) for used in self.memory), default=1.0)
        for used in self.memory:
            pen.text((16, y + 8), f"memory {used.device}", fill=_FAINT, font=self.font)
            bottom = y + _MEMORY - 6
            last = self._x(self.moments.start)
            sizes = [*used.alive.tolist()]
            for at, time in enumerate(used.times.tolist()):
                until = used.times[at + 1] if at + 1 < len(sizes) else self.moments.stop
                if until < self.moments.start or time > self.moments.stop:
                    continue
                right = self._x(min(float(until), self.moments.stop))
                top = bottom - (sizes[at] / most) * (_MEMORY - 10)
                pen.rectangle((last, top, max(last, right), bottom), fill=LIGHT["optimize"][1])
                pen.line((last, top, max(last, right), top), fill=LIGHT["optimize"][0])
                last = right
            y += _MEMORY

    def _x(self, time: float) -> float:
        length = self.moments.stop - self.moments.start or 1.0
        return _LEFT + (time - self.moments.start) / length * (_WIDTH - _RIGHT - _LEFT)

    # ---- the changing parts

    def at(self, time: float) -> Any:
        """Return the picture of a moment."""
        picture = self.base.copy()
        veil = self.image.new("L", picture.size, 0)
        cover = self.draw.Draw(veil)
        states = {box: self._state(nodes, time) for box, nodes in self.nodes.items()}
        for box, state in states.items():
            if state == "future":
                cover.rectangle(self._place(box, 2), fill=150)
        picture.paste(self.image.new("RGB", picture.size, _PAGE), (0, 0), veil)
        pen = self.draw.Draw(picture)
        for box, state in states.items():
            if state == "running":
                pen.rounded_rectangle(self._place(box, 3), 7, outline=_ACCENT, width=4)
        self._tensors(pen, time)
        self._waits(pen, time)
        x = self._x(time)
        pen.line((x, self.below - 4, x, self.height - 22), fill=_LINE, width=2)
        pen.polygon([(x - 5, self.below - 8), (x + 5, self.below - 8), (x, self.below)], _LINE)
        since = seconds_text(time - self.moments.start).replace("µ", "u")
        pen.text((16, self.height - 20), since, fill=_TEXT, font=self.font)
        return picture

    def _state(self, nodes: set[int], time: float) -> str:
        spans = [self.spans[node] for node in nodes if node in self.spans]
        if any(start <= time < stop for start, stop in spans):
            return "running"
        return "future" if any(start > time for start, _ in spans) else "done"

    def _place(self, box: int, around: float) -> tuple[float, float, float, float]:
        x, y, w, h = (value * self.scale for value in self.boxes[box])
        x, y = x + self.left, y + _HEAD
        return x - around, y - around, x + w + around, y + h + around

    def _tensors(self, pen: Any, time: float) -> None:
        """Draw tensors that will still be read, below the boxes that made them."""
        shown = 0
        taken: set[int] = set()
        for link in self.drawing.diagram.links:
            if link.source in taken or not self._alive(link.source, link.target, time):
                continue
            text = _plain(self.drawing.diagram.flow(link))
            if not text or shown == _TENSORS:
                continue
            if self.scale < _LEGIBLE:  # room for the bytes alone
                text = text.rpartition(", ")[2]
            taken.add(link.source)
            shown += 1
            left, _, right, bottom = self._place(link.source, 0)
            middle = (left + right) / 2
            self._plate(pen, middle, bottom + 8 * self.scale, text, _ACCENT, self.small)

    def _alive(self, source: int, target: int, time: float) -> bool:
        made = [self.spans[node][1] for node in self.nodes[source] if node in self.spans]
        read = [self.spans[node][1] for node in self.nodes[target] if node in self.spans]
        return bool(made and read) and max(made) <= time < max(read)

    def _waits(self, pen: Any, time: float) -> None:
        lines: dict[int, int] = {}
        for wait in self.moments.waits:
            if not wait.start <= time < wait.stop:
                continue
            boxes = (box for box, nodes in self.nodes.items() if nodes & {*wait.nodes[:1]})
            box = next(boxes, None)
            if box is None:
                continue
            line = lines[box] = lines.get(box, -1) + 1
            left, top, right, _ = self._place(box, 0)
            text = cut(f"device {wait.device} waits {wait.text}", 70)
            self._plate(pen, (left + right) / 2, top - 9 - 17 * line, text, _WARN, self.font)

    def _plate(self, pen: Any, x: float, y: float, text: str, frame: str, font: Any) -> None:
        half = pen.textlength(text, font=font) / 2 + 4
        x = min(max(x, half + 2), _WIDTH - half - 2)
        high = font.size * 0.66
        corners = (x - half, y - high, x + half, y + high)
        pen.rounded_rectangle(corners, 3, fill=_PAGE, outline=frame)
        pen.text((x, y), text, fill=_TEXT, font=font, anchor="mm")


def _plain(text: str) -> str:
    """A text in characters that every font has."""
    for sign, letters in (("·", "-"), ("→", "->"), ("…", "..."), ("×", "x"), ("µ", "u")):
        text = text.replace(sign, letters)
    return text
