"""The content of a picture, without positions and style: boxes, links and notes.

Every graph is converted to a `Diagram` first, from the content of a graph file. So folding, layout
and the writers of SVG and DOT work on a single form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dpexec.viz.pages.load import FileError, GraphData
from dpexec.viz.pages.style import ROLE_NAMES
from dpexec.viz.pages.units import bytes_text, counted, few, tally

from dpexec.engine.graph.kinds import KINDS

Value = Mapping[str, Any]
"""A version of a variable on a device, as a graph file has it."""


@dataclass(frozen=True, slots=True)
class Box:
    """One operator, or several that were folded into one.

    Args:
        id: Its number, unique in the diagram.
        label: First line: the operator.
        detail: Second line: its results; "" for none.
        role: A key of `style.ROLE_NAMES`.
        device: The lane; None for a collective, which crosses the lanes.
        about: Returns all details, a line each; a function, because few boxes are asked for them.
        nodes: The operators that it stands for, as positions in the graph file.
        reaches: The devices that a collective writes to.
        task: Key of the plan's task that it belongs to.
        bytes: Bytes that a collective moves between devices; None if unknown before a run.
        only: In a lane for several devices: those that have the operator, if not all have it.
    """

    id: int
    label: str
    detail: str
    role: str
    device: int | None
    about: Callable[[], str] = field(compare=False, repr=False)
    nodes: tuple[int, ...]
    reaches: tuple[int, ...] = ()
    task: str | None = None
    bytes: int | None = 0
    only: tuple[int, ...] = ()

    @property
    def tooltip(self) -> str:
        """All details, a line each."""
        return self.about()

    @property
    def count(self) -> int:
        """The number of operators that it stands for."""
        return len(self.nodes)


@dataclass(frozen=True, slots=True)
class Link:
    """Data from one box to another.

    Args:
        source: id of the producing box.
        target: id of the consuming box.
        lane: The device whose variable it is.
        values: The variables that are passed, as positions in the diagram's values.
    """

    source: int
    target: int
    lane: int
    values: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagram:
    """Boxes and links in the order of the graph, with remarks for the reader.

    Args:
        title: Heading.
        boxes: The operators.
        links: The data passed between them.
        values: The variables of the graph file.
        notes: Sentences below the heading.
        lane_names: Names of lanes that show more than the device's number.
        tasks: The tasks of a plan, with those they wait for; empty if each has one operator only.
    """

    title: str
    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    values: Sequence[Value] = ()
    notes: tuple[str, ...] = ()
    lane_names: Mapping[int, str] = field(default_factory=dict)
    tasks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def lane_name(self, device: int) -> str:
        """The name above the lane of a device."""
        return self.lane_names.get(device, f"device {device}")

    @property
    def lanes(self) -> tuple[int, ...]:
        """The devices, in order."""
        boxes = {box.device for box in self.boxes if box.device is not None}
        return tuple(sorted(boxes | {link.lane for link in self.links}))

    @property
    def operators(self) -> int:
        """The number of operators, including those in folded boxes."""
        return sum(box.count for box in self.boxes)

    def flow(self, link: Link) -> str:
        """A link's value in one line: shape, type and size; for several, their number and size."""
        values = [self.values[number] for number in link.values]
        if len(values) == 1:
            return value_text(values[0])
        return f"{len(values)} values, {_total_text(values)}"

    def flow_details(self, link: Link, most: int = 12) -> str:
        """A link's values, a line each: the largest first, at most `most` of them."""
        values = [self.values[number] for number in link.values]
        values.sort(key=lambda value: -(value["bytes"] or 0))
        lines = [value_text(value) for value in values[:most]]
        if len(values) > most:
            lines.append(f"and {len(values) - most} more; {_total_text(values)} in all")
        return "\n".join(lines)


