"""Shapes and orders: ``Reshape``, ``Squeeze``, ``Transpose``, ``DepthToSpace`` and the like."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.dtypes import as_var_type as type_of_array
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dims import OpenDim
from dpexec.onnx.loading.dtypes import as_var_type
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node, common_dims, is_one


@operator("Constant")
def constant(node: Node) -> Any:
    """A tensor that the node holds in one of several attributes."""
    for name, dtype in (("float", np.float32), ("int", np.int64)):
        for found in (node.attr(f"value_{name}"), node.attr(f"value_{name}s")):
            if found is not None:
                return np.array(found, dtype)
    node.fail("programs have tensors of numbers only")


@operator("Identity")
def identity(node: Node) -> Any:
    """The same tensor under another name."""
    return node.value(0)


@operator("Shape")
def shape(node: Node) -> Any:
    """Known sizes are numbers; operators tell the others where something needs them."""
    dims = node.dims(0)[slice(node.attr("start", 0), node.attr("end"))]
    known = all(isinstance(size, int) for size in dims)
    return np.array(dims, np.int64 if known else object)


@operator("Reshape")
def reshape(node: Node) -> Any:
    """A size of 0 is that of the input; -1 is what is left."""
    x, old = node.var(0), node.dims(0)
    dims = node.sizes(1, "shape")
    if dims is None:
        return _reshape_by_tensor(node)
    if not node.attr("allowzero", 0):
        dims = [old[i] if not isinstance(d, OpenDim) and d == 0 else d for i, d in enumerate(dims)]
    return node.result(node.reshape(x, dims, old), not dims)


def _reshape_by_tensor(node: Node) -> Any:
    """A run tells the shape; how many dimensions it has is known."""
    to = node.var(1)
    if len(to.shape) != 1 or to.shape[0] < 0 or node.attr("allowzero", 0):
        node.constant(1, "shape")
    attrs: dict[str, Any] = {"shape": [-1] * to.shape[0]}
    inputs = {"X": node.var(0), "Shape": node.cast(to, VarType.INT32)}
    return node.add("reshape2", inputs, **attrs)


@operator("Flatten")
def flatten(node: Node) -> Any:
    """Two dimensions: what is before an axis, and the rest."""
    rank = node.value(0).rank
    if rank < 2:
        rows = 1 if not rank or node.axis(1) == 0 else -1
        return node.reshape(node.var(0), [rows, -1 if rows == 1 else 1], node.dims(0))
    return node.add("flatten2", {"X": node.var(0)}, axis=node.axis(1))


@operator("Squeeze")
def squeeze(node: Node) -> Any:
    """Without axes, all dimensions of 1 are removed."""
    axes, dims = node.integers(1, "axes"), node.dims(0)
    if axes is None:
        if any(isinstance(size, OpenDim) for size in dims):
            node.fail("without axes, all sizes must be known")
        axes = [i for i, size in enumerate(dims) if size == 1]
    axes = [axis + len(dims) if axis < 0 else axis for axis in axes]
    return node.result(node.squeeze(node.var(0), axes), len(axes) == len(dims))


@operator("Unsqueeze")
def unsqueeze(node: Node) -> Any:
    """Axes count in the result."""
    axes = node.integers(1, "axes") or []
    value = node.value(0)
    rank = value.rank + len(axes)
    axes = sorted(axis + rank if axis < 0 else axis for axis in axes)
    if value.scalar:
        axes = axes[1:]  # its variable has one dimension already
    if not axes:
        return node.result(node.var(0), not rank)
    return node.unsqueeze(node.var(0), axes)


@operator("Transpose")
def transpose(node: Node) -> Any:
    """Reverses the axes by default."""
    rank = node.value(0).rank
    order = node.attr("perm", list(range(rank))[::-1])
    return node.transpose(node.var(0), order) if rank > 1 else node.value(0)


@operator("Expand")
def expand(node: Node) -> Any:
    """Both the tensor and the shape are broadcast."""
    old, wanted = node.dims(0), node.sizes(1, "shape")
    if wanted is not None:
        common = common_dims([old, wanted])
        made = node.expand(node.var(0), old, common)
        return node.result(_grown(node, made, [1] * (len(common) - len(old)) + old, wanted, common),
                           not common)  # fmt: skip
    to, x = node.var(1), node.var(0)
    own = x.dtype
    attrs: dict[str, Any] = {
        "shape": [-1] * to.shape[0],
        "dtype": VarType.FP32 if own == VarType.BOOL else own,
    }
    shape = {"ShapeTensor": node.cast(to, VarType.INT32)}
    ones = node.add("fill_constant", shape, value=1.0, **attrs)
    return node.cast(node.binary("elementwise_mul", node.cast(x, ones.dtype), ones), own)


def _grown(
    node: Node, x: Variable, old: list[Any], wanted: list[Any], common: list[Any]
) -> Variable:
    """A tensor whose open dimensions are repeated if a run finds 1 where more is wanted."""
    times: list[Any] = [1] * len(old)
    for axis, size in enumerate(wanted, len(old) - len(wanted)):
        if isinstance(old[axis], OpenDim) and not is_one(size) and not old[axis].same(size):
            times[axis] = (size // old[axis]).at_least(1)
    if all(is_one(count) for count in times):
        return x
    numbers, variables = node.builder.mixed(times)
    made = node.add("expand", {"X": x, "expand_times_tensor": variables}, expand_times=numbers)
    known = [
        isinstance(a, OpenDim) and isinstance(b, int) for a, b in zip(old, common, strict=True)
    ]
    return node.reshape(made, common) if any(known) else made


@operator("Tile")
def tile(node: Node) -> Any:
    """Repeats a tensor along its axes."""
    numbers, variables = node.builder.mixed(node.sizes_of_run(1, "repeats"))
    if not numbers:
        return node.value(0)
    inputs = {"X": node.var(0), "expand_times_tensor": variables}
    return node.add("expand", inputs, expand_times=numbers)


@operator("ConstantOfShape")
def constant_of_shape(node: Node) -> Any:
    """A tensor of one number, of a shape that a batch tells."""
    value = np.asarray(node.attr("value", np.zeros(1, np.float32))).reshape(-1)[0]
    dims, dtype = node.sizes(0, "shape"), type_of_array(value.dtype)
    attrs: dict[str, Any] = {"value": float(value), "dtype": dtype}
    if dims is None:
        to = node.var(0)
        attrs["shape"] = [-1] * to.shape[0]
        return node.add("fill_constant", {"ShapeTensor": node.cast(to, VarType.INT32)}, **attrs)
    numbers, variables = node.builder.mixed(dims)
    return node.add("fill_constant", {"ShapeTensorList": variables}, shape=numbers, **attrs)


@operator("Range")
def arange(node: Node) -> Any:
    """Numbers from the first to before the last, which a batch tells."""
    names = ("Start", "End", "Step")
    made = node.add("range", {name: node.var(i) for i, name in enumerate(names)})
    return node.result(made)


@operator("EyeLike")
def eye_like(node: Node) -> Any:
    """Ones on a diagonal."""
    rows, columns = node.value(0).shape
    if rows < 0 or columns < 0:
        node.fail("the sizes of its input must be known")
    made = np.eye(rows, columns, node.attr("k", 0), np.float32)
    dtype = node.value(0).dtype
    if "dtype" in node.attrs:
        dtype = as_var_type(node.attrs["dtype"], "its result")
    return node.cast(node.builder.constant(made), dtype)


@operator("Trilu")
def triangle(node: Node) -> Any:
    """The upper or the lower triangle of the last two dimensions."""
    k = node.constant(1, "k")
    diagonal = 0 if k is None else int(k.reshape(-1)[0])
    x, (rows, columns) = node.var(0), node.dims(0)[-2:]
    upper = bool(node.attr("upper", 1))
    if isinstance(rows, OpenDim) or isinstance(columns, OpenDim):
        return node.add("tril_triu", {"X": x}, diagonal=diagonal, lower=not upper)
    ones = np.ones((rows, columns), bool)
    kept = np.triu(ones, diagonal) if upper else np.tril(ones, diagonal)
    mask = node.builder.constant(kept, "triangle")
    mask = node.expand(mask, [rows, columns], node.dims(0))
    zeros = node.add("fill_zeros_like", {"X": x})
    return node.add("where", {"Condition": mask, "X": x, "Y": zeros})


@operator("DepthToSpace")
def depth_to_space(node: Node) -> Any:
    """Channels become rows and columns of blocks."""
    batch, channels, height, width = node.dims(0)
    size, x = node.attr("blocksize"), node.var(0)
    depth = channels // (size * size)
    if node.attr("mode", "DCR") == "CRD":
        return node.add("pixel_shuffle", {"X": x}, upscale_factor=size)
    made = node.reshape(x, [batch, size, size, depth, height, width], [batch])
    made = node.transpose(made, [0, 3, 4, 1, 5, 2])
    return node.reshape(made, [batch, depth, height * size, width * size], [batch])


@operator("SpaceToDepth")
def space_to_depth(node: Node) -> Any:
    """Rows and columns of blocks become channels."""
    batch, channels, height, width = node.dims(0)
    size, x = node.attr("blocksize"), node.var(0)
    rows, columns = height // size, width // size
    made = node.reshape(x, [batch, channels, rows, size, columns, size], [batch])
    crd = node.attr("mode", "DCR") == "CRD"
    made = node.transpose(made, [0, 1, 3, 5, 2, 4] if crd else [0, 3, 5, 1, 2, 4])
    return node.reshape(made, [batch, channels * size * size, rows, columns], [batch])
