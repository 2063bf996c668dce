"""Orders the boxes of a diagram, and assigns them to rows."""

from __future__ import annotations

import heapq
from itertools import product

from dpexec.viz.graphs.model import Box, Diagram

WIDEST = 3
"""Most boxes that one lane shows side by side; further ones go to the next row."""


def topological(diagram: Diagram) -> list[int]:
    """Return the ids of all boxes so that every link points forward.

    Of the boxes that could come next, the one that the graph lists first is taken.

    Raises:
        ValueError: The links go round in a circle.
    """
    index = {box.id: place for place, box in enumerate(diagram.boxes)}
    missing = {box.id: 0 for box in diagram.boxes}
    targets: dict[int, list[int]] = {box.id: [] for box in diagram.boxes}
    for source, target in _pairs(diagram):
        missing[target] += 1
        targets[source].append(target)
    ready = [(index[node], node) for node, count in missing.items() if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, node = heapq.heappop(ready)
        order.append(node)
        for target in targets[node]:
            missing[target] -= 1
            if missing[target] == 0:
                heapq.heappush(ready, (index[target], target))
    if len(order) < len(diagram.boxes):
        stuck = sorted(node for node, count in missing.items() if count > 0)
        raise ValueError(f"the graph has a cycle through ops {stuck[:10]}")
    return order


def _pairs(diagram: Diagram) -> set[tuple[int, int]]:
    """Pairs of boxes, the upper one first: from links, and from tasks that wait for each other."""
    pairs = {(link.source, link.target) for link in diagram.links}
    members: dict[str, list[int]] = {}
    task_of = {box.id: box.task for box in diagram.boxes if box.task in diagram.tasks}
    for node, key in task_of.items():
        members.setdefault(str(key), []).append(node)
    inside = {(s, t) for s, t in pairs if s in task_of and task_of[s] == task_of.get(t)}
    starts, ends = {t for _, t in inside}, {s for s, _ in inside}
    for key, after in diagram.tasks.items():
        first = [node for node in members.get(key, ()) if node not in starts]
        for before in after:
            last = [node for node in members.get(before, ()) if node not in ends]
            pairs.update(product(last, first))
    return pairs


def _ranks(diagram: Diagram) -> dict[int, int]:
    """The length of the longest path to each box, with three exceptions for readable pictures.

    1. Updates come below all other boxes, though some could start earlier.
    2. A box that depends on nothing comes directly above its first reader.
    3. So does the learning rate's schedule.
    """
    order = topological(diagram)
    boxes = {box.id: box for box in diagram.boxes}
    before: dict[int, set[int]] = {node: set() for node in boxes}
    after: dict[int, set[int]] = {node: set() for node in boxes}
    for source, target in _pairs(diagram):
        before[target].add(source)
        after[source].add(target)
    late = ("optimize", "lr_sched")
    floor: dict[int, bool] = {}  # whether an update lies upstream
    ranks: dict[int, int] = {}
    for node in order:
        ranks[node] = max((ranks[p] + 1 for p in before[node]), default=0)
        floor[node] = boxes[node].role in late or any(floor[p] for p in before[node])
    base = max((ranks[n] + 1 for n in order if not floor[n]), default=0)
    for node in order:
        lowest = base if boxes[node].role == "optimize" else 0
        ranks[node] = max([lowest, *(ranks[p] + 1 for p in before[node])])
    for node in reversed(order):
        if after[node] and (not before[node] or boxes[node].role == "lr_sched"):
            ranks[node] = min(ranks[t] for t in after[node]) - 1
    return ranks


def rows(diagram: Diagram) -> list[list[Box]]:
    """Return the boxes row by row, from top to bottom; links only point downwards.

    A collective has a row of its own, since it crosses the lanes. No lane has more than `WIDEST`
    boxes in a row.
    """
    ranks = _ranks(diagram)
    levels: dict[int, list[Box]] = {}
    for box in diagram.boxes:
        levels.setdefault(ranks[box.id], []).append(box)
    result: list[list[Box]] = []
    for rank in sorted(levels):
        by_lane: dict[int, list[Box]] = {}
        for box in levels[rank]:
            if box.device is not None:
                by_lane.setdefault(box.device, []).append(box)
        wrapped: dict[int, list[Box]] = {}
        for boxes in by_lane.values():
            needed = -(-len(boxes) // WIDEST)
            for place, box in enumerate(boxes):
                wrapped.setdefault(place * needed // len(boxes), []).append(box)
        result.extend(wrapped[row] for row in sorted(wrapped))
        result.extend([box] for box in levels[rank] if box.device is None)
    return result
