"""Generates the source of a planned group kernel, and the arguments of its call."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Collection, Hashable, Mapping
from typing import Any

from dpexec.engine.kernels.generate import Reduction, compiled
from dpexec.engine.kernels.group_plan import Node, Plan, Steps, where
from dpexec.engine.kernels.lowering import Code, Value
from dpexec.engine.kernels.machine import Kernel
from dpexec.engine.kernels.strides import OUTER

__all__ = ["emit", "substituted"]

_kernels: dict[str, Kernel] = {}


def emit(code: Code, plan: Plan, stored: Collection[Node]) -> None:
    """Emit a call of a plan's kernel, which is compiled unless one with the same source exists.

    Args:
        code: takes the call.
        plan: the plan.
        stored: expressions whose results are needed in memory.
    """
    writer = _Writer(code, plan, stored)
    source = writer.source()
    name = "group_" + hashlib.sha1(source.encode()).hexdigest()[:20]
    if name not in _kernels:
        _kernels[name] = compiled(name, source.replace("GROUP", name), parts=writer.parts())
    code.emit(_kernels[name], *writer.arguments())


class _Writer:
    """Writes the source, and collects the names of values in it.

    Args:
        code: gives memory for rows.
        plan: the plan.
        stored: expressions whose results are needed in memory.
    """

    def __init__(self, code: Code, plan: Plan, stored: Collection[Node]) -> None:
        self.code, self.plan, self.stored = code, plan, stored
        self.arrays: dict[Hashable, tuple[str, Value]] = {}
        self.starts: dict[tuple[str, Steps], str] = {}
        self.factors: list[float] = []
        self.computed: dict[Node, str] = {}  # names of variables with results of expressions
        self.loaded: dict[tuple[Hashable, Steps], str] = {}
        self.numbers = itertools.count()
        self.rows: dict[Node, tuple[str, str]] = {}  # array and start of a row
        self.lines: list[str] = []

    def arguments(self) -> list[Any]:
        """The arguments of the call, in the order in which the source takes them."""
        sizes = self.plan.sizes
        made: list[Any] = [1] * (OUTER + 1 - len(sizes)) + list(sizes)
        made += [value for _, value in self.arrays.values()]
        made += [step for _, steps in self.starts for step in self._outer(steps)]
        made += [node.out.size for node in self.plan.nodes if node in self.plan.sums]
        return made + self.factors

    def source(self) -> str:
        """The kernel, ``GROUP``, and the function for a row of it."""
        plan = self.plan
        for node in plan.nodes:
            if node in self.stored or node in plan.sums:
                self._array(node.out)
        for level in range(max(plan.level.values()) + 1):
            self._phase(level)
        reductions = {n.apply.name: n.apply for n in plan.nodes if isinstance(n.apply, Reduction)}
        head = "".join(apply.of_row for apply in reductions.values())
        arrays = [name for name, _ in self.arrays.values()]
        factors = [f"c{i}" for i in range(len(self.factors))]
        given = ", ".join(["n", *arrays, *self.starts.values(), *factors])
        return (
            f"{head}@apart\ndef GROUP_row({given}):\n" + _lines(self.lines, 1) + self._loops(given)
        )

    def parts(self) -> str:
        """How threads may divide the rows, see :attr:`Kernel.parts`; empty: they may not."""
        plan = self.plan
        begins: dict[str, list[tuple[Steps, str]]] = {}
        for (array, steps), start in self.starts.items():
            begins.setdefault(array, []).append((steps, start))
        if plan.sums or any(len(found) > 1 for found in begins.values()):
            return ""
        placed = [(array, steps, start) for array, ((steps, start),) in begins.items()]
        placed.sort(key=lambda place: sum(map(bool, place[1])), reverse=True)
        own = [f"@{name}*n" for name, _ in self.arrays.values() if name not in begins]
        ways = [
            " ".join([*(f"{array}*{start}_{axis}" for array, _, start in placed), *own])
            for axis in range(OUTER)
        ]
        if not any(map(plan.of_row, plan.nodes)):
            ways.append(" ".join(array for array, steps, _ in placed if steps[-1]))
        names = (*(f"n{axis}" for axis in range(OUTER)), "n")
        return ";".join(f"{name}:{way}" for name, way in zip(names, ways, strict=False))

    # ---- names

    def _array(self, value: Value) -> str:
        return self.arrays.setdefault(where(value), (f"a{len(self.arrays)}", value))[0]

    def _start(self, array: str, steps: Steps) -> str:
        return self.starts.setdefault((array, steps), f"i{len(self.starts)}")

    def _factor(self, number: float) -> str:
        self.factors.append(number)
        return f"c{len(self.factors) - 1}"

    def _outer(self, steps: Steps) -> list[int]:
        return [0] * (OUTER + 1 - len(steps)) + list(steps[:-1])

    def _new(self) -> str:
        return f"v{next(self.numbers)}"

    # ---- a row

    def _phase(self, level: int) -> None:
        """A phase: expressions computed once, a loop over the row, then reductions of the row."""
        plan = self.plan
        inner: list[str] = []
        stores: list[str] = []
        for node in (node for node in plan.nodes if plan.level[node] == level):
            if plan.of_row(node):
                continue  # it combines a row, which must be complete before
            if node in plan.sums:
                self._add(node, inner, stores)
            elif plan.in_row(node):
                self._compute(node, inner)
                self._keep(node, stores)
            else:
                self._compute(node, self.lines)
                if node in self.stored:
                    self.lines.append(f"{self._place(node)} = {self.computed[node]}")
        if inner:
            self.lines.append("for d in range(n):")
            self.lines += ["    " + line for line in (*inner, *stores)]
        for node in plan.nodes:
            if plan.of_row(node) and plan.level[node] == level + (node not in plan.sums):
                self._combine(node)
        # the next phase loads values that differ within a row again
        self.computed = {n: name for n, name in self.computed.items() if not plan.in_row(n)}
        self.loaded = {key: name for key, name in self.loaded.items() if not key[1][-1]}

    def _place(self, node: Node) -> str:
        """The element of an array that takes the result of an expression, as source."""
        array = self._array(node.out)
        steps = self.plan.places[node]
        return f"{array}[{self._start(array, steps)}{' + d' if steps[-1] else ''}]"

    def _compute(self, node: Node, lines: list[str]) -> None:
        operands = [self._operand(node, number, lines) for number in range(len(node.sources))]
        factors = [self._factor(factor) for factor in node.factors]
        assert not isinstance(node.apply, Reduction)
        words = (*node.apply.operands, *node.apply.factors)
        text = substituted(
            node.apply.expression, dict(zip(words, (*operands, *factors), strict=True))
        )
        name = self.computed[node] = self._new()
        lines.append(f"{name} = {text}")

    def _operand(self, node: Node, number: int, lines: list[str]) -> str:
        """The name of an operand's present element, which is loaded if that was not done."""
        source = node.sources[number]
        if isinstance(source, Node) and source in self.plan.places:
            if source not in self.computed:
                array, start = self.rows[source]
                self.computed[source] = self._new()
                lines.append(f"{self.computed[source]} = {array}[{start} + d]")
            return self.computed[source]
        value = source.out if isinstance(source, Node) else source
        steps = self.plan.loads[node, number]
        key = (where(value), steps)
        if key not in self.loaded:
            name = self.loaded[key] = self._new()
            array = self._array(value)
            start = self._start(array, steps)
            if steps[-1]:
                lines.append(f"{name} = {array}[{start} + d]")
            else:
                self.lines.append(f"{name} = {array}[{start}]")
        return self.loaded[key]

    def _keep(self, node: Node, stores: list[str]) -> None:
        """Store an element that is a result, or that later phases read."""
        plan = self.plan
        if node in self.stored:
            array = self._array(node.out)
            self.rows[node] = array, self._start(array, plan.places[node])
        elif any(
            node in reader.sources
            and (plan.level[reader] > plan.level[node] or plan.of_row(reader))
            for reader in plan.nodes
        ):
            self.rows[node] = self._array(self.code.scratch(self.code.threads, plan.sizes[-1])), "0"
        else:
            return
        array, start = self.rows[node]
        stores.append(f"{array}[{start} + d] = {self.computed[node]}")

    def _add(self, node: Node, inner: list[str], stores: list[str]) -> None:
        """Combine the elements of a row with those of the rows before."""
        value, place = self._operand(node, 0, inner), self._place(node)
        stores.append(f"{place} = {self._combined(node, place, value)}")

    def _combine(self, node: Node) -> None:
        """Combine a row to one number."""
        assert isinstance(node.apply, Reduction)
        source = node.sources[0]
        if isinstance(source, Node) and source in self.plan.places:
            row = self.rows[source]
        else:
            array = self._array(source.out if isinstance(source, Node) else source)
            row = array, self._start(array, self.plan.loads[node, 0])
        total = f"{node.apply.name}_of({row[0]}, {row[1]}, n)"
        if node in self.plan.sums:
            place = self._place(node)
            self.lines.append(f"{place} = {self._combined(node, place, total)}")
            return
        name, factor = self._new(), self._factor(node.factors[0])
        self.computed[node] = name
        self.lines.append(f"{name} = ({self._combined(node, node.apply.start, total)}) * {factor}")
        if node in self.stored:
            self.lines.append(f"{self._place(node)} = {name}")

    @staticmethod
    def _combined(node: Node, total: str, value: str) -> str:
        assert isinstance(node.apply, Reduction)
        return substituted(node.apply.combined, {"total": total, "value": value})

    # ---- all rows

    def _loops(self, given: str) -> str:
        counts = [f"n{i}" for i in range(OUTER)] + ["n"]
        typed = [f"{name}: Count" for name in counts]
        typed += [f"{name}: Floats" for name, _ in self.arrays.values()]
        starts = []
        for name in self.starts.values():
            steps = [f"{name}_{axis}" for axis in range(OUTER)]
            typed += [f"{step}: Count" for step in steps]
            starts.append(
                f"{name} = " + " + ".join(f"{x} * {s}" for x, s in zip("abc", steps, strict=True))
            )
        sums = [node for node in self.plan.nodes if node in self.plan.sums]
        typed += [f"m{i}: Count" for i in range(len(sums))]
        typed += [f"c{i}: Number" for i in range(len(self.factors))]
        typed += [f"f{i}: Number" for i in range(len(sums))]
        lines = []
        for i, node in enumerate(sums):
            assert isinstance(node.apply, Reduction)
            lines += [
                f"for j in range(m{i}):",
                f"    {self._array(node.out)}[j] = {node.apply.start}",
            ]
        lines += ["for a in range(n0):", "    for b in range(n1):", "        for c in range(n2):"]
        lines += [" " * 12 + line for line in (*starts, f"GROUP_row({given})")]
        for i, node in enumerate(sums):
            lines += [f"if f{i} != one:", f"    for j in range(m{i}):"]
            lines.append(f"        {self._array(node.out)}[j] *= f{i}")
            self.factors.append(node.factors[0])
        return f"\ndef GROUP({', '.join(typed)}):\n" + _lines([*lines, "return 0"], 1)


def _lines(lines: list[str], by: int) -> str:
    return "".join("    " * by + line + "\n" for line in lines)


def substituted(expression: str, names: Mapping[str, str]) -> str:
    """An expression with some of its words replaced."""
    if not names:
        return expression
    pattern = r"\b(" + "|".join(map(re.escape, names)) + r")\b"
    return re.sub(pattern, lambda match: names[match[0]], expression)