def from_graph(data: GraphData, title: str | None = None) -> Diagram:
    """Turn the content of a graph file into a diagram, a box per operator.

    Args:
        data: The graph; its operators keep their order.
        title: Heading; None for the graph's own.

    Returns:
        A diagram. Links that only keep an order (dummy and control variables) are left out if data
        flows between the two operators anyway, and counted in a note otherwise.

    Raises:
        FileError: An operator has an unknown role.
    """
    for node in data["nodes"]:
        if node["role"] not in ROLE_NAMES:
            name, role = node["name"], node["role"]
            raise FileError(
                f"op {node['id']} ({name}): role {role!r} is none of {tuple(ROLE_NAMES)}"
            )
    links, hidden = _links(data)
    boxes = tuple(_box(node, data["vars"]) for node in data["nodes"])
    notes = tuple(filter(None, (_moved(boxes), _skipped(data), _order_note(hidden))))
    names = _lane_names(data["devices"])
    tasks: dict[str, tuple[str, ...]] = {}
    if any(len(task["nodes"]) > 1 for task in data.get("tasks", ())):
        tasks = {task["key"]: tuple(task["after"]) for task in data["tasks"]}
    return Diagram(title or data["title"], boxes, links, data["vars"], notes, names, tasks)


def _links(data: GraphData) -> tuple[tuple[Link, ...], int]:
    """The links with data, and the number of pairs of operators with only an order between them."""
    producers = {var: node for node in data["nodes"] for var in node["outputs"]}
    values = data["vars"]
    flows: dict[tuple[int, int, int], list[int]] = {}
    orders: set[tuple[int, int]] = set()
    for node in data["nodes"]:
        for var in node["inputs"]:
            producer = producers.get(var)
            if producer is None:
                continue
            if values[var]["kind"] != "var":
                orders.add((producer["id"], node["id"]))
                continue
            ends = (values[var]["device"], node["device"], producer["device"])
            lane = next((device for device in ends if device is not None), 0)
            flows.setdefault((producer["id"], node["id"], lane), []).append(var)
    joined = {(source, target) for source, target, _ in flows}
    links = tuple(Link(*ends, tuple(dict.fromkeys(found))) for ends, found in flows.items())
    return links, len(orders - joined)


def _order_note(hidden: int) -> str:
    if not hidden:
        return ""
    what = (
        "1 dependency that only keeps an order is"
        if hidden == 1
        else (f"{hidden} dependencies that only keep an order are")
    )
    return f"{what} not drawn"


def _skipped(data: GraphData) -> str:
    count = sum(node["task"] is None for node in data["nodes"]) if "tasks" in data else 0
    return f"{count} of these operators the plan skips: nobody reads what they make" * bool(count)


def _moved(boxes: Iterable[Box]) -> str:
    """A sentence with the bytes that collectives move between devices in a step."""
    totals: dict[str, list[int | None]] = {}
    for box in boxes:
        if box.role == "collective":
            kind = box.label.split()[0].removeprefix("fused_")
            totals.setdefault(kind, []).append(box.bytes)
    parts = [
        f"{kind} of {_sum_text(sizes)}"
        if any(size is not None for size in sizes)
        else f"{counted(len(sizes), kind)} of unknown size"
        for kind, sizes in totals.items()
    ]
    return f"in each step: {', '.join(parts)}" if parts else ""


def _sum_text(sizes: Sequence[int | None]) -> str:
    known = sum(size for size in sizes if size is not None)
    unknown = sum(size is None for size in sizes)
    if not unknown:
        return bytes_text(known)
    rest = f"{unknown} of unknown size"
    return f"{bytes_text(known)} and {rest}" if known else rest


