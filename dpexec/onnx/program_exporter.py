"""A program as a graph of ONNX: inputs, parameters, blocks, outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

import dpexec.onnx.exporting.mappings  # noqa: F401 - fills the table of mappings
from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.core.errors import EnforceNotMet, see
from dpexec.engine.core.version import __version__
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.exporting.builder import Builder, Value, onnx_type
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import mappings
from dpexec.onnx.exporting.refusals import CannotExport, ExportError
from dpexec.onnx.exporting.specs import Specs
from dpexec.onnx.exporting.values import Values

__all__ = ["lengths_names", "program_to_model"]

ValueOf = Callable[[str], np.ndarray[Any, Any] | None]

_IR_VERSIONS = {13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10}
"""The version of the file format that was current when a version of the operators appeared."""


def lengths_names(name: str, levels: int) -> list[str]:
    """The inputs or outputs with the lengths of a variable's sequences, coarse levels first.

    Example:
        >>> lengths_names("words", 1), lengths_names("text", 2)
        (['words.lengths'], ['text.lengths.0', 'text.lengths.1'])
    """
    if levels == 1:
        return [f"{name}.lengths"]
    return [f"{name}.lengths.{level}" for level in range(levels)]


class _Exporter:
    """Writes one program; collects what cannot be written."""

    def __init__(
        self, program: Program, targets: Sequence[str], opset: int, value_of: ValueOf
    ) -> None:
        self.program, self.value_of = program, value_of
        self.g = Builder(opset)
        self.values = Values()
        self.refused: list[str] = []
        operators = [op for block in program.blocks for op in block.ops]
        self.needed = frozenset(targets).union(*(op.input_arg_names for op in operators))
        others = (op.input_arg_names for op in operators if op.type != "dropout")
        self._read_elsewhere = frozenset(targets).union(*others)
        self._mappings, self._specs = mappings(), Specs()

    def inputs(self, feeds: Sequence[str]) -> list[onnx.ValueInfoProto]:
        """Declare the inputs: the fed variables, and the lengths of their sequences."""
        found = [self.program.global_block().var(name) for name in feeds]
        opened = [var.name for var in found if var.shape[:1] == (-1,) and not var.lod_level]
        made = []
        for var in found:
            names = lengths_names(var.name, var.lod_level) if var.lod_level else []
            for name in (var.name, *names):
                self.g.unique(name)
            dims = dimensions(var, "batch" if opened == [var.name] else "")
            made.append(helper.make_tensor_value_info(var.name, _type(var), dims))
            made += [
                helper.make_tensor_value_info(name, onnx_type(np.int64), [f"{name}.count"])
                for name in names
            ]
            self.values.bind(var.name, var.name, tuple(names))
        return made

    def parameters(self) -> None:
        """Make constants of the persistable variables that have a value.

        Raises:
            EnforceNotMet: an operator reads such a variable, but it has no value and no earlier
                operator writes it.
        """
        read: set[str] = set()
        written: set[str] = set()
        for op in self.program.global_block().ops:
            read.update(name for name in op.needs if name not in written)
            written.update(op.writes)
        for var in self.program.global_block().vars.values():
            if not var.persistable or self.values.find(var.name) is not None:
                continue
            array = self.value_of(var.name)
            if array is not None:
                self.g.arrays[self.g.unique(var.name)] = array
                self.values.bind(var.name, var.name)
            elif var.name in read and var.type == VarType.LOD_TENSOR:
                raise EnforceNotMet(f"{var.name} has no value: run the startup program first")

    def block(self, block: Block, g: Builder, values: Values) -> None:
        """Write the operators of a block into a graph."""
        for op in block.ops:
            if op.type not in ("feed", "fetch") and not self._is_seed_of_dropout(op):
                self.operator(op, g, values)

    def _is_seed_of_dropout(self, op: Operator) -> bool:
        """Whether an operator gives a seed to dropout alone, which drops nothing here."""
        return op.type == "seed" and self._read_elsewhere.isdisjoint(op.output_arg_names)

    def operator(self, op: Operator, g: Builder, values: Values) -> None:
        """Write an operator; if that is impossible, note the reason for the list of all of them."""
        around, start = g.origin, len(g.nodes)
        g.origin = (next(filter(None, op.output_arg_names), op.type), _line(op))
        mapping = self._mappings.get(op.type)
        call = Call(op, g, values, self.block, self.needed, self._specs.around(op))
        try:
            if mapping is None:
                raise CannotExport("dpexec knows nothing in ONNX that computes it")
            if g.opset < mapping.opset:
                raise CannotExport(f"it needs opset {mapping.opset} or later")
            for slot in sorted(mapping.constants):
                call.constants(slot)
            mapping.write(call)
            call.finish()
        except CannotExport as error:
            self.refused.append(f"{op.type}: {error}\n    {_line(op) or 'made by no known line'}")
            del g.nodes[start:]
            for name in filter(None, op.output_arg_names):
                values.bind(name, g.unique(f"{name}?"), self._any_lengths(op, values))
        g.origin = around

    def _any_lengths(self, op: Operator, values: Values) -> tuple[Value, ...]:
        return next(filter(None, map(values.lengths, op.input_arg_names)), ())

    def outputs(self, targets: Sequence[str]) -> list[onnx.ValueInfoProto]:
        """Declare the outputs: the targets, each once, and the lengths of their sequences."""
        made = []
        for target in dict.fromkeys(targets):
            var = self.program.global_block().var(target)
            value = self.values.find(target)
            if value is None:
                raise EnforceNotMet(f"{target} is to be fetched, but nothing computes it")
            lengths = self.values.lengths(target)
            self._name(value, target)
            dims = [None if dim < 0 else dim for dim in var.shape]
            made.append(helper.make_tensor_value_info(target, _type(var), dims))
            names = lengths_names(target, len(lengths)) if lengths else []
            for name, length in zip(names, lengths, strict=True):
                self._name(length, name)
                made.append(helper.make_tensor_value_info(name, onnx_type(np.int64), [None]))
        return made

    def _name(self, value: Value, name: str) -> None:
        """Rename a value to ``name``, the name of an output of the model."""
        if value == name:
            return
        if name in self.g.taken:
            other = self.g.unique(name)
            self.g.rename(name, other, 0)
            if name in self.g.arrays:
                self.g.arrays[other] = self.g.arrays.pop(name)
            value = other if value == name else value
        self.g.add("Identity", [value], [name], {})


def _type(var: Variable) -> int:
    return onnx_type(to_numpy(var.dtype))


def _line(op: Operator) -> str:
    """The line of the user's code that made an operator."""
    return "" if op.callsite is None else " ".join(str(op.callsite).split())


