"""Draws several operators as one box, so that a large graph fits on a page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from dpexec.viz.graphs.groups import KINDS, Group
from dpexec.viz.graphs.model import Box, Diagram, Link, with_notes
from dpexec.viz.pages.units import bytes_text, counted, few, tally

AT_A_GLANCE = 80
"""Groups of a folded picture are opened as long as it has no more boxes than this."""


_DEVICE = re.compile(r" on device \d+$")
_DEVICE_OF_TASK = re.compile(r"_dev\d+.*")


def fold(diagram: Diagram, groups: Sequence[Group], closed: Collection[int]) -> Diagram:
    """Draw groups as one box each; of nested closed groups, the outermost.

    Args:
        diagram: A diagram with a box per operator, or per operator of all replicas.
        groups: The groups of its graph.
        closed: ids of the groups to draw as one box; without any, the diagram is returned.

    Returns:
        A diagram whose boxes' counts add up to the operators of the original; a note tells what was
        folded.
    """
    group_of = _outermost(groups, closed)
    if not group_of:
        return diagram

    def key(box: Box) -> tuple[str, int]:
        group = group_of.get(box.nodes[0])
        return ("box", box.id) if group is None else ("group", group)

    def joined(number: int, boxes: list[Box]) -> Box:
        group = group_of.get(boxes[0].nodes[0])
        if group is None:
            return replace(boxes[0], id=number)
        return _folded(number, boxes, groups[group])

    folded = _merge(diagram, key, joined)
    kinds = {groups[group].kind for group in group_of.values()}
    names = " and ".join(f"{kind}s" for kind in KINDS if kind in kinds)
    note = (
        f"folded into {names}: {counted(diagram.operators, 'operator')} drawn as "
        f"{len(folded.boxes)} boxes"
    )
    return with_notes(folded, note)


def fold_replicas(diagram: Diagram, twins: Sequence[int | None]) -> Diagram:
    """Draw the operators that do the same on several devices as one box, in one lane for all.

    Args:
        diagram: A diagram with a box per operator.
        twins: Per operator, the one on the first device that does the same.
    """
    devices = sorted({box.device for box in diagram.boxes if box.device is not None})
    where = [box.device for box in diagram.boxes if twins[box.id] is not None]
    merged = sorted({device for device in where if device is not None})
    if len(merged) < 2:
        return diagram
    first = merged[0]

    def key(box: Box) -> int:
        twin = twins[box.id]
        return box.id if twin is None else twin

    def joined(number: int, boxes: list[Box]) -> Box:
        box = boxes[0]
        nodes = tuple(node for each in boxes for node in each.nodes)
        reaches = tuple(sorted({first if d in merged else d for d in box.reaches}))
        if box.device not in merged:
            return replace(box, id=number, reaches=reaches)
        places = tuple(each.device for each in boxes if each.device is not None)
        made = replace(box, id=number, device=first, nodes=nodes)
        return made if len(places) == len(merged) else _alone(made, places)

    one = _merge(diagram, key, joined, dict.fromkeys(merged, first))
    name = f"devices {merged[0]} to {merged[-1]}: ×{len(merged)}"
    note = f"folded: the {len(merged)} replicas on {len(devices)} devices are drawn as one lane"
    return with_notes(replace(one, lane_names={**one.lane_names, first: name}), note)


def closed_at(groups: Sequence[Group], kind: str) -> set[int]:
    """The groups of a kind, and those of inner kinds that are in no such group."""
    return {group.id for group in groups if KINDS.index(group.kind) >= KINDS.index(kind)}


def glance(diagram: Diagram, groups: Sequence[Group]) -> set[int]:
    """The groups to close so that at most `AT_A_GLANCE` boxes are drawn.

    All groups of one kind are closed, and those with no groups inside: the innermost kind with few
    enough boxes. If only stages qualify, they are opened one after the other, on all devices at
    once, as long as there is room.
    """
    boxes = [box.nodes[0] for box in diagram.boxes]
    around = {group.parent for group in groups}
    for kind in reversed(KINDS[1:]):
        closed = closed_at(groups, kind) | {g.id for g in groups if g.id not in around}
        group_of = _outermost(groups, closed)
        if len({group_of.get(node, -1 - node) for node in boxes}) <= AT_A_GLANCE:
            return closed
    closed = {group.id for group in groups}
    group_of = _outermost(groups, closed)
    count = len({group_of.get(node, -1 - node) for node in boxes})
    shown = set(boxes)
    stages: dict[str, list[Group]] = {}
    for group in groups:
        if group.parent is None and not shown.isdisjoint(group.nodes):
            name = _DEVICE_OF_TASK.sub("", _DEVICE.sub("", group.label))
            stages.setdefault(name, []).append(group)
    for alike in stages.values():
        opened = {group.id for group in alike}
        inside = sum(group.parent in opened for group in groups)
        growth = inside + sum(len(group.own) for group in alike) - len(alike)
        if count + growth <= AT_A_GLANCE:
            closed -= opened
            count += growth
    return closed


def _outermost(groups: Sequence[Group], closed: Collection[int]) -> dict[int, int]:
    """The outermost closed group around each node."""
    chosen = set(closed)
    around: dict[int, int] = {}
    for group in groups:  # outer ones come first
        if group.parent in around:
            around[group.id] = around[group.parent]
        elif group.id in chosen:
            around[group.id] = group.id
    found: dict[int, int] = {}
    for number in dict.fromkeys(around.values()):
        found.update(dict.fromkeys(groups[number].nodes, number))
    return found


def _merge(
    diagram: Diagram,
    key: Callable[[Box], Hashable],
    joined: Callable[[int, list[Box]], Box],
    lanes: Mapping[int, int] | None = None,
) -> Diagram:
    """Merge the boxes with the same key: links inside are dropped, parallel links are merged.

    If lanes are merged, the values of one of the devices stand for those of all.
    """
    members: dict[Hashable, list[Box]] = {}
    for box in diagram.boxes:
        members.setdefault(key(box), []).append(box)
    number_of = {box.id: n for n, boxes in enumerate(members.values()) for box in boxes}
    boxes = tuple(joined(number, found) for number, found in enumerate(members.values()))
    shown: dict[tuple[int, int, int], int] = {}
    flows: dict[tuple[int, int, int], dict[int, None]] = {}
    for link in diagram.links:
        source, target = number_of[link.source], number_of[link.target]
        lane = link.lane if lanes is None else lanes.get(link.lane, link.lane)
        ends = (source, target, lane)
        if source != target and shown.setdefault(ends, link.lane) == link.lane:
            flows.setdefault(ends, {}).update(dict.fromkeys(link.values))
    links = tuple(Link(*ends, tuple(sorted(values))) for ends, values in flows.items())
    return replace(diagram, boxes=boxes, links=links)


def _folded(number: int, boxes: list[Box], group: Group) -> Box:
    types = [box.label.partition(" to device ")[0] for box in boxes]
    common = tally(types)
    first = boxes[0]
    label = _DEVICE.sub("", group.label)  # the lane shows it
    detail = few(common)
    if first.device is None and group.kind != "stage":
        label, detail = types[0], group.label
    sizes = [box.bytes for box in boxes]
    size = None if None in sizes else sum(each or 0 for each in sizes)
    title = f"{group.kind} {group.label}: {counted(len(boxes), 'operator')}"
    made = Box(
        number,
        f"{label} ×{len(boxes)}",
        f"{detail}, {bytes_text(size)}" if size else detail,
        Counter(box.role for box in boxes).most_common(1)[0][0],  # as in the page
        first.device,
        partial("\n".join, [title, *common]),
        tuple(node for box in boxes for node in box.nodes),
        tuple(sorted({device for box in boxes for device in box.reaches})),
        first.task,
        size,
    )
    devices = {box.only for box in boxes}
    return _alone(made, first.only) if len(devices) == 1 and first.only else made


def _alone(box: Box, devices: tuple[int, ...]) -> Box:
    """The box, labelled with the devices of its lane that have it."""
    where = f"device {', '.join(map(str, devices))} only"
    detail = f"{where}: {box.detail}"
    return replace(box, detail=detail, about=lambda: f"{box.tooltip}\n{where}", only=devices)
