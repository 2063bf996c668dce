"""Groups of operators: a tree of stages, parts, equal blocks, name scopes and layers.

Any cut through the tree, with some groups drawn as one box and others opened, is a graph without
cycles, because the parts of a group do not depend on each other in a circle.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Any

from dpexec.viz.graphs.repeats import repeats
from dpexec.viz.pages.load import GraphData
from dpexec.viz.pages.style import ROLE_NAMES

KINDS = ("stage", "part", "repeat", "block", "scope", "layer")
"""Kinds of groups, from the outside to the inside."""

_LAYERS_AT_A_GLANCE = 16  # a chain of more layers is cut into parts
_PARTS = 8  # number of parts, where nothing better tells where to cut
_BLOCKS_AT_A_GLANCE = 20  # more equal blocks than this are divided into groups

SKIPPED = "skipped"
"""Name of the group of operators that a plan leaves out because nothing reads their results."""

Path = tuple[tuple[str, str], ...]  # (kind, name) of the groups around a node, outermost first


@dataclass(frozen=True, slots=True)
class Group:
    """Operators that can be drawn as one box.

    Args:
        id: Position in the list of all groups; a group comes after its parent.
        label: Its name for readers.
        kind: One of `KINDS`.
        parent: id of the surrounding group.
        nodes: All operators in it, including those of inner groups.
        own: The operators that are in no inner group.
    """

    id: int
    label: str
    kind: str
    parent: int | None
    nodes: tuple[int, ...]
    own: tuple[int, ...]


def groups(data: GraphData) -> list[Group]:
    """Return the groups of a graph.

    The outermost are the operators of a device with one role, or the tasks of a plan. Inside them
    are name scopes and layers. A deep network without scopes is divided into parts.

    Args:
        data: The content of a graph file.
    """
    return _Tree(data).groups


def twins(data: GraphData) -> list[int | None]:
    """Return for every operator its twin: the operator of the first device that does the same.

    An operator of the first device is its own twin. It is None if no other device does the same.
    """
    inner = {device["id"] for device in data["devices"] if device.get("parallel_do")}
    values = [(value["name"], value["version"], value["kind"]) for value in data["vars"]]
    first: dict[Hashable, int] = {}
    found: list[int | None] = []
    seen: dict[Hashable, int] = {}
    shared: set[int] = set()
    for node in data["nodes"]:
        if node["role"] == "collective" or node["device"] in inner or node["device"] is None:
            found.append(None)
            continue
        reads = tuple(values[var] for var in node["inputs"] if values[var][2] == "var")
        writes = tuple(values[var] for var in node["outputs"] if values[var][2] == "var")
        what = (node["name"], node["role"], reads, writes)
        seen[node["device"], what] = seen.get((node["device"], what), -1) + 1
        twin = first.setdefault((what, seen[node["device"], what]), node["id"])
        if twin != node["id"]:
            shared.add(twin)
        found.append(twin)
    return [twin if twin in shared else None for twin in found]


class _Tree:
    def __init__(self, data: GraphData) -> None:
        self.data = data
        self.groups: list[Group] = []
        writer = {var: node["id"] for node in data["nodes"] for var in node["outputs"]}
        self.before: list[list[int]] = [
            sorted({writer[var] for var in node["inputs"] if var in writer} - {node["id"]})
            for node in data["nodes"]
        ]
        blocks = _blocks(data)
        parts = _parts(data, blocks)
        plan = "tasks" in data
        scopes = _scopes(data)
        self.paths = [_path(node, scopes, parts, blocks, plan) for node in data["nodes"]]
        self._grow(range(len(self.paths)), 0, None)

    def _grow(self, nodes: Sequence[int], level: int, parent: int | None) -> list[int]:
        """Make the groups among some nodes; return the nodes that are in none."""
        if len(nodes) < 2:
            return list(nodes)
        own = [node for node in nodes if len(self.paths[node]) <= level]
        if len(own) == len(nodes):
            return own
        paths = self.paths

        def key(node: int) -> Hashable:
            return paths[node][level] if len(paths[node]) > level else node

        for members in _split(nodes, self.before, key):
            if len(paths[members[0]]) <= level:
                continue
            if len(members) == 1:
                own += members
                continue
            kind, label = paths[members[0]][level]
            if len(members) == len(nodes) and parent is not None:
                if kind == "repeat" and self.groups[parent].kind == "part":
                    self.groups[parent] = replace(self.groups[parent], kind=kind, label=label)
                    kind = ""
                if kind != "repeat":
                    return self._grow(members, level + 1, parent)
            number = len(self.groups)
            self.groups.append(Group(number, label, kind, parent, tuple(members), ()))
            inside = self._grow(members, level + 1, number)
            self.groups[number] = replace(self.groups[number], own=tuple(sorted(inside)))
        return own


def _split(
    nodes: Sequence[int], before: Sequence[Sequence[int]], key: Callable[[int], Hashable]
) -> Iterator[list[int]]:
    """Group nodes by key, in several groups if a single one would depend on itself.

    For keys on a circle, a group ends wherever the key changes along a path.
    """
    keys = {node: key(node) for node in nodes}
    count = len(set(keys.values()))
    if count in (1, len(keys)):  # nothing can be in between
        yield from [list(nodes)] if count == 1 else ([node] for node in nodes)
        return
    inner = {node: [other for other in before[node] if other in keys] for node in nodes}
    tangled = _tangled(inner, keys)
    phase: dict[int, int] = {}
    heaps: dict[Hashable, list[int]] = {}
    for node in nodes:  # in a topological order
        mine = keys[node]
        if mine in tangled:
            found = (phase[o] + (keys[o] != mine) for o in inner[node] if keys[o] in tangled)
            phase[node] = max(found, default=0)
        heaps.setdefault((mine, phase.get(node)), []).append(node)
    yield from heaps.values()


def _tangled(inner: dict[int, list[int]], keys: dict[int, Hashable]) -> set[Hashable]:
    """The keys on circles, and those on paths between two circles.

    These remain when keys without predecessors or without successors are removed repeatedly.
    """
    ahead: dict[Hashable, set[Hashable]] = {key: set() for key in keys.values()}
    behind: dict[Hashable, set[Hashable]] = {key: set() for key in ahead}
    for node, others in inner.items():
        for other in others:
            if keys[other] != keys[node]:
                ahead[keys[other]].add(keys[node])
                behind[keys[node]].add(keys[other])
    left: set[Hashable] = set(ahead)
    for inward, outward in ((behind, ahead), (ahead, behind)):
        missing = {key: len(inward[key] & left) for key in left}
        ready = [found for found, count in missing.items() if not count]
        while ready:
            peeled = ready.pop()
            left.discard(peeled)
            for key in outward[peeled] & left:
                missing[key] -= 1
                if not missing[key]:
                    ready.append(key)
    return left


@dataclass(frozen=True, slots=True)
class _Block:
    """The groups around a layer that belongs to one of several equal blocks.

    Args:
        path: The groups from the outside to the inside: all blocks together, and this one.
        scopes: Number of name scopes around them.
        hidden: Number of name scopes after those that denote the block itself.
    """

    path: Path
    scopes: int
    hidden: int


def _path(
    node: dict[str, Any],
    scopes_of: Mapping[str, str],
    parts: Mapping[str, str],
    blocks: Mapping[str, _Block],
    plan: bool,
) -> Path:
    """The groups around a node; in a plan, these are its task, then its role."""
    collective = node["role"] == "collective"
    role = node["name"].removeprefix("fused_") if collective else ROLE_NAMES[node["role"]]
    where = "" if collective else f" on device {node['device']}"
    if not plan:
        path = [("stage", role + where)]
    elif node["task"] is None:
        path = [("stage", SKIPPED + where)]
    else:
        path = [("stage", node["task"])]
        if not collective:
            path.append(("stage", role))
    if node["layer"] in parts:
        path.append(("part", parts[node["layer"]]))
    where = node["scope"] if node["role"] == "forward" else scopes_of.get(node["layer"], "/")
    scopes = [name for name in where.split("/") if name]
    block = blocks.get(node["layer"])
    if block is not None:
        path += [("part", name) for name in scopes[: block.scopes]]
        path += block.path
        scopes = scopes[block.scopes + block.hidden :]
    path += [("scope", name) for name in scopes]
    if node["layer"]:
        path.append(("layer", node["layer"]))
    return tuple(path)


def _scopes(data: GraphData) -> dict[str, str]:
    """The name scope of each layer: that of its first forward operator.

    The layer's other operators do not tell: the user did not write sums of gradients, and
    optimizers use scopes of their own.
    """
    found: dict[str, str] = {}
    for node in data["nodes"]:
        if node["role"] == "forward":
            found.setdefault(node["layer"], node["scope"])
    return found


def _blocks(data: GraphData) -> dict[str, _Block]:
    """The block that each layer belongs to, where equal blocks follow one another."""
    found: dict[str, _Block] = {}
    for run in repeats(data):
        count = len(run.blocks)
        outer = ("repeat", f"{count} × {run.name}")
        votes: dict[str, Counter[int]] = {}
        for number, block in enumerate(run.blocks):
            for node in block:
                votes.setdefault(data["nodes"][node]["layer"], Counter())[number] += 1
        for layer, counts in votes.items():
            number = counts.most_common(1)[0][0]
            ends = [(run.numbers[a], run.numbers[b - 1]) for a, b in _spans(number, count)]
            inner = [("repeat", f"{run.name} {first} to {last}") for first, last in ends]
            block_name = ("block", f"{run.name} {run.numbers[number]}")
            path = (outer, *inner, block_name)
            found.setdefault(layer, _Block(path, run.scopes, int(run.named)))
    return found


def _spans(number: int, count: int) -> list[tuple[int, int]]:
    """The nested ranges of equal blocks around one of them, from the outside to the inside."""
    size = _BLOCKS_AT_A_GLANCE
    while size * _BLOCKS_AT_A_GLANCE < count:
        size *= _BLOCKS_AT_A_GLANCE
    found = []
    while size > 1 and size < count:
        start = number // size * size
        found.append((start, min(count, start + size)))
        size //= _BLOCKS_AT_A_GLANCE
    return found


def _parts(data: GraphData, blocks: Mapping[str, _Block]) -> dict[str, str]:
    """The part of a deep network that each layer belongs to; {} if it needs none.

    A network for images is cut where their size changes, other networks into parts with equal
    numbers of layers. Equal blocks count as one layer, and are not cut.
    """
    sizes: dict[str, tuple[int, ...]] = {}
    for node in data["nodes"]:
        if node["role"] != "forward":
            continue
        if node["scope"] != "/":
            return {}  # the user's own names are better
        shapes = [data["vars"][var]["shape"] for var in node["outputs"]]
        pictures = [tuple(shape[2:]) for shape in shapes if len(shape) == 4]
        sizes.setdefault(node["layer"], pictures[0] if pictures else ())
    layers = list(sizes)
    units = [list(unit) for _, unit in groupby(layers, key=lambda name: _unit(name, blocks))]
    if len(units) <= _LAYERS_AT_A_GLANCE:
        return {}
    runs = [list(run) for _, run in groupby(layers, key=sizes.__getitem__)]
    if not 2 <= len(runs) <= _PARTS:
        length = -(-len(units) // _PARTS)
        cuts = range(0, len(units), length)
        runs = [list(chain.from_iterable(units[start : start + length])) for start in cuts]
    named = [[layer for layer in run if not _UNNAMED.search(layer)] or run for run in runs]
    names = [run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in named]
    return {layer: name for name, run in zip(names, runs, strict=True) for layer in run}


_UNNAMED = re.compile(r"@|^(tmp|_generated_var)_\d+$")
"""Layers that have the name of a temporary variable."""


def _unit(layer: str, blocks: Mapping[str, _Block]) -> Hashable:
    """The unit that is not cut: all equal blocks together, or the layer alone."""
    return blocks[layer].path[0] if layer in blocks else layer
