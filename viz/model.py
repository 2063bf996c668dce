"""What a picture shows, apart from where and how: boxes, links and notes.

Everything that can be drawn becomes a `Diagram` first, so that folding, layout and the writers
of SVG and DOT know one form only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

ROLES = ("forward", "backward", "collective", "optimize", "lr_sched")
"""Roles in the order of the legend; each has a colour."""


class VarLike(Protocol):
    """A version of a variable on a device, as SSAGraph holds it."""

    name: str
    version: int
    device: int | None
    shape: Sequence[int]
    kind: str


class OpLike(Protocol):
    """An operator of an SSAGraph."""

    id: int
    name: str
    kind: str
    device: int | None
    role: str
    inputs: Sequence[VarLike]
    outputs: Sequence[VarLike]


class GraphLike(Protocol):
    """What SSAGraph offers to a picture."""

    ops: Sequence[OpLike]
    places: Sequence[object]
    bodies: Mapping[int, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Box:
    """One operator, or several that were folded into one.

    Args:
        id: Unique in the diagram.
        label: First line, the operator.
        detail: Second line, what it produces; "" for none.
        role: One of `ROLES`.
        device: The lane; None for a collective, which crosses the lanes.
        tooltip: Everything there is to say, a line each.
        count: How many operators it stands for.
        reaches: The devices that a collective writes to.
    """

    id: int
    label: str
    detail: str
    role: str
    device: int | None
    tooltip: str
    count: int = 1
    reaches: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """Data, or an order, from one box to another.

    Args:
        source: id of the producing box.
        target: id of the consuming box.
        lane: The device whose variable it is.
        variables: Names of what flows; empty when only the order matters.
    """

    source: int
    target: int
    lane: int
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagram:
    """Boxes and links in the order of the graph, and what the reader has to know besides.

    Args:
        title: Heading.
        boxes: The operators.
        links: What flows between them.
        notes: Sentences below the heading.
        remarks: What to say of a device besides its number.
    """

    title: str
    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    notes: tuple[str, ...] = ()
    remarks: Mapping[int, str] = field(default_factory=dict)

    def lane_name(self, device: int) -> str:
        """What stands above the lane of a device."""
        remark = self.remarks.get(device)
        return f"device {device} · {remark}" if remark else f"device {device}"

    @property
    def lanes(self) -> tuple[int, ...]:
        """The devices, in order."""
        boxes = {box.device for box in self.boxes if box.device is not None}
        return tuple(sorted(boxes | {link.lane for link in self.links}))

    @property
    def operators(self) -> int:
        """Number of operators, those in folded boxes included."""
        return sum(box.count for box in self.boxes)


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape the way people write it; "" for none, -1 for an unknown dimension.

    Example:
        >>> shape_text((-1, 784))
        '[-1, 784]'
    """
    return f"[{', '.join(map(str, shape))}]" if shape else ""


def _describe(var: VarLike) -> str:
    place = "" if var.device is None else f" on device {var.device}"
    return f"{var.name} v{var.version} {shape_text(var.shape)}".rstrip() + place


def _data(variables: Iterable[VarLike]) -> list[VarLike]:
    return [var for var in variables if var.kind == "var"]


def _box(op: OpLike) -> Box:
    inputs, outputs = _data(op.inputs), _data(op.outputs)
    lines = [f"{op.name} (op {op.id}, {op.role})"]
    lines += [f"in: {_describe(var)}" for var in inputs]
    lines += [f"out: {_describe(var)}" for var in outputs]
    names = list(dict.fromkeys(var.name for var in outputs))
    detail = names[0] if names else ""
    if len(names) > 1:
        detail += f" +{len(names) - 1}"
    elif names and outputs[0].shape:
        detail += " " + shape_text(outputs[0].shape)
    collective = op.role == "collective"
    label = op.name
    if not collective:
        return Box(op.id, op.name, detail, op.role, op.device, "\n".join(lines))
    reaches = tuple(sorted({var.device for var in outputs if var.device is not None}))
    label = op.name
    if op.kind == "reduce" and len(reaches) == 1:
        label += f" to device {reaches[0]}"
    return Box(op.id, label, detail, op.role, None, "\n".join(lines), reaches=reaches)


def from_ssa(graph: GraphLike, title: str | None = None) -> Diagram:
    """Turn an SSAGraph into a diagram.

    Args:
        graph: The graph; its operators keep their order.
        title: Heading; None for one that counts devices and operators.

    Returns:
        One box per operator. Links that only keep an order (dummy and control variables) are left
        out where data flows between the two operators anyway, and counted in a note otherwise.

    Raises:
        ValueError: An operator has a role that has no colour.
    """
    for op in graph.ops:
        if op.role not in ROLES:
            raise ValueError(f"op {op.id} ({op.name}): role {op.role!r} is none of {ROLES}")
    producers = {id(var): op for op in graph.ops for var in op.outputs}
    flows: dict[tuple[int, int, int], list[str]] = {}
    orders: set[tuple[int, int]] = set()
    for op in graph.ops:
        for var in op.inputs:
            producer = producers.get(id(var))
            if producer is None:
                continue
            if var.kind != "var":
                orders.add((producer.id, op.id))
                continue
            lane = next((d for d in (var.device, op.device, producer.device) if d is not None), 0)
            names = flows.setdefault((producer.id, op.id, lane), [])
            if var.name not in names:
                names.append(var.name)
    links = tuple(Link(s, t, lane, tuple(names)) for (s, t, lane), names in flows.items())
    hidden = len(orders - {(link.source, link.target) for link in links})
    notes = (f"{hidden} dependencies that only keep an order are not drawn",) if hidden else ()
    boxes = tuple(_box(op) for op in graph.ops)
    diagram = Diagram(title or "", boxes, links, notes, _remarks(graph))
    return diagram if title else replace(diagram, title=_heading(diagram))


def _remarks(graph: GraphLike) -> dict[int, str]:
    """In a program with ParallelDos: where its devices are, and which are theirs."""
    inner = {device for devices in graph.bodies.values() for device in devices}
    return {
        device: f"ParallelDo · {place}" if device in inner else str(place)
        for device, place in enumerate(graph.places)
        if inner
    }


def _heading(diagram: Diagram) -> str:
    devices = len(diagram.lanes)
    collectives = sorted({box.label.split()[0] for box in diagram.boxes if box.device is None})
    parts = [f"{devices} device" + "s" * (devices != 1), f"{diagram.operators} operators"]
    return " · ".join(["SSA graph", *parts, *([" + ".join(collectives)] if collectives else [])])
