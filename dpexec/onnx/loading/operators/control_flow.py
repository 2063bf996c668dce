"""``If``, ``Loop`` and ``Scan``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.layers.branches import cond
from dpexec.layers.control_flow import While
from dpexec.layers.static_rnn import StaticRNN
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.sequences import (
    array_of,
    is_array,
    require_appended,
    write_either_way,
    writes_either_way,
)
from dpexec.onnx.loading.values import Value

_MOST_ROUNDS = 512
"""Loops of a known number of rounds are written out up to that many."""


@operator("If")
def if_(node: Node) -> Any:
    """One branch if the condition is known; else both are blocks, or one write to an array."""
    known = node.known(0)
    names = ("then_branch", "else_branch")
    if known is not None:
        return node.graph.body(node.attrs[names[0] if known.reshape(-1)[0] else names[1]], [])
    writes = writes_either_way(*(node.attrs[name] for name in names))
    if writes and any(node.graph.values[write.array].items is None for write in writes):
        return write_either_way(node, writes)
    scalars: list[list[bool]] = []

    def branch(name: str) -> list[Variable]:
        values = node.graph.body(node.attrs[name], [])
        scalars.append([value.scalar for value in values])
        return [_copy(node, node.builder.variable(value)) for value in values]

    made = cond(node.var(0), lambda: branch(names[0]), lambda: branch(names[1]))
    pairs = zip(made, scalars[0], strict=True)
    return [node.result(var, scalar, i) for i, (var, scalar) in enumerate(pairs)]


def _copy(node: Node, var: Variable, to: Variable | None = None) -> Variable:
    """The numbers of a variable in another one."""
    outputs = None if to is None else {"Out": to}
    made = node.builder.add("assign", {"X": var}, prefix=node.prefix, outputs=outputs)
    found: Variable = made["Out"]
    return found


def _one(node: Node, scalar: Variable) -> Variable:
    """A scalar as an array of one element: that it has one may be known in a run alone."""
    return scalar if scalar.shape == (1,) else node.reshape(scalar, [1])


@operator("Loop")
def loop(node: Node) -> Any:
    """Written out if the number of rounds is known, else a ``while``."""
    body, trips = node.attrs["body"], node.known(0)
    first = node.input(1)
    always = first is None or (first.known is not None and bool(first.known.reshape(-1)[0]))
    if (
        trips is not None
        and always
        and _goes_on(body)
        and int(trips.reshape(-1)[0]) <= _MOST_ROUNDS
    ):
        return _written_out(node, body, int(trips.reshape(-1)[0]))
    return _While(node, body).results()


def _goes_on(body: Any) -> bool:
    """Whether the condition that a body returns is true for certain."""
    names = {body.input[1].name}
    for proto in body.node:
        if proto.op_type == "Identity" and proto.input[0] in names:
            names.add(proto.output[0])
        if proto.op_type == "Constant":
            values = [a for a in proto.attribute if a.name == "value"]
            if values and bool(np.all(_array(values[0].t))):
                names.add(proto.output[0])
    names |= {t.name for t in body.initializer if bool(np.all(_array(t)))}
    return body.output[0].name in names


def _array(tensor: Any) -> Any:
    import onnx

    return onnx.numpy_helper.to_array(tensor)


def _written_out(node: Node, body: Any, trips: int) -> list[Any]:
    states = [node.value(i) for i in range(2, len(node.inputs))]
    scans: list[list[Value]] = [[] for _ in body.output[1 + len(states) :]]
    for number in range(trips):
        counter = Value("round", np.array(number, np.int64), scalar=True)
        going = Value("going", np.array(True), scalar=True)
        made = node.graph.body(body, [counter, going, *states])
        states = made[1 : 1 + len(states)]
        for scan, value in zip(scans, made[1 + len(states) :], strict=True):
            scan.append(value)
    return [*states, *(_stacked(node, scan) for scan in scans)]


def _stacked(node: Node, values: Sequence[Value], axis: int = 0) -> Variable:
    """What the rounds of a loop left, one behind the other along an axis."""
    if not values:
        node.fail("a loop without rounds leaves nothing whose shape is known")
    variables = [node.builder.variable(value) for value in values]
    if values[0].scalar:
        return node.concat(variables, 0)
    return node.add("stack", {"X": variables}, "Y", axis=axis)


class _While:
    """A loop whose rounds a run counts."""

    def __init__(self, node: Node, body: Any) -> None:
        self.node, self.body = node, body
        zero = node.number(0, VarType.INT64)
        self.counter = _copy(node, zero)
        first = node.optional(1)
        first = node.number(True, VarType.BOOL) if first is None else first
        self.kept = _copy(node, _one(node, first))
        self.limit = node.optional(0)
        self.start = [node.value(i) for i in range(2, len(node.inputs))]
        self.states = [self._state(i, value) for i, value in enumerate(self.start)]
        block, count = node.builder.block, len(body.output) - 1 - len(self.states)
        self.arrays = [
            block.create_var(
                name=f"{node.prefix}.array_{i}", type=VarType.LOD_TENSOR_ARRAY, dtype="float32"
            )
            for i in range(count)
        ]
        self.scalars = [value.scalar for value in self.start] + [False] * count

    def _state(self, number: int, value: Value) -> Variable:
        """The variable that a state of the loop has before its first round."""
        if value.is_sequence:
            require_appended(self.node, self.body, self.body.input[2 + number].name)
            return array_of(self.node, value)
        state = _copy(self.node, self.node.builder.variable(value))
        if 0 in state.shape:  # a tensor that is empty at first grows
            state.desc.set_shape([-1 if size == 0 else size for size in state.shape])
        return state

    def results(self) -> list[Any]:
        """Add the loop; returns its states and what its rounds left."""
        node = self.node
        going = self._going(None)
        with While(going).block():
            self._round()
            self._going(going)
        scans = [node.add("tensor_array_to_tensor", {"X": array}, axis=0) for array in self.arrays]
        made = [*self.states, *scans]
        pairs = zip(made, self.scalars, strict=True)
        return [node.result(var, scalar, i) for i, (var, scalar) in enumerate(pairs)]

    def _round(self) -> None:
        """Add the operators of a round."""
        node = self.node
        names = ("round", "going")
        inputs = [
            Value(f"{node.name}.{name}", None, _copy(node, var), True)
            for name, var in zip(names, (self.counter, self.kept), strict=True)
        ]
        states = [
            Value(f"{node.name}.{value.name}", None, var, value.scalar)
            for value, var in zip(self.start, self.states, strict=True)
        ]
        made = node.graph.body(self.body, [*inputs, *states])
        variables = [node.builder.variable(value) for value in made]
        count = len(self.states)
        for number, value in enumerate(made[1 : 1 + count]):
            if value.is_sequence:  # the first tensor tells it
                self.scalars[number] = value.scalar
        pairs = zip(variables[1 : 1 + count], self.states, strict=True)
        copies = [(var if is_array(state) else _copy(node, var), state) for var, state in pairs]
        self._append(made[1 + count :])
        for copied, state in copies:
            if not is_array(state):
                _copy(node, copied, state)
            elif copied is not state:
                node.fail("its body returns another sequence than the one that it got")
        _copy(node, _one(node, variables[0]), self.kept)
        node.builder.add(
            "increment",
            {"X": self.counter},
            {"step": 1.0},
            prefix=node.prefix,
            outputs={"Out": self.counter},
        )

    def _append(self, values: Sequence[Value]) -> None:
        """Put what a round leaves into arrays."""
        node = self.node
        for array, value in zip(self.arrays, values, strict=True):
            var = node.builder.variable(value)
            array.desc.set_dtype(var.dtype)
            written = var if value.scalar else node.unsqueeze(var, [0])
            node.builder.add(
                "write_to_array",
                {"X": written, "I": self.counter},
                prefix=node.prefix,
                outputs={"Out": array},
            )

    def _going(self, to: Variable | None) -> Variable:
        """Whether there is another round."""
        node = self.node
        if self.limit is None:
            return _copy(node, self.kept, to)
        limit = _one(node, node.cast(self.limit, VarType.INT64))
        more = node.binary("less_than", self.counter, limit)
        both = node.add("logical_and", {"X": more, "Y": self.kept})
        return _copy(node, both, to)


class _Scan:
    """A node, and what it goes through."""

    def __init__(self, node: Node) -> None:
        self.node, self.body = node, node.attrs["body"]
        count = node.attrs["num_scan_inputs"]
        self.states = [node.value(i) for i in range(len(node.inputs) - count)]
        self.sources = [node.value(i) for i in range(len(self.states), len(node.inputs))]
        outputs = len(self.body.output) - len(self.states)
        axes = node.attr("scan_input_axes", [0] * count)
        self.axes = [axis % v.rank for axis, v in zip(axes, self.sources, strict=True)]
        self.backwards = node.attr("scan_input_directions", [0] * count)
        self.out_axes = node.attr("scan_output_axes", [0] * outputs)
        self.out_backwards = node.attr("scan_output_directions", [0] * outputs)

    def written_out(self, length: int) -> list[Any]:
        """The operators of every step."""
        node, states = self.node, self.states
        scans: list[list[Value]] = [[] for _ in self.out_axes]
        sources = [node.builder.variable(source) for source in self.sources]
        for number in range(length):
            parts = []
            for k, (value, var) in enumerate(zip(self.sources, sources, strict=True)):
                place = length - 1 - number if self.backwards[k] else number
                row = node.squeeze(node.slice(var, self.axes[k], place, place + 1), [self.axes[k]])
                parts.append(Value(f"{node.prefix}.part", None, row, value.rank == 1))
            made = node.graph.body(self.body, [*states, *parts])
            states = made[: len(states)]
            for kept, value in zip(scans, made[len(states) :], strict=True):
                kept.append(value)
        found = []
        for kept, axis, back in zip(scans, self.out_axes, self.out_backwards, strict=True):
            axis = axis if axis >= 0 else axis + kept[0].rank + 1
            found.append(_stacked(node, kept[::-1] if back else kept, axis))
        return [*states, *found]

    def over_steps(self) -> list[Any]:
        """A ``recurrent`` operator, whose number of steps a run tells."""
        node = self.node
        sources = [self._time_first(k) for k in range(len(self.sources))]
        starts = [node.builder.variable(state) for state in self.states]
        rnn = StaticRNN()
        made = self._step(rnn, sources, starts)
        results = rnn()
        results = results if isinstance(results, list) else [results]
        count = len(starts)
        last = [self._last(results[k], self.states[k].scalar, k) for k in range(count)]
        scans = [
            self._laid(var, value, k)
            for k, (var, value) in enumerate(zip(results[count:], made[count:], strict=True))
        ]
        return [*last, *scans]

    def _step(self, rnn: StaticRNN, sources: list[Variable], starts: list[Variable]) -> list[Value]:
        """Add a step's operators to the ``recurrent`` operator; returns what it leaves."""
        node = self.node
        with rnn.step():
            parts = [
                Value(f"{node.prefix}.part", None, rnn.step_input(var), value.rank == 1)
                for var, value in zip(sources, self.sources, strict=True)
            ]
            memories = [rnn.memory(init=start) for start in starts]
            states = [
                Value(f"{node.prefix}.state", None, var, value.scalar)
                for var, value in zip(memories, self.states, strict=True)
            ]
            made = node.graph.body(self.body, [*states, *parts])
            after = [_copy(node, node.builder.variable(value)) for value in made]
            for memory, var in zip(memories, after, strict=False):
                rnn.update_memory(memory, var)
            for var in after:
                rnn.step_output(var)
        return made

    def _time_first(self, number: int) -> Variable:
        """A source with its steps along the first axis, from the first to the last."""
        node, axis = self.node, self.axes[number]
        var = node.builder.variable(self.sources[number])
        rest = [k for k in range(self.sources[number].rank) if k != axis]
        var = node.transpose(var, [axis, *rest])
        if self.sources[number].rank == 1:  # a step is a number, of shape [1]
            var = node.unsqueeze(var, [1])
        return node.add("reverse", {"X": var}, axis=[0]) if self.backwards[number] else var

    def _last(self, states: Variable, scalar: bool, number: int) -> Value:
        """The state after the last step."""
        node = self.node
        row = node.add("slice", {"Input": states}, axes=[0], starts=[-1], ends=[2**31 - 1])
        return node.result(node.squeeze(row, [0]), scalar, number)

    def _laid(self, var: Variable, value: Value, number: int) -> Variable:
        """What all steps left, along the axis of an output."""
        node, axis = self.node, self.out_axes[number]
        if self.out_backwards[number]:
            var = node.add("reverse", {"X": var}, axis=[0])
        if value.scalar:
            return node.reshape(var, [-1])
        rank = value.rank + 1
        axis = axis if axis >= 0 else axis + rank
        order = list(range(1, rank))
        order.insert(axis, 0)
        return node.transpose(var, order)


@operator("Scan")
def scan(node: Node) -> Any:
    """Written out if the number of steps is known, else a ``recurrent`` operator."""
    if node.version < 9:
        node.fail("version 8 of Scan is not supported")
    found = _Scan(node)
    length = node.builder.dims(found.sources[0])[found.axes[0]]
    return found.written_out(length) if isinstance(length, int) else found.over_steps()
