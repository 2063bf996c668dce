"""``Slice``, ``Split``, ``Concat``, ``Pad``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dims import OpenDim
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node

_LARGEST = 2**31 - 1


@operator("Slice")
def slice_(node: Node) -> Any:
    """Attributes before version 10, inputs since; a batch may tell where slices begin and end."""
    starts, ends = node.sizes(1, "starts"), node.sizes(2, "ends")
    steps = node.integers(4, "steps")
    if starts is None or ends is None:
        return _slice_by_tensors(node)
    axes = node.integers(3, "axes") or list(range(len(starts)))
    rank = node.value(0).rank
    axes = [axis + rank if axis < 0 else axis for axis in axes]
    steps = steps or [1] * len(axes)
    dims = node.dims(0)
    if all(isinstance(v, int) for v in (*starts, *ends)):
        clipped = [_clipped(*part) for part in zip(starts, ends, steps, [dims[a] for a in axes],
                                                    strict=True)]  # fmt: skip
        gone = [a for a, (start, end, _) in zip(axes, clipped, strict=True)
                if isinstance(dims[a], int) and start == end]  # fmt: skip
        if gone:
            return _nothing(node, gone)
        kept = [i for i, part in enumerate(clipped) if not _is_whole(part, dims[axes[i]])]
        if not kept:
            return node.value(0)
        axes, clipped = [axes[i] for i in kept], [clipped[i] for i in kept]
        starts, ends, steps = ([part[i] for part in clipped] for i in range(3))
    op_type = "slice" if all(step == 1 for step in steps) else "strided_slice"
    attrs: dict[str, Any] = {"axes": axes}
    inputs: dict[str, Any] = {"Input": node.var(0)}
    for name, values in (("starts", starts), ("ends", ends)):
        inside = [v if isinstance(v, OpenDim) else max(-_LARGEST, min(v, _LARGEST)) for v in values]
        attrs[name], inputs[f"{name.title()}TensorList"] = node.builder.mixed(inside)
    if op_type == "strided_slice":
        attrs["strides"] = steps
    attrs["infer_flags"] = [
        -1 if OpenDim in map(type, pair) else 1 for pair in zip(starts, ends, strict=True)
    ]
    return node.add(op_type, inputs, **attrs)


def _nothing(node: Node, axes: list[int]) -> np.ndarray[Any, Any]:
    """A tensor without elements, which a concatenation leaves out; its open sizes are 1."""
    sizes = [1 if isinstance(size, OpenDim) else size for size in node.dims(0)]
    for axis in axes:
        sizes[axis] = 0
    return np.zeros(sizes, to_numpy(node.value(0).dtype))


def _is_whole(part: tuple[int, int, int], size: Any) -> bool:
    """Whether a part is all of an axis for certain."""
    return part == (0, _LARGEST if isinstance(size, OpenDim) else size, 1)


def _clipped(start: int, end: int, step: int, size: Any) -> tuple[int, int, int]:
    """A part of an axis with ends inside of it, if its size is known."""
    if isinstance(size, OpenDim):
        start, end = (max(-_LARGEST, min(v, _LARGEST)) for v in (start, end))
        return start, end, step
    part = range(size)[start:end:step]
    if step > 0 or not len(part):
        return part.start, max(part.stop, part.start), abs(step)
    return part.start, part.stop if part.stop >= 0 else -size - 1, step


def _slice_by_tensors(node: Node) -> Any:
    """A run tells the places, for axes that are known."""
    starts, ends = node.var(1), node.var(2)
    axes, rank = node.integers(3, "axes"), node.value(0).rank
    if axes is None:
        count = max(starts.shape[0], ends.shape[0])
        if count < 0 and rank > 1:
            node.fail("how many axes it cuts is known in a run only")
        axes = list(range(max(count, 1)))
    if any(step != 1 for step in node.integers(4, "steps") or [1]):
        for index, what in ((1, "starts"), (2, "ends")):
            node.constant(index, what)
    inputs = {"Input": node.var(0)}
    for name, var in (("StartsTensor", starts), ("EndsTensor", ends)):
        limits = [node.number(sign * _LARGEST, var.dtype) for sign in (-1, 1)]
        inside = node.binary("elementwise_max", var, limits[0])
        inside = node.binary("elementwise_min", inside, limits[1])
        inputs[name] = node.cast(inside, VarType.INT32)
    count = len(axes)
    axes = [axis + rank if axis < 0 else axis for axis in axes]
    made = node.add(  # fluid's slice refuses to leave nothing, which ONNX allows
        "strided_slice", inputs, axes=axes, starts=[-1] * count, ends=[-1] * count,
        strides=[1] * count, infer_flags=[-1] * count,
    )  # fmt: skip
    (base, first), (other, last) = _moved(starts), _moved(ends)
    if count == 1 and base == other and last > first:  # x[i : i + 1] has one element
        shape = list(made.shape)
        shape[axes[0]] = int(last - first)
        made.desc.set_shape(shape)
    return made


def _moved(var: Variable) -> tuple[str, float]:
    """The variable that numbers were added to, by name, and their sum."""
    total = 0.0
    for op in reversed(var.block.ops):
        if var.name not in op.output_arg_names:
            continue
        added = op.attrs.get("bias", 0.0) if op.type == "scale" else None
        if op.type == "elementwise_add":
            added = _filled(var.block._var_recursive(op.inputs["Y"][0]))
        if added is None or op.attrs.get("scale", 1.0) != 1.0:
            break
        total += added
        var = var.block._var_recursive(op.inputs["X"][0])
    return var.name, total


def _filled(var: Variable) -> float | None:
    """The number that a variable is filled with; None if it is no constant."""
    found = [op for op in var.block.ops if var.name in op.output_arg_names]
    constant = len(found) == 1 and found[0].type == "fill_constant"
    return float(found[0].attrs["value"]) if constant else None


@operator("Split")
def split(node: Node) -> Any:
    """Into parts of given sizes, or of equal ones, the last of which may be smaller."""
    axis, count = node.axis(0), len(node.outputs)
    sizes, size = node.integers(1, "split"), node.dims(0)[axis]
    if sizes is None and isinstance(size, OpenDim):
        attrs: dict[str, Any] = {"num": count}
    else:
        if sizes is None:
            step = -(-size // count)
            sizes = [min(step, max(size - i * step, 0)) for i in range(count)]
        attrs = {"sections": sizes}
    if count == 1:
        return node.value(0)
    made = node.builder.add(
        "split", {"X": node.var(0)}, {"axis": axis, **attrs}, prefix=node.prefix, many=count
    )
    return made["Out"]


@operator("Concat")
def concat(node: Node) -> Any:
    """Joins tensors along an axis."""
    sizes = [node.value(i).shape for i in range(len(node.inputs))]
    axis = node.axis(1 if node.version < 4 else 0)
    filled = [number for number, shape in enumerate(sizes) if shape[axis] != 0]
    if len(filled) == 1:
        return node.value(filled[0])
    parts = [node.var(number) for number in filled or range(len(node.inputs))]
    return node.add("concat", {"X": parts}, axis=axis)


@operator("Pad")
def pad(node: Node) -> Any:
    """With a number, or with elements of the tensor; negative counts cut off."""
    counts = list(node.attrs["pads"]) if "pads" in node.attrs else node.sizes_of_run(1, "pads")
    if not counts:
        node.fail("pads are missing")
    axes, rank = node.integers(3, "axes"), node.value(0).rank
    axes = [a + rank if a < 0 else a for a in axes] if axes is not None else list(range(rank))
    mode, n = node.attr("mode", "constant"), len(axes)
    sides = dict(zip(axes, zip(counts[:n], counts[n:], strict=True), strict=True))
    x = node.var(0)
    if any(isinstance(count, OpenDim) for count in counts):
        if mode != "constant":
            node.constant(1, "pads")
        return _with_counts_of_run(node, x, sides)
    for axis, (before, after) in sides.items():
        if before < 0 or after < 0:
            end = -max(-after, 0) or _LARGEST
            x = node.slice(x, axis, max(-before, 0), end)
    sides = {axis: (max(b, 0), max(e, 0)) for axis, (b, e) in sides.items()}
    if mode == "constant":
        return _with_number(node, x, [sides.get(axis, (0, 0)) for axis in range(rank)])
    for axis, around in sides.items():
        if any(around):
            x = _with_elements(node, x, axis, around, mode)
    return x


def _with_counts_of_run(node: Node, x: Variable, sides: Mapping[int, tuple[Any, Any]]) -> Variable:
    """A number before and after; a run tells how often, which must not be negative."""
    dims = node.dims(0)
    value = _number(node)
    for axis, counts in sides.items():
        made = [x]
        for side, count in enumerate(counts):
            if not isinstance(count, OpenDim) and count <= 0:
                if count < 0:
                    node.constant(1, "pads")
                continue
            shape, variables = node.builder.mixed([*dims[:axis], count, *dims[axis + 1 :]])
            block = node.add("fill_constant", {"ShapeTensorList": variables}, shape=shape,
                             value=value, dtype=int(x.dtype))  # fmt: skip
            made.insert(0 if side == 0 else len(made), block)
        x = node.concat(made, axis)
        if len(made) > 1:
            dims = [*dims[:axis], node.builder.open_dim(x, axis), *dims[axis + 1 :]]
    return x


def _number(node: Node) -> float:
    """The number to pad with."""
    if node.input(2) is None:
        return float(node.attr("value", 0.0))
    found = node.constant(2, "the value")
    assert found is not None
    return float(found.reshape(-1)[0])


def _with_number(node: Node, x: Variable, sides: list[tuple[int, int]]) -> Variable:
    if not any(map(any, sides)):
        return x
    paddings = [n for side in sides for n in side]
    return node.add("pad", {"X": x}, paddings=paddings, pad_value=_number(node))


def _with_elements(
    node: Node, x: Variable, axis: int, around: tuple[int, int], mode: str
) -> Variable:
    size = x.shape[axis]
    if size < 0:
        index = _places_of_run(node, x, axis, around, mode)
    else:
        places = np.pad(np.arange(size), around, mode=mode)  # type: ignore[call-overload]
        index = node.builder.constant(places)
    return node.add("index_select", {"X": x, "Index": index}, dim=axis)


def _places_of_run(
    node: Node, x: Variable, axis: int, around: tuple[int, int], mode: str
) -> Variable:
    """The elements that an axis of open size has after padding, by their places before it."""
    long, (before, after) = VarType.INT64, around
    size = node.builder.size_variable(node.builder.open_dim(x, axis))
    given = {"Start": node.number(-before, long), "End": node.scaled(size, bias=after),
             "Step": node.number(1, long)}  # fmt: skip
    places, last = node.add("range", given), node.scaled(size, bias=-1.0)
    if mode == "wrap":
        rest = node.binary("elementwise_mod", places, size)  # with the sign of the place
        positive = node.binary("elementwise_add", rest, size)
        return node.binary("elementwise_mod", positive, size)
    if mode == "edge":
        inside = node.binary("elementwise_max", places, node.number(0, long))
        return node.binary("elementwise_min", inside, last)
    if mode != "reflect":
        node.fail(f"mode {mode!r} is unknown")
    places = node.add("abs", {"X": places})
    beyond = node.add("abs", {"X": node.binary("elementwise_sub", last, places)})
    return node.binary("elementwise_sub", last, beyond)