def dimensions(var: Variable, batch: str) -> list[str | int | None]:
    """The dimensions of a variable; unknown ones have names.

    Args:
        var: the variable.
        batch: name of the first dimension, if it is unknown; "" derives one from the variable.
    """
    first = batch or (f"{var.name}.rows" if var.lod_level else f"{var.name}.0")
    names = [first, *(f"{var.name}.{axis}" for axis in range(1, len(var.shape)))]
    return [name if dim < 0 else dim for name, dim in zip(names, var.shape, strict=False)]


def program_to_model(
    program: Program,
    feeds: Sequence[str],
    targets: Sequence[str],
    value_of: ValueOf,
    opset: int,
    name: str = "program",
) -> onnx.ModelProto:
    """The ONNX model of a program for prediction.

    Args:
        program: the program, which is not changed.
        feeds: names of the variables that are fed.
        targets: names of the variables that are fetched.
        value_of: the array of a persistable variable; None if it has no value.
        opset: version of ONNX's operators.
        name: name of the graph.

    Raises:
        ExportError: some operators cannot be written as ONNX; the error lists all of them.
    """
    exporter = _Exporter(program, targets, opset, value_of)
    inputs = exporter.inputs(feeds)
    exporter.parameters()
    exporter.block(program.global_block(), exporter.g, exporter.values)
    if exporter.refused:
        count = len(exporter.refused)
        raise see(
            "operators-that-onnx-cannot-say",
            ExportError(
                f"{count} operator{'s' * (count > 1)} cannot be written as ONNX (opset {opset}); "
                "no file was written:\n  " + "\n  ".join(exporter.refused)
            ),
        )
    outputs = exporter.outputs(targets)
    g = exporter.g
    used = _used(g.nodes)
    g.arrays = {name: array for name, array in g.arrays.items() if name in used}
    graph = helper.make_graph(g.nodes, name, inputs, outputs, g.initializers())
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=_IR_VERSIONS[opset],
        producer_name="dpexec",
        producer_version=__version__,
    )


def _used(nodes: Any) -> set[Value]:
    """The values that nodes read, including those in inner graphs."""
    found: set[Value] = set()
    for node in nodes:
        found.update(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _used(attribute.g.node)
                found.update(value.name for value in attribute.g.output)
    return found
