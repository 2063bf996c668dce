"""Sequences of tensors, and optional values.

A sequence is a list of tensors, or an array of the program if only a run tells how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dims import OpenDim
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.values import Value

_NOTHING = Value("an empty part", np.zeros(0, np.float32))
"""Stands for a part without elements, of whatever shape."""


def is_array(var: Variable | None) -> bool:
    """Whether a variable is an array of tensors."""
    return var is not None and var.type == VarType.LOD_TENSOR_ARRAY


def array_of(node: Node, value: Value) -> Variable:
    """An array of the program with the tensors of a sequence."""
    if value.items is None:
        assert value.var is not None
        return value.var
    made = node.builder.fresh(f"{node.prefix}.array", type=VarType.LOD_TENSOR_ARRAY)
    for number, item in enumerate(value.items):
        _append(node, made, item, node.number(number, VarType.INT64))
    return made


def _append(node: Node, array: Variable, value: Value, place: Variable) -> None:
    var = node.builder.variable(value)
    array.desc.set_dtype(var.dtype)
    node.builder.add(
        "write_to_array", {"X": var, "I": place}, prefix=node.prefix, outputs={"Out": array}
    )


def require_appended(node: Node, body: Any, name: str) -> None:
    """Refuse a loop that does anything to a sequence but reading it, and then appending to it.

    The sequence is one array of the program, which is changed in place.
    """
    users = [n for n in body.node if name in (*n.input, *(w.array for w in writes_of(n)))]
    for user in users[:-1]:
        if user.op_type not in ("SequenceAt", "SequenceLength"):
            node.fail(f"its body has several uses of the sequence {name}")
    for user in users[-1:]:
        for written, write in zip(user.output, writes_of(user), strict=False):
            if write.array == name:
                require_appended(node, body, written)


class Write(NamedTuple):
    """What a node writes into a sequence: names of the sequence, the tensor, and its place.

    At the place it replaces a tensor; without one, it is appended.
    """

    array: str
    tensor: str
    place: str = ""


def writes_of(proto: Any) -> list[Write]:
    """What a node writes into sequences, one for each output; none for most nodes."""
    if proto.op_type == "SequenceInsert":
        return [Write(*proto.input)]
    if proto.op_type != "If":
        return []
    graphs = {attribute.name: attribute.g for attribute in proto.attribute}
    return writes_either_way(graphs["then_branch"], graphs["else_branch"])


def writes_either_way(first: Any, second: Any) -> list[Write]:
    """What both branches of an ``If`` write, one for each output; none for most branches.

    The first one replaces a tensor of a sequence, by ``SequenceErase`` and ``SequenceInsert`` at
    the same place; the second one appends the same tensor.
    """
    replaced, appended = _inserted(first), _inserted(second)
    same = [write._replace(place="") for write in replaced] == appended
    return replaced if same and all(write.place for write in replaced) else []


def _inserted(graph: Any) -> list[Write]:
    """What a branch inserts into sequences, one for each output, if it does nothing else."""
    made = {proto.output[0]: proto for proto in graph.node}
    found = []
    for info in graph.output:
        proto = made.get(info.name)
        while proto is not None and proto.op_type == "Identity":
            proto = made.get(proto.input[0])
        if proto is None or proto.op_type != "SequenceInsert" or proto.input[1] in made:
            return []
        write = Write(*proto.input)
        erased = made.get(write.array)
        if erased is not None:
            if erased.op_type != "SequenceErase" or list(erased.input[1:]) != [write.place]:
                return []
            write = write._replace(array=erased.input[0])
        elif write.place:
            return []
        found.append(write)
    return found


def write_either_way(node: Node, writes: Sequence[Write]) -> list[Value]:
    """Write tensors into arrays: at a place if a condition holds, else at the end."""
    made = []
    chosen = node.cast(node.var(0), VarType.INT64)
    for name, write in zip(node.outputs, writes, strict=True):
        source, tensor, place = (node.graph.values[each] for each in write)
        array = array_of(node, source)
        end = node.add("lod_array_length", {"X": array})
        back = node.binary(
            "elementwise_sub", node.cast(node.builder.variable(place), VarType.INT64), end
        )
        moved = node.binary("elementwise_mul", back, chosen)
        _append(node, array, tensor, node.binary("elementwise_add", end, moved))
        made.append(Value(name, None, array, tensor.scalar))
    return made


def _items(node: Node, index: int = 0) -> list[Value]:
    found = node.value(index).items
    if found is None:
        node.fail("its input is no sequence whose tensors are known")
    return found


def _place(node: Node, index: int, default: int) -> int:
    found = node.constant(index, "the position")
    return default if found is None else int(found.reshape(-1)[0])


@operator("SequenceConstruct", "SequenceEmpty")
def construct(node: Node) -> Any:
    """A sequence of the inputs."""
    return Value(node.outputs[0], items=[node.value(i) for i in range(len(node.inputs))])


@operator("SequenceInsert")
def insert(node: Node) -> Any:
    """At the end by default."""
    array = node.value(0).var
    if array is not None and is_array(array):
        if node.input(2) is not None:
            node.fail("it inserts into a sequence of unknown length, but not at its end")
        length = node.add("lod_array_length", {"X": array})
        _append(node, array, node.value(1), length)
        return Value(node.outputs[0], None, array, node.value(1).scalar)
    items = list(_items(node))
    items.insert(_place(node, 2, len(items)), node.value(1))
    return Value(node.outputs[0], items=items)


@operator("SequenceErase")
def erase(node: Node) -> Any:
    """The last one by default."""
    items = list(_items(node))
    del items[_place(node, 1, -1)]
    return Value(node.outputs[0], items=items)


@operator("SequenceAt")
def at(node: Node) -> Any:
    """One of its tensors."""
    array = node.value(0).var
    if array is not None and is_array(array):
        made = node.add("read_from_array", {"X": array, "I": _from_front(node, array)})
        return node.result(made, node.value(0).scalar)
    found = _items(node)[_place(node, 1, 0)]
    if found is _NOTHING:
        node.fail("it reads an empty part, and programs have no empty tensors")
    return found


def _from_front(node: Node, array: Variable) -> Variable:
    """The position of a tensor, counted from the first one."""
    known = node.known(1)
    place = node.cast(node.var(1), VarType.INT64)
    if known is None or int(known.reshape(-1)[0]) >= 0:
        return place
    return node.binary("elementwise_add", node.add("lod_array_length", {"X": array}), place)


@operator("SequenceLength")
def length(node: Node) -> Any:
    """The number of tensors."""
    array = node.value(0).var
    if is_array(array):
        return node.result(node.add("lod_array_length", {"X": array}), True)
    return np.array(len(_items(node)), np.int64)


@operator("ConcatFromSequence")
def concat(node: Node) -> Any:
    """Joins all tensors of a sequence along an axis, which may be new."""
    array, axis = node.value(0).var, node.attrs["axis"]
    if is_array(array):
        new = bool(node.attr("new_axis", 0)) and not node.value(0).scalar
        return node.add("tensor_array_to_tensor", {"X": array}, axis=axis, use_stack=new)
    items = [item for item in _items(node) if item is not _NOTHING]
    variables = [node.builder.variable(item) for item in items]
    if node.attr("new_axis", 0):
        if items[0].scalar:
            return node.concat(variables, 0)
        rank = items[0].rank + 1
        return node.add("stack", {"X": variables}, "Y", axis=axis + rank if axis < 0 else axis)
    return node.concat(variables, axis + items[0].rank if axis < 0 else axis)


@operator("SplitToSequence")
def split(node: Node) -> Any:
    """Parts of a size, or of given sizes; single rows by default."""
    axis, size = node.axis(0), node.dims(0)[node.axis(0)]
    if isinstance(size, OpenDim):
        node.fail("the size of its axis must be known when the model is loaded")
    given = node.constant(1, "split")
    if given is not None and given.ndim:
        sizes = [int(v) for v in given]
    else:
        step = 1 if given is None else int(given)
        sizes = [min(step, size - start) for start in range(0, size, step)]
    items, start = [], 0
    for i, part in enumerate(sizes):
        if part == 0:  # PyTorch's chunk: the last ones of parts that do not divide an axis
            items.append(_NOTHING)
            continue
        var = node.slice(node.var(0), axis, start, start + part)
        scalar = False
        if given is None and not node.attr("keepdims", 1):
            var, scalar = node.squeeze(var, [axis]), node.value(0).rank == 1
        items.append(Value(f"{node.outputs[0]}.{i}", None, var, scalar))
        start += part
    return Value(node.outputs[0], items=items)


@operator("Optional", "OptionalGetElement")
def optional(node: Node) -> Any:
    """The value itself, which must be there."""
    return node.value(0)


@operator("OptionalHasElement")
def has_element(node: Node) -> Any:
    """Whether the input is given."""
    return np.array(node.input(0) is not None)
