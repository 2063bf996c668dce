"""Lowering for an open number of rows makes the same calls as lowering for each number."""

from __future__ import annotations

import pytest

from dpexec.engine.compile.regions.step import Step, overwrites
from dpexec.engine.core.places import CPUPlace
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.graph.build import ReplicationOptions, build_ssa_graph
from dpexec.engine.ir.sizes import NeedsNumber, Quotient, Rows, Size, at
from tests.engine.ops.calls import spec_of

pytest.importorskip("numba", reason="kernels in machine code need numba")

from dpexec.engine.compile.regions.task import TaskCode
from dpexec.engine.kernels import ctc, onednn_calls
from dpexec.engine.kernels.lowering import Constant, Sized, Value
from tests.engine.kernels.test_lowerings import TYPES, calls

OTHERS = (1, 2, 3, 5, 8, 16, 17, 40, 64)


def node_of(op):
    graph = build_ssa_graph(op.block.program, [CPUPlace()], ReplicationOptions())
    return next(node for node in graph.ops if node.op is op)


def shaped(specs, first, size):
    """Specs with another size in place of their first dimension, where that has the old size."""
    return {
        name: spec.replace(shape=(size, *spec.shape[1:]))
        if spec.rank and spec.shape[0] == first
        else spec
        for name, spec in specs.items()
    }


def code_of(op, node, known):
    """The code of one operator; None if it is not lowered."""
    specs = {**known, **op.infer_outputs(known)}
    in_place = {name for out in overwrites(op) for name in op.outputs[out]}
    written = {name for names in op.outputs.values() for name in names if name}
    code = TaskCode(specs, written, in_place, {})
    code.take([Step(node, lambda env: None)])
    return code if code.code.calls else None


def told(code, rows):
    """What calls say: kernels, and what they get for some rows."""
    places = {}

    def one(argument):
        if isinstance(argument, Value):
            where = argument.buffer or argument
            shape = tuple(at(size, rows) for size in argument.shape)
            number = places.setdefault(where, len(places))
            return number, argument.name, shape, argument.dtype, argument.channels_last
        if isinstance(argument, Size | Quotient):
            return argument.at(rows)
        if isinstance(argument, Constant):
            return argument.array.tolist()
        return "later" if isinstance(argument, Sized) or callable(argument) else argument

    found = []
    for kernel, arguments in code.code.calls:
        if kernel is onednn_calls.execute:  # primitives may get more memory than they need
            arguments = [a for a in arguments if isinstance(a, Value) and a.dtype != "uint8"]
        if kernel is ctc.alignments:  # it has memory for some of the steps that there can be
            arguments = [a for a in arguments if getattr(a, "dtype", None) != "float64"]
        found.append((kernel.function, [one(argument) for argument in arguments]))
    return found


@pytest.mark.parametrize("type", TYPES)
def test_open_rows_say_what_closed_ones_say(type):
    for op, before, _ in calls(type):
        known = {name: spec_of(value) for name, value in before.items()}
        shapes = [known[n].shape for n in op.input_arg_names if n in known and known[n].rank]
        if not shapes or any(isinstance(value, SelectedRows) for value in before.values()):
            continue
        first, node = shapes[0][0], node_of(op)
        rows = Rows((first,), (64,))
        try:
            opened = code_of(op, node, shaped(known, first, rows.size(0)))
        except NeedsNumber:
            continue
        for count in OTHERS:
            if (count,) not in rows:
                continue
            closed = code_of(op, node, shaped(known, first, count))
            assert (closed is None) == (opened is None), f"{op} with {count} rows"
            if closed is not None:
                assert told(opened, (count,)) == told(closed, ()), f"{op} with {count} rows"
