"""``If``, ``Loop`` and ``Scan``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.layers.branches import cond
from dpexec.layers.control_flow import While
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.values import Value

_MOST_ROUNDS = 512
"""Loops of a known number of rounds are written out up to that many."""


@operator("If")
def if_(node: Node) -> Any:
    """One branch if the condition is known; else both are blocks of the program."""
    known = node.known(0)
    names = ("then_branch", "else_branch")
    if known is not None:
        return node.graph.body(node.attrs[names[0] if known.reshape(-1)[0] else names[1]], [])
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
    """What the rounds of a loop left, one behind the other."""
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
        self.kept = _copy(node, node.number(True, VarType.BOOL) if first is None else first)
        self.limit = node.optional(0)
        self.start = [node.value(i) for i in range(2, len(node.inputs))]
        if any(value.items is not None for value in self.start):
            node.fail(
                "it changes a sequence of tensors, and only a run tells how many rounds it has"
            )
        self.states = [_copy(node, node.builder.variable(value)) for value in self.start]
        for state in self.states:  # a tensor that is empty at first grows
            if 0 in state.shape:
                state.desc.set_shape([-1 if size == 0 else size for size in state.shape])
        block, count = node.builder.block, len(body.output) - 1 - len(self.states)
        self.arrays = [
            block.create_var(
                name=f"{node.prefix}.array_{i}", type=VarType.LOD_TENSOR_ARRAY, dtype="float32"
            )
            for i in range(count)
        ]
        self.scalars = [value.scalar for value in self.start] + [False] * count

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
        copies = [_copy(node, var) for var in variables[1 : 1 + count]]
        for array, var, value in zip(
            self.arrays, variables[1 + count :], made[1 + count :], strict=True
        ):
            array.desc.set_dtype(var.dtype)
            written = var if value.scalar else node.unsqueeze(var, [0])
            node.builder.add(
                "write_to_array",
                {"X": written, "I": self.counter},
                prefix=node.prefix,
                outputs={"Out": array},
            )
        for copied, state in zip(copies, self.states, strict=True):
            _copy(node, copied, state)
        _copy(node, variables[0], self.kept)
        node.builder.add(
            "increment",
            {"X": self.counter},
            {"step": 1.0},
            prefix=node.prefix,
            outputs={"Out": self.counter},
        )

    def _going(self, to: Variable | None) -> Variable:
        """Whether there is another round."""
        node = self.node
        if self.limit is None:
            return _copy(node, self.kept, to)
        limit = node.cast(self.limit, VarType.INT64)
        more = node.binary("less_than", self.counter, limit)
        both = node.add("logical_and", {"X": more, "Y": self.kept})
        return _copy(node, both, to)


@operator("Scan")
def scan(node: Node) -> Any:
    """Written out; the length of what is gone through must be known."""
    if node.version < 9:
        node.fail("version 8 of Scan is not supported")
    body, count = node.attrs["body"], node.attrs["num_scan_inputs"]
    states = [node.value(i) for i in range(len(node.inputs) - count)]
    sources = [node.value(i) for i in range(len(states), len(node.inputs))]
    outputs = len(body.output) - len(states)
    axes = node.attr("scan_input_axes", [0] * count)
    backwards = node.attr("scan_input_directions", [0] * count)
    length = node.builder.dims(sources[0])[axes[0]]
    if not isinstance(length, int):
        node.fail("the length of what it goes through must be known when the model is loaded")
    scans: list[list[Value]] = [[] for _ in range(outputs)]
    for number in range(length):
        parts = []
        for source, axis, back in zip(sources, axes, backwards, strict=True):
            place, axis = length - 1 - number if back else number, axis % source.rank
            var = node.slice(node.builder.variable(source), axis, place, place + 1)
            parts.append(
                Value(f"{node.prefix}.part", None, node.squeeze(var, [axis]), source.rank == 1)
            )
        made = node.graph.body(body, [*states, *parts])
        states = made[: len(states)]
        for kept, value in zip(scans, made[len(states) :], strict=True):
            kept.append(value)
    out_axes = node.attr("scan_output_axes", [0] * outputs)
    out_back = node.attr("scan_output_directions", [0] * outputs)
    stacked = [
        _stacked(node, kept[::-1] if back else kept, axis if axis >= 0 else axis + kept[0].rank + 1)
        for kept, axis, back in zip(scans, out_axes, out_back, strict=True)
    ]
    return [*states, *stacked]
