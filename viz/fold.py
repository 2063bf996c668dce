"""Folds a large graph into stages, so that it fits on a page."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from .model import Box, Diagram, Link
from .order import topological

FoldKey = tuple[int | None, str, int]


def fold(diagram: Diagram) -> Diagram:
    """Draw the operators of one stage as one box.

    A stage is what one device does in one role (or all collectives of one kind) without anything
    of another stage between: along every path, the stage number grows by one whenever device or
    role change. That keeps the folded graph free of cycles whatever the graph.

    Returns:
        A diagram whose boxes' counts add up to the operators of the original; a note says what was
        folded.
    """
    stages = _stages(diagram)
    members: dict[FoldKey, list[Box]] = {}
    for box in diagram.boxes:
        members.setdefault(stages[box.id], []).append(box)
    numbers = {key: number for number, key in enumerate(members)}
    boxes = tuple(_folded(numbers[key], group) for key, group in members.items())
    flows: dict[tuple[int, int, int], set[str]] = {}
    for link in diagram.links:
        source, target = numbers[stages[link.source]], numbers[stages[link.target]]
        if source != target:
            flows.setdefault((source, target, link.lane), set()).update(link.variables)
    links = tuple(Link(*ends, tuple(sorted(names))) for ends, names in flows.items())
    note = f"folded: {diagram.operators} operators are drawn as {len(boxes)} stages"
    return replace(diagram, boxes=boxes, links=links, notes=(note, *diagram.notes))


def _stages(diagram: Diagram) -> dict[int, FoldKey]:
    keys = {
        box.id: (box.device, box.label if box.device is None else box.role) for box in diagram.boxes
    }
    incoming: dict[int, list[int]] = {}
    for link in diagram.links:
        incoming.setdefault(link.target, []).append(link.source)
    phases: dict[int, int] = {}
    for node in topological(diagram):
        before = incoming.get(node, [])
        phases[node] = max((phases[p] + (keys[p] != keys[node]) for p in before), default=0)
    return {node: (*key, phases[node]) for node, key in keys.items()}


def _folded(number: int, group: list[Box]) -> Box:
    if len(group) == 1:
        return replace(group[0], id=number)
    types = Counter(box.label for box in group)
    total = sum(box.count for box in group)
    label = f"{group[0].label} ×{total}" if len(types) == 1 else f"{group[0].role} ×{total}"
    common = [f"{name} ×{count}" for name, count in types.most_common()]
    detail = "" if len(types) == 1 else ", ".join(common[:2]) + (", …" if len(common) > 2 else "")
    tooltip = "\n".join([f"{total} operators:", *common])
    reaches = tuple(sorted({device for box in group for device in box.reaches}))
    return Box(number, label, detail, group[0].role, group[0].device, tooltip, total, reaches)
