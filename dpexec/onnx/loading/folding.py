"""Computes values that are known when a model is loaded: constants, and shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from dpexec.onnx.loading.dims import OpenDim, UnknownNumberError, has_open
from dpexec.onnx.loading.errors import DAMAGE, NotConstantError

__all__ = ["fold", "fold_open"]

_NEVER = {
    "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli",
    "Multinomial", "Dropout", "If", "Loop", "Scan", "SequenceEmpty", "SequenceConstruct",
}  # fmt: skip
_OLDEST = {"DequantizeLinear": 19, "QuantizeLinear": 19}
"""The oldest version that onnx computes of operators that mean the same in those before."""
_LARGEST = 1 << 24  # elements


def fold(proto: Any, inputs: Sequence[Any], version: int) -> list[Any] | None:
    """The outputs of a node whose inputs are all known; None if the program must compute them.

    Args:
        proto: ``onnx.NodeProto`` of ONNX's own domain.
        inputs: arrays; None for inputs that are left out.
        version: version of the domain.
    """
    if proto.op_type in _NEVER or any(a.type == onnx.AttributeProto.GRAPH for a in proto.attribute):
        return None
    names = [name for name in proto.input if name]
    ports = [onnx.helper.make_tensor_value_info(n, 0, None) for n in names]
    results = [onnx.helper.make_tensor_value_info(n, 0, None) for n in proto.output if n]
    graph = onnx.helper.make_graph([proto], "constants", ports, results)
    opset = [onnx.helper.make_opsetid("", max(version, _OLDEST.get(proto.op_type, 0)))]
    model = onnx.helper.make_model(graph, opset_imports=opset)
    feeds = {name: a for name, a in zip(proto.input, inputs, strict=True) if name}
    try:
        with np.errstate(all="ignore"):
            made = ReferenceEvaluator(model).run(None, feeds)
    except (NotImplementedError, RuntimeError, MemoryError, *DAMAGE):
        return None  # onnx has no reference for it: the program computes it
    found = dict(zip((n for n in proto.output if n), made, strict=True))
    arrays = [found.get(name) for name in proto.output]
    plain = all(a is None or (isinstance(a, (np.ndarray, np.generic))) for a in arrays)
    if not plain or any(a is not None and a.size > _LARGEST for a in arrays):
        return None
    return [None if a is None else np.asarray(a) for a in arrays]


# ---- shapes with open sizes


def _gather(node: Any, data: Any, index: Any) -> Any:
    return _objects(np.take(data, index.astype(np.int64), axis=node.attr("axis", 0)))


def _slice(node: Any, data: Any, *rest: Any) -> Any:
    starts = node.integers(1, "starts")
    ends = node.integers(2, "ends")
    axes = node.integers(3, "axes") or list(range(len(starts)))
    steps = node.integers(4, "steps") or [1] * len(starts)
    where = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        where[axis] = slice(start, None if step < 0 and end < -data.shape[axis] else end, step)
    return data[tuple(where)]


def _squeeze(node: Any, data: Any, *rest: Any) -> Any:
    axes = node.integers(1, "axes")
    return data.squeeze() if axes is None else data.squeeze(tuple(axes))


def _unsqueeze(node: Any, data: Any, *rest: Any) -> Any:
    return np.expand_dims(data, tuple(node.integers(1, "axes")))


def _reshape(node: Any, data: Any, shape: Any) -> Any:
    return data.reshape([int(v) for v in shape])


def _concat(node: Any, *parts: Any) -> Any:
    return np.concatenate([part.astype(object) for part in parts], node.attr("axis", 0))


def _split(node: Any, data: Any, *rest: Any) -> Any:
    sizes = node.integers(1, "split")
    count = len(node.outputs)
    cuts = count if sizes is None else np.cumsum(sizes)[:-1]
    return [_objects(part) for part in np.split(data, cuts, node.attr("axis", 0))]


def _cast(node: Any, data: Any, *rest: Any) -> Any:
    integers = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
    return data if node.attr("to") in integers else None


def _equal(node: Any, left: Any, right: Any) -> Any:
    pairs = np.broadcast(left, right)
    return np.array([bool(a == b) for a, b in pairs], bool).reshape(pairs.shape)


def _where(node: Any, chosen: Any, left: Any, right: Any) -> Any:
    return None if has_open(chosen) else np.where(chosen, _objects(left), _objects(right))


def _product(node: Any, data: Any, *rest: Any) -> Any:
    if data.ndim != 1:
        return None
    total: Any = 1
    for size in data.tolist():
        total = total * size
    kept = node.attr("keepdims", 1)
    return _objects(np.array([total], object) if kept else np.array(total, object))


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def compute(node: Any, left: Any, right: Any) -> Any:
        integers = all(a.dtype == object or a.dtype.kind in "iu" for a in (left, right))
        return _objects(function(_objects(left), _objects(right))) if integers else None

    return compute


_OPEN: dict[str, Callable[..., Any]] = {
    "Add": _arithmetic(np.add),
    "Sub": _arithmetic(np.subtract),
    "Mul": _arithmetic(np.multiply),
    "Div": _arithmetic(np.floor_divide),
    "Mod": _arithmetic(np.mod),
    "Cast": _cast,
    "Concat": _concat,
    "Equal": _equal,
    "Gather": _gather,
    "Identity": lambda node, data: data,
    "ReduceProd": _product,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": lambda node, data: data.transpose(node.attr("perm")),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}


def _objects(array: Any) -> Any:
    """An array of Python integers and open sizes."""
    made = np.asarray(array, object)
    return made


def fold_open(node: Any, inputs: Sequence[Any]) -> list[np.ndarray[Any, Any]] | None:
    """The outputs of a node on arrays with open sizes; None if operators must compute them.

    Args:
        node: the :class:`~dpexec.onnx.loading.node.Node`.
        inputs: arrays; None for inputs that are left out.
    """
    compute = _OPEN.get(node.op_type)
    if compute is None:
        return None
    try:
        made = compute(node, *(a for a in inputs if a is not None))
    except (UnknownNumberError, NotConstantError):
        return None  # known numbers are cut at an open size, for instance
    if made is None:
        return None
    return [_settled(a) for a in (made if isinstance(made, list) else [made])]


def _settled(array: Any) -> np.ndarray[Any, Any]:
    """An array of integers if no size in it is open."""
    array = np.asarray(array)
    if array.dtype == object and not any(isinstance(v, OpenDim) for v in array.reshape(-1)):
        return array.astype(np.int64)
    return array
