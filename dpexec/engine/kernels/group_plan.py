"""Decides which expressions of a group share a kernel, and plans its loops, rows and phases.

All expressions of a kernel share its loops, of which the innermost runs over a row. Values that are
constant within a row (a repeated mean, the result of a reduction along the row) are computed once
per row. After a reduction along the row, another pass over the row, a *phase*, uses its result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Hashable, Iterable, Sequence

from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.kernels.generate import Pointwise, Reduction
from dpexec.engine.kernels.lowering import Value
from dpexec.engine.kernels.strides import OUTER, groups, merged, strides

__all__ = ["Node", "Plan", "Steps", "plan", "where"]

Steps = tuple[int, ...]


def where(value: Value) -> Hashable:
    """The memory of a value: equal for those that share it."""
    return value.buffer if value.buffer is not None else value


@dataclass(eq=False)
class Node:
    """An expression of a group.

    Args:
        apply: the expression or reduction.
        out: the result.
        sources: the operands: expressions of the group, or values from outside.
        steps: for each operand, its strides along the dimensions of ``shape``.
        shape: the dimensions that the loops run over.
        factors: numbers.
        kept: for a reduction, which dimensions are kept.
        stored: whether the result is needed in memory.
    """

    apply: Pointwise | Reduction
    out: Value
    sources: list[Node | Value]
    steps: Sequence[Sequence[int]]
    shape: tuple[int, ...]
    factors: tuple[float, ...] = ()
    kept: tuple[bool, ...] | None = None
    stored: bool = False

    @property
    def size(self) -> int:
        """How many elements the loops visit."""
        return math.prod(self.shape)

    @property
    def out_steps(self) -> list[int]:
        """The strides of the result along the dimensions of ``shape``."""
        if self.kept is None:
            return strides(self.shape)
        left = [size if keep else 1 for size, keep in zip(self.shape, self.kept, strict=True)]
        return strides(left, self.shape)


@dataclass(eq=False)
class Plan:
    """A kernel for some expressions.

    Args:
        nodes: the expressions, in order.
        sizes: sizes of the loops, the innermost last.
        places: for each expression, the strides of its result.
        loads: for each operand from outside, by node and position, its strides.
        level: for each expression, the number of the phase in which it is computed.
        sums: reductions over several rows, which expressions of this kernel cannot read.
    """

    nodes: Sequence[Node]
    sizes: list[int] = field(default_factory=list)
    places: dict[Node, Steps] = field(default_factory=dict)
    loads: dict[tuple[Node, int], Steps] = field(default_factory=dict)
    level: dict[Node, int] = field(default_factory=dict)
    sums: set[Node] = field(default_factory=set)

    def in_row(self, node: Node) -> bool:
        """Whether an expression is computed at every element of a row."""
        return node.kept is None and self.places[node][-1] != 0

    def of_row(self, node: Node) -> bool:
        """Whether an expression combines the elements of a row."""
        return node.kept is not None and self.places[node][-1] == 0

    def done_with(self, node: Node) -> int:
        """The first phase whose loop over the row may overwrite an expression's operands.

        A loop reads an element before it writes to it, but rows are combined after the loop.
        """
        return self.level[node] + (node in self.sums and self.of_row(node))


class _Misfit(Exception):
    """Expressions do not fit into one kernel."""


def plan(nodes: Sequence[Node]) -> Plan | None:
    """One kernel for some expressions; None if they do not fit together.

    Args:
        nodes: the expressions, in order.
    """
    made = Plan(nodes)
    try:
        _place(made)
        _set_levels(made)
    except _Misfit:
        return None
    return made


def _place(made: Plan) -> None:
    total = max(node.size for node in made.nodes)
    full = [node for node in made.nodes if node.size == total]
    dims = _common(total, [node.shape for node in full])
    own = set(made.nodes)
    for node in full:
        _place_full(made, own, node, dims)
    waiting = [node for node in made.nodes if node.size < total]
    while waiting:
        left = [node for node in waiting if not _place_small(made, own, node, len(dims))]
        if len(left) == len(waiting):
            raise _Misfit
        waiting = left
    _merge(made, dims)
    for node in full:
        if node.kept is not None:
            _check_order(made, node, node.kept)


def _set_levels(made: Plan) -> None:
    for node in made.nodes:
        before = [s for s in node.sources if isinstance(s, Node) and s in made.places]
        if not made.sums.isdisjoint(before):
            raise _Misfit
        level = max((made.level[source] for source in before), default=0)
        made.level[node] = level + (made.of_row(node) and node not in made.sums)


def _common(total: int, shapes: Iterable[Sequence[int]]) -> list[int]:
    """Dimensions into which all shapes of one size can be divided."""
    if total < 2:
        raise _Misfit
    inner = {math.prod(shape[axis:]) for shape in shapes for axis in range(1, len(shape))}
    cuts = [total, *sorted(inner | {1}, reverse=True)]
    if any(large % small for large, small in itertools.pairwise(cuts)):
        raise _Misfit
    dims = [large // small for large, small in itertools.pairwise(cuts)]
    return [size for size in dims if size != 1]


def _cut(steps: Sequence[int], shape: Sequence[int], dims: Sequence[int]) -> Steps:
    """Steps along the dimensions of a shape as steps along the dimensions that it is cut into."""
    found: list[int] = []
    position = len(dims)
    for size, step in zip(reversed(shape), reversed(steps), strict=True):
        inner = 1
        while inner < size:
            position -= 1
            found.append(step * inner)
            inner *= dims[position]
    return tuple(reversed(found))


def _put(made: Plan, node: Node, place: Steps) -> None:
    if made.places.setdefault(node, place) != place:
        raise _Misfit


def _read(made: Plan, own: Collection[Node], node: Node, number: int, place: Steps) -> None:
    source = node.sources[number]
    if isinstance(source, Node) and source in own:
        _put(made, source, place)
    else:
        made.loads[node, number] = place


def _place_full(made: Plan, own: Collection[Node], node: Node, dims: Sequence[int]) -> None:
    """Place an expression of the largest size, and its operands."""
    for number, steps in enumerate(node.steps):
        _read(made, own, node, number, _cut(steps, node.shape, dims))
    _put(made, node, _cut(node.out_steps, node.shape, dims))


def _place_small(made: Plan, own: Collection[Node], node: Node, rank: int) -> bool:
    """Place a smaller expression like its reader or like an operand; False if neither is placed."""
    sizes = [s.out.size if isinstance(s, Node) else s.size for s in node.sources]
    if node.kept is not None or any(size not in (1, node.size) for size in sizes):
        raise _Misfit
    once = (0,) * rank
    alike = [s for s, size in zip(node.sources, sizes, strict=True) if size == node.size]
    known = [made.places[n] for n in (node, *alike) if isinstance(n, Node) and n in made.places]
    if not known and node.size > 1:
        return False
    place = known[0] if node.size > 1 else once
    if place[-1]:  # it differs within a row, but is the same in every row
        raise _Misfit
    for number, size in enumerate(sizes):
        _read(made, own, node, number, place if size == node.size else once)
    _put(made, node, place)
    return True


def _merge(made: Plan, dims: Sequence[int]) -> None:
    """Merge neighbouring dimensions whose strides match in all values."""
    known = dict.fromkeys([tuple(strides(dims)), *made.places.values(), *made.loads.values()])
    made.sizes, steps = merged(dims, *known)
    found = {before: tuple(after) for before, after in zip(known, steps, strict=True)}
    made.places = {node: found[place] for node, place in made.places.items()}
    made.loads = {key: found[place] for key, place in made.loads.items()}
    inner = {place[-1] for place in (*made.places.values(), *made.loads.values())}
    if len(made.sizes) > OUTER + 1 or not inner <= {0, 1}:
        raise _Misfit


def _check_order(made: Plan, node: Node, kept: Sequence[bool]) -> None:
    """Check that a reduction adds up in the same order as it would alone."""
    place = made.places[node]
    if any(not step for step in place[:-1]):
        made.sums.add(node)
    found = groups(node.shape, kept)
    _, n, middle, inner = found + [1] * (4 - len(found))
    at_once = n * inner if middle == 1 else inner
    by_rows = place[-1] == 0
    if at_once != (made.sizes[-1] if by_rows else 1) or not (by_rows or node in made.sums):
        raise _Misfit
