"""Blocks that run again and again or not at all, as ``Loop``, ``If`` and ``Scan``; arrays.

What a block writes of the variables around it comes out of the node, and in a loop also goes into
it again. Arrays of tensors are sequences of ONNX; arrays of sequences have others beside them,
with the lengths of each level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.exporting.builder import Builder, Value, onnx_type
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need
from dpexec.onnx.exporting.values import Values


def _info(name: Value, var: Variable, level: int = 0) -> onnx.ValueInfoProto:
    """Name and type of a variable, without a shape; or, from level 1 on, of its lengths."""
    dtype = onnx.TensorProto.INT64 if level else onnx_type(to_numpy(var.dtype))
    if var.type == VarType.LOD_TENSOR_ARRAY:
        return helper.make_tensor_sequence_value_info(name, dtype, None)
    return helper.make_tensor_value_info(name, dtype, None)


def _empty(g: Builder, var: Variable, level: int = 0) -> Value:
    """The value of a variable that has none yet; or, from level 1 on, its lengths."""
    dtype = np.dtype(np.int64) if level else to_numpy(var.dtype)
    if var.type == VarType.LOD_TENSOR_ARRAY:
        made: Value = g.SequenceEmpty(dtype=onnx_type(dtype))
        return made
    shape = [0] if level else [max(dim, 0) for dim in var.shape]
    made = g.Identity(np.zeros(shape, dtype))
    return made


def _scalar(g: Builder, value: Value) -> Value:
    made: Value = g.Reshape(value, g.constant(np.zeros(0, np.int64)))
    return made


class _Carried:
    """The variables around a block that it writes.

    Args:
        c: the operator that runs the block.
    """

    def __init__(self, c: Call) -> None:
        (body,) = c.op.bodies
        self.c, self.body = c, body
        written = dict.fromkeys([*body._outer_names()[1], *c.op.output_arg_names])
        found = {name: body._find_var_recursive(name) for name in written}
        kinds = (VarType.LOD_TENSOR, VarType.LOD_TENSOR_ARRAY)
        self.variables = {
            name: var for name, var in found.items()
            if var is not None and var.type in kinds and name in body._outer_names()[1]
        }  # fmt: skip

        arrays = [n for n, v in self.variables.items() if v.type == VarType.LOD_TENSOR_ARRAY]
        need(not arrays or c.g.opset >= 14, f"it writes {arrays}, which needs opset 14 or later")

    def before(self, name: str, g: Builder, levels: int | None = None) -> list[Value]:
        """The value of a variable before the block, and its lengths; made up if it has none.

        Args:
            name: the variable.
            g: the graph.
            levels: how many levels of lengths there must be; None for as many as it has.
        """
        var, found = self.variables[name], self.c.values.find(name)
        lengths = list(self.c.values.lengths(name))
        wanted = len(lengths) if levels is None else levels
        first = _empty(g, var) if found is None else found
        return [first, *lengths, *(_empty(g, var, k + 1) for k in range(len(lengths), wanted))]

    def bind(self, results: dict[str, Value], lengths: dict[str, list[Value]]) -> None:
        """Let the variables have what came out of the node."""
        for name, value in results.items():
            self.c.values.bind(name, value, tuple(lengths.get(name, ())))


@exports("while")
def while_(c: Call) -> None:
    """``Loop`` without a limit of rounds."""
    carried = _Carried(c)
    levels = {name: len(c.values.lengths(name)) for name in carried.variables}
    while True:
        body, found = _round(c, carried, levels)
        # Where nothing is written before the loop, the round tells the levels.
        new = {n: k if c.values.find(n) is None else levels[n] for n, k in found.items()}
        if new == levels:
            break
        levels = new
    for name, count in found.items():
        need(count == levels[name], f"{name} has other sequences after a round of its loop")
    g = c.g
    first = [v for name in levels for v in carried.before(name, g, levels[name])]
    made = g.Loop(None, _scalar(g, c["Condition"]), *first, body=body, outputs=len(first))
    made = iter([made] if isinstance(made, str) else made)
    results = {name: [next(made) for _ in range(1 + levels[name])] for name in levels}
    carried.bind({n: v[0] for n, v in results.items()}, {n: v[1:] for n, v in results.items()})


def _round(
    c: Call, carried: _Carried, levels: dict[str, int]
) -> tuple[onnx.GraphProto, dict[str, int]]:
    """The body of a loop, and how many levels of sequences its variables have after a round.

    Args:
        c: the operator.
        carried: the variables.
        levels: how many levels they have before a round.
    """
    inner, values = c.g.inner(), Values(c.values)
    infos, outputs, found = [], [], {}
    for name, count in levels.items():
        entered = [inner.unique(f"{name}/before") for _ in range(1 + count)]
        infos += [_info(each, carried.variables[name], k) for k, each in enumerate(entered)]
        values.bind(name, entered[0], tuple(entered[1:]))
    c.write_block(carried.body, inner, values)
    for name in levels:
        left = [values.find(name) or "", *values.lengths(name)]
        found[name] = len(left) - 1
        outputs += [
            _info(inner.Identity(value), carried.variables[name], k) for k, value in enumerate(left)
        ]
    again = inner.Identity(_scalar(inner, values.find(c.name("Condition")) or ""))
    number, going = inner.unique("round"), inner.unique("going")
    inputs = [
        helper.make_tensor_value_info(number, onnx.TensorProto.INT64, []),
        helper.make_tensor_value_info(going, onnx.TensorProto.BOOL, []),
    ]
    outcome = helper.make_tensor_value_info(again, onnx.TensorProto.BOOL, [])
    graph = helper.make_graph(inner.nodes, "round", [*inputs, *infos], [outcome, *outputs])
    return graph, found


def branches(
    c: Call,
    condition: Value,
    variables: Sequence[Variable],
    write: Sequence[Callable[[Builder], list[list[Value]]]],
) -> list[list[Value]]:
    """``If`` with several results, each a value and the lengths of its sequences.

    Args:
        c: the operator.
        condition: a bool without dimensions.
        variables: of the results, for their types.
        write: the branch for true, and that for false.
    """
    g, made, graphs = c.g, [], []
    inners = [g.inner(), g.inner()]
    made = [each(inner) for each, inner in zip(write, inners, strict=True)]
    levels = [max(map(len, found)) for found in zip(*made, strict=True)]
    for inner, found in zip(inners, made, strict=True):
        infos = []
        for values, count, var in zip(found, levels, variables, strict=True):
            values = [*values, *(_empty(inner, var, k) for k in range(len(values), count))]
            infos += [_info(inner.Identity(value), var, k) for k, value in enumerate(values)]
        graphs.append(helper.make_graph(inner.nodes, "branch", [], infos))
    total = sum(levels)
    flat = g.If(condition, then_branch=graphs[0], else_branch=graphs[1], outputs=total)
    flat = iter([flat] if isinstance(flat, str) else flat)
    return [[next(flat) for _ in range(count)] for count in levels]


@exports("conditional_block", "conditional_block_infer")
def conditional_block(c: Call) -> None:
    """``If``: otherwise variables keep their values."""
    g, carried = c.g, _Carried(c)
    names = [name for name in carried.variables if name in c.needed]
    if not names:
        return
    if c.attr("is_scalar_condition"):
        condition = _scalar(g, c["Cond"])
    else:
        sizes = [g.Greater(g.Size(value), np.array(0, np.int64)) for value in c.all("Cond")]
        condition = sizes[0]
        for size in sizes[1:]:
            condition = g.And(condition, size)

    def run(inner: Builder) -> list[list[Value]]:
        values = Values(c.values)
        c.write_block(carried.body, inner, values)
        return [[values.find(name) or "", *values.lengths(name)] for name in names]

    def keep(inner: Builder) -> list[list[Value]]:
        return [carried.before(name, inner) for name in names]

    made = branches(c, condition, [carried.variables[name] for name in names], [run, keep])
    results = dict(zip(names, made, strict=True))
    carried.bind({n: v[0] for n, v in results.items()}, {n: v[1:] for n, v in results.items()})


@exports("select_input")
def select_input(c: Call) -> None:
    """``If`` for each input but the last."""
    names, out = c.op.inputs["X"], c.op.block._var_recursive(c.name("Out"))
    mask = _scalar(c.g, c["Mask"])

    def chosen(g: Builder, number: int) -> list[Value]:
        name = names[number]
        found = [c.value_of(name), *c.values.lengths(name)]
        if number == len(names) - 1:
            return found
        at = g.Equal(mask, np.array(number, c.dtype("Mask")))
        inside = Call(c.op, g, c.values, c.write_block, c.needed, c.specs)
        both = [lambda _: [found], lambda inner: [chosen(inner, number + 1)]]
        return branches(inside, at, [out], both)[0]

    value, *lengths = chosen(c.g, 0)
    c.set("Out", value, lengths=lengths)


@exports("recurrent")
def recurrent(c: Call) -> None:
    """``Scan`` over the first axis."""
    g, (body,) = c.g, c.op.bodies
    inner, values = g.inner(), Values(c.values)
    inputs, ex_states = c.op.inputs["inputs"], list(c.attr("ex_states") or [])
    entered = []
    for name in [*ex_states, *inputs]:
        value = inner.unique(f"{name}/step")
        entered.append(_info(value, body._var_recursive(name)))
        values.bind(name, value)
    c.write_block(body, inner, values)
    outputs = c.op.outputs["outputs"]
    left = [*(c.attr("states") or []), *outputs]
    infos = []
    for name in left:
        var, value = body._var_recursive(name), inner.Identity(values.find(name) or "")
        sizes = [None] * len(var.shape)  # onnxruntime must know the rank, and may not after a loop
        infos.append(helper.make_tensor_value_info(value, onnx_type(to_numpy(var.dtype)), sizes))
    graph = helper.make_graph(inner.nodes, "step", entered, infos)
    way = [int(bool(c.attr("reverse")))]
    made = g.Scan(
        *c.all("initial_states"), *c.all("inputs"), body=graph, num_scan_inputs=len(inputs),
        scan_input_directions=way * len(inputs), scan_output_directions=way * len(outputs),
        outputs=len(left),
    )  # fmt: skip
    made = [made] if isinstance(made, str) else made
    c.set("outputs", made[len(ex_states) :], lengths=())


@exports("write_to_array", without="tensors and sequences in one array", opset=14)
def write_to_array(c: Call) -> None:
    """``SequenceInsert``, in place of what is at this number already."""
    name = c.name("Out")
    var, found = c.op.block._var_recursive(name), c.values.find(name)
    given = [c["X"], *c.lengths("X")]
    place = _scalar(c.g, c.typed(c["I"], c.dtype("I"), np.int64))
    if found is None:
        made = [c.g.SequenceInsert(_empty(c.g, var, k), value) for k, value in enumerate(given)]
        c.set("Out", made[0], lengths=made[1:])
        return
    arrays = [found, *c.values.lengths(name)]
    need(len(arrays) == len(given), f"its entries have {len(arrays) - 1} and {len(given) - 1} "
         "levels of sequences")  # fmt: skip
    pairs = list(zip(arrays, given, strict=True))
    made = branches(
        c, c.g.Less(place, c.g.SequenceLength(found)), [var],
        [
            lambda inner: [[inner.SequenceInsert(inner.SequenceErase(array, place), value, place)
                            for array, value in pairs]],
            lambda inner: [[inner.SequenceInsert(array, value) for array, value in pairs]],
        ],
    )[0]  # fmt: skip
    c.set("Out", made[0], lengths=made[1:])


@exports("read_from_array")
def read_from_array(c: Call) -> None:
    """``SequenceAt``."""
    place = _scalar(c.g, c.typed(c["I"], c.dtype("I"), np.int64))
    made = [c.g.SequenceAt(array, place) for array in (c["X"], *c.lengths("X"))]
    c.set("Out", made[0], lengths=made[1:])


@exports("lod_array_length")
def lod_array_length(c: Call) -> None:
    """``SequenceLength``."""
    array = c.get("X") if c.values.find(c.name("X")) is not None else None
    made = c.g.ints(0) if array is None else c.g.reshape(c.g.SequenceLength(array), 1)
    c.set("Out", made, lengths=())


@exports("tensor_array_to_tensor", without="the sizes of the entries")
def tensor_array_to_tensor(c: Call) -> None:
    """``ConcatFromSequence``."""
    need(not c.wants("OutIndex"), "the sizes of the entries are wanted")
    new = int(bool(c.attr("use_stack")))
    made = c.g.ConcatFromSequence(c["X"], axis=c.attr("axis"), new_axis=new)
    c.set("Out", made, lengths=())


@exports("select_output")
def select_output(c: Call) -> None:
    """The value for all: only the one that is selected is read."""
    c.set("Out", [c["X"]] * len(c.op.outputs["Out"]))


@exports("split_lod_tensor", without="sequences")
def split_lod_tensor(c: Call) -> None:
    """``Compress`` of the rows for which the mask holds, and of the others."""
    g = c.g
    need(not c.lengths("X"), "its input has sequences")
    mask = g.reshape(c["Mask"], -1)
    c.set("OutTrue", g.Compress(c["X"], mask, axis=0), lengths=())
    c.set("OutFalse", g.Compress(c["X"], g.Not(mask), axis=0), lengths=())


@exports("merge_lod_tensor", "merge_lod_tensor_infer", without="sequences")
def merge_lod_tensor(c: Call) -> None:
    """``Gather`` of the rows of both parts to their places."""
    g, first = c.g, np.array(0, np.int64)
    need(not c.lengths("InTrue") and not c.lengths("InFalse"), "its inputs have sequences")
    mask = g.reshape(c["Mask"], -1)
    yes, no = (g.cast(each, np.int64) for each in (mask, g.Not(mask)))
    behind = g.Add(g.CumSum(no, first, exclusive=1), g.reduce("ReduceSum", yes, None))
    index = g.Where(mask, g.CumSum(yes, first, exclusive=1), behind)
    c.set("Out", g.Gather(g.Concat(c["InTrue"], c["InFalse"], axis=0), index), lengths=())
