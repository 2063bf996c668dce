"""Operators that work element by element, alone or in groups, in few launches.

The lowerings note their expressions (:class:`~dpexec.engine.kernels.groups.Group`), as for
processors. Those that share their loops become one CUDA kernel; sums between them are CuPy's.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.graph.group_ops import GroupOp
from dpexec.engine.ir.spec import Spec
from dpexec.engine.kernels.elementwise import TOTAL
from dpexec.engine.kernels.generate import Pointwise
from dpexec.engine.kernels.gpu.expressions import Untranslatable, expression
from dpexec.engine.kernels.gpu.launch import ElementKernel
from dpexec.engine.kernels.group_plan import Node, Plan, plan, where
from dpexec.engine.kernels.group_source import substituted
from dpexec.engine.kernels.groups import Group, lower_part
from dpexec.engine.kernels.lowering import Buffer, Code, Value

__all__ = ["Launches", "launches"]

Arrays = dict[Hashable, Any]
"""By the memory that values have in a group."""


@dataclass(frozen=True)
class Launches:
    """What computes a group for inputs of some shapes.

    Args:
        inputs: the values that come from outside.
        outputs: the values that the group gives.
        calls: each takes the array module and all arrays so far, and adds its results.
    """

    inputs: Sequence[Value]
    outputs: Sequence[Value]
    calls: Sequence[Callable[[Any, Arrays], None]]

    def __call__(self, xp: Any, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for some inputs."""
        arrays = {where(v): a for v, a in zip(self.inputs, inputs, strict=True)}
        for call in self.calls:
            call(xp, arrays)
        return [arrays[where(value)].reshape(value.shape) for value in self.outputs]


def launches(
    parts: Sequence[GroupOp], inputs: Sequence[Any], results: Sequence[int]
) -> Launches | None:
    """What computes some operators; None if there are no kernels for all of them.

    Args:
        parts: the operators; their first values are the inputs.
        inputs: arrays, whose shapes and types count.
        results: numbers of the values that are wanted.
    """
    if any(isinstance(x, SelectedRows) or x.dtype != "float32" or not x.size for x in inputs):
        return None
    values = dict(enumerate(_value(array.shape) for array in inputs))
    specs = {number: Spec(value.shape, VarType.FP32) for number, value in values.items()}
    group, given = Group(Code()), list(values.values())
    if not all(lower_part(group, part, specs, values) for part in parts):
        return None
    outputs = [values[number] for number in results]
    known, own = {where(value) for value in given}, {where(value) for value in outputs}
    if known & own or len(own) < len(outputs):  # a result that is no array of its own
        return None
    try:
        return Launches(given, outputs, [*_calls(group.items, own)])
    except Untranslatable:
        return None


def _value(shape: Sequence[int]) -> Value:
    value = Value(tuple(shape), np.dtype(np.float32))
    value.buffer = Buffer(value.nbytes)
    return value


def _calls(items: Sequence[Any], outputs: set[Hashable]) -> list[Callable[[Any, Arrays], None]]:
    """The launches for the expressions of a group.

    Raises:
        Untranslatable: one of them, or something else in the group, has none.
    """
    calls: list[Callable[[Any, Arrays], None]] = []
    rest: list[Node] = []
    for item in items:
        if not isinstance(item, Node):
            raise Untranslatable("a call of a kernel for processors")
        rest.append(item)
    while rest:
        if rest[0].kept is not None:
            calls.append(_Total(rest.pop(0)))
            continue
        most = next((i for i, node in enumerate(rest) if node.kept is not None), len(rest))
        fitting = ((size, plan(rest[:size])) for size in range(most, 0, -1))
        size, made = next(((size, made) for size, made in fitting if made), (0, None))
        if made is None:
            raise Untranslatable(rest[0].apply.name)
        later = {s for node in rest[size:] for s in node.sources if isinstance(s, Node)}
        stored = [n for n in rest[:size] if n in later or where(n.out) in outputs]
        calls.append(_Expressions(made, stored))
        rest = rest[size:]
    return calls


