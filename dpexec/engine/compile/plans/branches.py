"""Expensive branches of a net that do not depend on each other, for cores that have no replica.

A segment is divided at its *joints*: operators that depend on all earlier operators and that all
later ones depend on. The operators between two joints form branches. Only expensive operators and
those between them count: constants come first, metrics last.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from dpexec.engine.graph.costs import macs_of
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir.spec import Spec

__all__ = ["Stage", "multiplications", "stages_of"]

_LEAST = 2**20
"""Multiplications for a sample that make a branch a task: with one sample they take 0.1 ms, and
handing a task over some microseconds."""

Stage = list[list[OpNode]]
"""Parts of a segment that may run at the same time."""


def stages_of(
    nodes: Sequence[OpNode], work: Callable[[OpNode], int], least: int = _LEAST
) -> list[Stage]:
    """Divide a segment into branches.

    Args:
        nodes: in a topological order.
        work: cost of a node; 0 for cheap ones.
        least: least cost of a branch.

    Returns:
        Groups of branches, one after another: those of each fork, and single ones between forks.
        Without a fork there is one branch with all nodes.
    """
    head, middle, tail = _by_expensive_ones(nodes, work)
    stages: list[Stage] = [[head]]
    for part in _between_joints(middle):
        branches = _branches(part, work, least)
        if len(branches) > 1:
            stages += [branches, [[]]]
        else:
            stages[-1][0].extend(part)
    if len(stages) == 1:
        return [[list(nodes)]] if nodes else []
    stages[-1][0].extend(tail)
    return [stage for stage in stages if stage[0]]


def _sources(nodes: Sequence[OpNode]) -> list[set[int]]:
    """Per node, the positions of the nodes that it directly depends on."""
    position = {node: index for index, node in enumerate(nodes)}
    return [
        {position[var.writer] for var in node.inputs if var.writer in position} for node in nodes
    ]


def _by_expensive_ones(
    nodes: Sequence[OpNode], work: Callable[[OpNode], int]
) -> tuple[list[OpNode], list[OpNode], list[OpNode]]:
    """What depends on nothing expensive; what does, or is; of the rest, what is needed by none."""
    sources = _sources(nodes)
    depends = [work(node) > 0 for node in nodes]
    needed = list(depends)
    for index, found in enumerate(sources):
        depends[index] = depends[index] or any(depends[source] for source in found)
    for index in reversed(range(len(nodes))):
        for source in sources[index] if needed[index] else ():
            needed[source] = True
    places = list(zip(nodes, depends, needed, strict=True))
    return (
        [node for node, behind, _ in places if not behind],
        [node for node, behind, before in places if behind and before],
        [node for node, behind, before in places if behind and not before],
    )


def _between_joints(nodes: Sequence[OpNode]) -> Iterator[Sequence[OpNode]]:
    """The joints, each alone, and what lies between two of them."""
    count, sources = len(nodes), _sources(nodes)
    first_reader = [count] * count
    for index in reversed(range(count)):
        for source in sources[index]:
            first_reader[source] = index
    # all before a joint are read by then, and all behind read it or something behind it
    read_by = list(itertools.accumulate(first_reader, max, initial=0))
    last_source = [max(found, default=-1) for found in sources]
    reads_from = [*itertools.accumulate(reversed(last_source), min, initial=count)][::-1]
    start = 0
    for index in range(count):
        if read_by[index] <= index <= reads_from[index + 1]:
            if start < index:
                yield nodes[start:index]
            yield nodes[index : index + 1]
            start = index + 1
    if start < count:
        yield nodes[start:]


def _branches(nodes: Sequence[OpNode], work: Callable[[OpNode], int], least: int) -> Stage:
    """The unconnected parts that are expensive; all cheap nodes go with the first of them."""
    parts = _connected(nodes)
    expensive = [part for part in parts if sum(map(work, part)) >= least]
    if len(expensive) < 2:
        return [list(nodes)]
    cheap = [node for part in parts if part not in expensive for node in part]
    return [cheap + expensive[0], *expensive[1:]]


def _connected(nodes: Sequence[OpNode]) -> list[list[OpNode]]:
    """Parts that do not depend on each other."""
    home = list(range(len(nodes)))

    def root(index: int) -> int:
        while home[index] != index:
            home[index] = index = home[home[index]]
        return index

    for index, found in enumerate(_sources(nodes)):
        for source in found:
            home[root(source)] = root(index)
    parts: dict[int, list[OpNode]] = {}
    for index, node in enumerate(nodes):
        parts.setdefault(root(index), []).append(node)
    return list(parts.values())


# ---- what is expensive


def multiplications(node: OpNode) -> int:
    """How many multiplications that are added up a node makes for a sample, as it declares.

    Args:
        node: an operator.
    """
    op = node.op
    if op is None or not node.does.computes:
        return 0

    def of_a_sample(name: str) -> Spec | None:
        var = op.block._find_var_recursive(name)
        return var.spec.replace(shape=tuple(map(abs, var.shape))) if var is not None else None

    return macs_of(op, of_a_sample)