def _total_text(values: Iterable[Value]) -> str:
    return _sum_text([value["bytes"] for value in values])


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape the way people write it; "" for none, -1 for an unknown dimension.

    Example:
        >>> shape_text((-1, 784))
        '[-1, 784]'
    """
    return f"[{', '.join(map(str, shape))}]" if shape else ""


def value_text(value: Value) -> str:
    """Return name, version, shape, type and size of a variable.

    Example:
        >>> value_text({"name": "x", "version": 0, "shape": [2], "dtype": "int64", "bytes": 16})
        'x v0 [2] int64, 16 B'
    """
    parts = (f"{value['name']} v{value['version']}", shape_text(value["shape"]), value["dtype"])
    text = " ".join(filter(None, parts))
    return text if value["bytes"] is None else f"{text}, {bytes_text(value['bytes'])}"


def _box(node: Mapping[str, Any], values: Sequence[Value]) -> Box:
    inputs = [values[v] for v in node["inputs"] if values[v]["kind"] == "var"]
    outputs = [values[v] for v in node["outputs"] if values[v]["kind"] == "var"]
    collective, body = node["role"] == "collective", node.get("body")
    names = list(dict.fromkeys(value["name"] for value in outputs))
    moved = {value["name"]: value["bytes"] for value in outputs} if collective else {}
    sizes = list(moved.values())
    size = None if None in sizes else sum(size or 0 for size in sizes)
    detail = names[0] if names else ""
    if body:
        detail = f"runs {few(tally(inner['name'] for inner in body))}"
    elif len(names) > 1:
        detail += f" +{len(names) - 1}"
    elif names and outputs[0]["shape"]:
        detail += " " + shape_text(outputs[0]["shape"])
    if collective and size:
        detail += f", {bytes_text(size)}"
    reaches = tuple(sorted({value["device"] for value in outputs})) if collective else ()
    label = node["name"]
    kind = KINDS.get(node["kind"])
    if kind is not None and kind.combines and kind.has_root and len(reaches) == 1:
        label += f" to device {reaches[0]}"
    return Box(
        node["id"],
        label,
        detail,
        node["role"],
        None if collective else node["device"],
        partial(_text, node, inputs, outputs),
        (node["id"],),
        reaches,
        node.get("task"),
        size if collective else 0,
    )


def _text(node: Mapping[str, Any], inputs: Sequence[Value], outputs: Sequence[Value]) -> str:
    return "\n".join(_facts(node, inputs, outputs))


def _facts(
    node: Mapping[str, Any], inputs: Sequence[Value], outputs: Sequence[Value]
) -> Iterable[str]:
    yield f"{node['name']} (op {node['id']}, {node['role']})"
    if node["line"]:
        yield f"line: {node['line']}"
    if node["scope"] != "/" and node["role"] != "optimize":  # optimizers make up their own
        yield f"scope: {node['scope']}"
    if node.get("task"):
        yield f"task: {node['task']}"
    if node.get("parts"):
        yield f"fused from: {', '.join(node['parts'])}"
    if node.get("body"):
        yield f"runs {counted(len(node['body']), 'operator')}:"
        yield from map(_inner_text, node["body"])
    collective = node["role"] == "collective"
    for direction, values in (("in", inputs), ("out", outputs)):
        for value in values:
            place = f" on device {value['device']}" if collective else ""
            yield f"{direction}: {value_text(value)}{place}"


def _inner_text(inner: Mapping[str, Any]) -> str:
    """An operator of a block; those of inner blocks are indented further."""
    made = f" → {inner['output']}" if inner["output"] else ""
    return f"{'    ' * (inner['depth'] + 1)}{inner['name']}{made}"


def _lane_names(devices: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """In a program with ParallelDos: names that tell the devices of the program from theirs."""
    if not any(device.get("parallel_do") for device in devices):
        return {}
    return {
        device["id"]: f"device {device['id']} · "
        + ("ParallelDo · " if device["parallel_do"] else "")
        + device["place"]
        for device in devices
    }


def with_notes(diagram: Diagram, *notes: str) -> Diagram:
    """The diagram with further sentences in front of its own."""
    return replace(diagram, notes=(*notes, *diagram.notes))
