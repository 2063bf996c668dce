"""Groups of operators: their expressions are merged into as few kernels as possible.

The lowering of every part is called with a :class:`Group` in place of the code. The group records
the expressions that lowerings emit (:class:`~dpexec.engine.kernels.generate.Pointwise` and
:class:`~dpexec.engine.kernels.generate.Reduction`). Expressions with the same loops become one
kernel, whose intermediate results stay in registers, or in a row that stays in the cache. Other
calls are kept, in their place. Expressions and the order of sums are those of the separate
operators, so the bits are the same.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any, TypeGuard

from dpexec.engine.core.dtypes import as_var_type, to_numpy
from dpexec.engine.graph.group_ops import GroupOp, group_ops
from dpexec.engine.ir.sizes import real
from dpexec.engine.ir.spec import Spec
from dpexec.engine.kernels.generate import Pointwise, Recorder, Reduction
from dpexec.engine.kernels.group_plan import Node, Plan, plan, where
from dpexec.engine.kernels.group_source import emit
from dpexec.engine.kernels.implementations import find
from dpexec.engine.kernels.lowering import Argument, Buffer, Code, Value, lowering
from dpexec.engine.kernels.machine import Kernel
from dpexec.engine.kernels.shapes import move
from dpexec.engine.kernels.strides import strides

__all__ = ["Group", "lower_part"]

Call = tuple[Kernel, Sequence[Argument]]
_MOST = 64
"""The most expressions of one kernel: compile times grow faster than their number."""
_MOST_FUNCTIONS = 2
"""The most functions such as ``exp`` in one kernel: the constants of more of them do not fit into
registers. Five gates of an LSTM in one kernel take 1.05 times as long as single kernels, two by two
0.94 times."""
_FUNCTION = re.compile(
    r"\b(against|bell|exp|exp_bounded|expm1|log|log1p|log1p_of_any|normal|sigmoid|steepness"
    r"|tanh|tanh_shrink)\("
)


class Group(Recorder):
    """Records the expressions and calls of a group.

    Args:
        code: takes the calls when the group is finished.
    """

    def __init__(self, code: Code) -> None:
        made = {value: copy for value, copy in code._copies.items() if copy.source is None}
        super().__init__(halves=code.halves, rounded=code.rounded, _copies=made)
        self.code = code
        self.items: list[Node | Call] = []
        self.made: dict[Hashable, Node] = {}

    def emit(self, kernel: Kernel, *arguments: Argument) -> None:
        """Record a call of a kernel; its operands and results must be in memory."""
        for argument in arguments:
            if isinstance(argument, Value):
                self.make(argument)
                node = self.made.pop(where(argument), None)
                if node is not None:
                    node.stored = True
        self.items.append((kernel, arguments))

    def each(
        self,
        apply: Pointwise,
        out: Value,
        operands: Sequence[Value],
        factors: Sequence[float] = (),
        shapes: Sequence[Sequence[int]] = (),
        shape: Sequence[int] = (),
    ) -> None:
        """Record an expression at every element."""
        shape = tuple(shape or (out.size,))
        steps = [strides(laid, shape) for laid in shapes or [shape] * len(operands)]
        sources = [self._source(value) for value in operands]
        self._note(Node(apply, out, sources, steps, shape, tuple(map(real, factors))))

    def reduce(
        self, apply: Reduction, x: Value, out: Value, shape: Sequence[int], kept: Sequence[bool],
        factor: float,
    ) -> None:  # fmt: skip
        """Record a reduction."""
        steps = [strides(shape)]
        self._note(
            Node(apply, out, [self._source(x)], steps, tuple(shape), (real(factor),), tuple(kept))
        )

    def _source(self, value: Value) -> Node | Value:
        self.make(value)
        return self.made.get(where(value), value)

    def _note(self, node: Node) -> None:
        self.items.append(node)
        self.made[where(node.out)] = node

    def finish(self, outputs: Sequence[Value]) -> bool:
        """Emit the kernels and calls.

        Args:
            outputs: the values that are needed in memory.

        Returns:
            False if there is no kernel for some expression; nothing is emitted then.
        """
        for node in filter(None, (self.made.get(where(value)) for value in outputs)):
            node.stored = True
        kernels = self._kernels()
        plans = [plan(item) if _needs_plan(item) else None for item in kernels]
        for item, made in zip(kernels, plans, strict=True):
            if isinstance(item, list) and made is None and not all(map(_by_itself, item)):
                return False
        readers = _readers(kernels)
        for number, (item, made) in enumerate(zip(kernels, plans, strict=True)):
            if isinstance(item, tuple):
                self.code.emit(item[0], *item[1])
            elif made is None:
                for node in item:
                    _alone(self.code, node)
            else:
                stored = {n for n in item if n.stored or readers.get(n, set()) - {number}}
                self._overwrite(made, stored, outputs)
                emit(self.code, made, stored)
        return True

    def _kernels(self) -> list[list[Node] | Call]:
        """The expressions of every kernel, and the calls between them."""
        found: list[list[Node] | Call] = []
        run: list[Node] = []
        for item in (*self.items, None):
            if isinstance(item, Node):
                run.append(item)
                continue
            while run:
                sizes = range(_fitting(run), 1, -1)
                size = next((size for size in sizes if plan(run[:size])), 1)
                found.append(run[:size])
                run = run[size:]
            if item is not None:
                found.append(item)
        return found

    def _overwrite(self, made: Plan, stored: set[Node], outputs: Sequence[Value]) -> None:
        """Let results take the memory of operands that are not read later."""
        if len(self.items) != len(made.nodes):
            return  # such results may be referred to elsewhere
        last: dict[Hashable, int] = {}
        values: dict[Hashable, Value] = {}
        held = {where(value) for value in outputs}  # a result may be an operand itself
        for (node, number), steps in made.loads.items():
            value = node.sources[number]
            assert isinstance(value, Value)
            if where(value) in held:
                continue
            whole = value.size == max(n.size for n in made.nodes) and 0 not in steps
            level = made.done_with(node) if whole else len(made.nodes)
            last[where(value)] = max(last.get(where(value), 0), level)
            values[where(value)] = value
        for node in made.nodes:
            if node not in stored or not made.in_row(node):
                continue
            shared = [value for value in outputs if where(value) == where(node.out)]
            fitting = (v for key, v in values.items() if last[key] <= made.level[node])
            taken = next((v for v in fitting if self.code.reuse(node.out, v)), None)
            if taken is not None:
                del values[where(taken)]
                for value in shared:
                    value.buffer = node.out.buffer


def _readers(kernels: Sequence[list[Node] | Call]) -> dict[Node, set[int]]:
    """By expression, the numbers of the kernels that read its result."""
    found: dict[Node, set[int]] = {}
    for number, item in enumerate(kernels):
        for node in item if isinstance(item, list) else ():
            for source in node.sources:
                if isinstance(source, Node):
                    found.setdefault(source, set()).add(number)
    return found


def _fitting(nodes: Sequence[Node]) -> int:
    """How many of the expressions one kernel may compute: at least one."""
    functions = 0
    for number, node in enumerate(nodes[:_MOST]):
        if isinstance(node.apply, Pointwise):
            functions += len(_FUNCTION.findall(node.apply.expression))
        if functions > _MOST_FUNCTIONS and number:
            return number
    return min(len(nodes), _MOST)


def _needs_plan(item: list[Node] | Call) -> TypeGuard[list[Node]]:
    return isinstance(item, list) and (len(item) > 1 or not _by_itself(item[0]))


def _by_itself(node: Node) -> bool:
    """Whether there is a kernel for an expression alone."""
    flat = all(list(steps) == node.out_steps for steps in node.steps)
    return isinstance(node.apply, Reduction) or flat or len(node.steps) < 3


def _alone(code: Code, node: Node) -> None:
    """Emit an expression by itself."""
    values = [source.out if isinstance(source, Node) else source for source in node.sources]
    if isinstance(node.apply, Reduction):
        assert node.kept is not None
        node.apply.emit(code, values[0], node.out, node.shape, node.kept, node.factors[0])
    elif any(node.out is value for value in values):
        node.apply.add_to(code, *values)
    elif len(values) == 1 and list(node.steps[0]) != node.out_steps:
        places = (0, node.steps[0]), (0, node.out_steps)
        move(code, values[0], node.out, node.shape, *places)
    elif all(list(steps) == node.out_steps for steps in node.steps):
        node.apply.emit(code, node.out, *values, factors=node.factors)
    else:
        x, y = values
        shapes = [_shape(steps, node.shape) for steps in node.steps]
        node.apply.broadcast(code, node.out, x, y, (shapes[0], shapes[1]), node.shape)


def _shape(steps: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(size if step else 1 for size, step in zip(shape, steps, strict=True))


def _new(spec: Spec) -> Value:
    value = Value(spec.shape, to_numpy(spec.dtype))
    value.buffer = Buffer(value.nbytes)
    return value


def lower_part(
    group: Group, part: GroupOp, specs: dict[int, Spec], values: dict[int, Value]
) -> bool:
    """Record the expressions of a part; False if it has no lowering, or its lowering declines.

    Args:
        group: takes the expressions.
        part: the operator.
        specs: specs of the group's values, by number; gets those of the results.
        values: the group's values, by number; gets the results.
    """
    lower = find(part.type, "code")
    if lower is None:
        return False
    part.infer(specs)
    outputs: list[Value | None] = []
    for slot in part.definition.outputs:
        number = part.outputs.get(slot.name, [-1])[0]
        if number >= 0:
            values.setdefault(number, _new(specs[number]))
        outputs.append(values.get(number))
    attrs = {name: part.attrs.get(name, part.definition.attrs.get(name)) for name in lower.attrs}
    return lower(group, part.arguments(values), outputs, attrs) is not False


@lowering("fusion_group", layout="own")
def fusion_group(
    code: Code, inputs: list[Value], outs: list[Value | None], *, parts: Sequence[str],
    results: Sequence[int],
) -> Any:  # fmt: skip
    """The expressions of all parts in as few kernels as possible."""
    group = Group(code)
    values = dict(enumerate(inputs))
    values.update((n, out) for n, out in zip(results, outs, strict=True) if out is not None)
    specs = {n: Spec(value.shape, as_var_type(value.dtype)) for n, value in enumerate(inputs)}
    for part in group_ops(parts, results):
        if not lower_part(group, part, specs, values):
            return False
    return group.finish([out for out in outs if out is not None])