class _Total:
    """A sum along some dimensions."""

    def __init__(self, node: Node) -> None:
        if node.apply is not TOTAL:
            raise Untranslatable(node.apply.name)
        assert node.kept is not None
        source = node.sources[0]
        self.source = where(source.out if isinstance(source, Node) else source)
        self.out, self.shape = where(node.out), node.shape
        self.axes = tuple(axis for axis, keep in enumerate(node.kept) if not keep)
        self.factor = np.float32(node.factors[0])

    def __call__(self, xp: Any, arrays: Arrays) -> None:
        total = arrays[self.source].reshape(self.shape).sum(axis=self.axes)
        arrays[self.out] = total if self.factor == 1 else total * self.factor


class _Expressions:
    """Expressions that share their loops: one kernel."""

    def __init__(self, made: Plan, stored: Sequence[Node]) -> None:
        self.plan, self.stored = made, stored
        self.size = math.prod(made.sizes)
        self.loads = {
            (where(_out(node.sources[number])), steps): f"v{index}"
            for index, ((node, number), steps) in enumerate(made.loads.items())
        }
        self.reads = list(dict.fromkeys(memory for memory, _ in self.loads))
        self.factors = [factor for node in made.nodes for factor in node.factors]
        text = "\n".join(self._body())
        name = "dp_group_" + hashlib.sha1(repr((text, made.sizes)).encode()).hexdigest()[:16]
        self.kernel = ElementKernel(
            name,
            [f"a{index}" for index in range(len(self.reads))],
            [f"o{index}" for index in range(len(stored))],
            [f"c{index}_" for index in range(len(self.factors))],
            [],
            text.split("\n"),
        )

    def _body(self) -> list[str]:
        lines = [*self._coordinates()]
        for (memory, steps), name in self.loads.items():
            lines.append(f"float {name}_ = a{self.reads.index(memory)}[{_position(steps)}];")
        names: dict[Node, str] = {}
        factors = iter(range(len(self.factors)))
        for index, node in enumerate(self.plan.nodes):
            assert isinstance(node.apply, Pointwise)
            own = dict(zip(node.apply.operands, self._operands(node, names), strict=True))
            own.update({factor: f"c{next(factors)}" for factor in node.apply.factors})
            names[node] = f"e{index}"
            text = expression(substituted(node.apply.expression, own))
            lines.append(f"float e{index}_ = {text};")
        for index, node in enumerate(self.stored):
            steps = self.plan.places[node]
            alone = [f"d{axis} == 0" for axis, step in enumerate(steps) if not step]
            once = f"if ({' && '.join(alone)}) " if alone else ""
            lines.append(f"{once}o{index}[{_position(steps)}] = {names[node]}_;")
        return lines

    def _coordinates(self) -> list[str]:
        sizes, lines = self.plan.sizes, []
        for axis, size in enumerate(sizes):
            inner = math.prod(sizes[axis + 1 :])
            lines.append(f"long long d{axis} = i / {inner}LL % {size}LL;")
        return lines

    def _operands(self, node: Node, names: Mapping[Node, str]) -> list[str]:
        found = []
        for number, source in enumerate(node.sources):
            if isinstance(source, Node) and source in names:
                found.append(names[source])
            else:
                steps = self.plan.loads[node, number]
                found.append(self.loads[where(_out(source)), steps])
        return found

    def __call__(self, xp: Any, arrays: Arrays) -> None:
        made = [xp.empty(node.out.size, np.float32) for node in self.stored]
        reads = [arrays[memory] for memory in self.reads]
        self.kernel(xp, [(self.size, [*reads, *made])], self.factors)
        arrays.update(
            (where(node.out), array) for node, array in zip(self.stored, made, strict=True)
        )


def _out(source: Node | Value) -> Value:
    return source.out if isinstance(source, Node) else source


def _position(steps: Sequence[int]) -> str:
    """Where an element lies, of the coordinates."""
    return " + ".join(f"d{axis} * {step}LL" for axis, step in enumerate(steps) if step) or "0"
