"""Builds one ONNX graph: nodes, constants, unique names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["Builder", "Value", "onnx_type"]

Value = str
"""The name of a value in the ONNX model; "" for an optional input or output that is left out."""


def onnx_type(dtype: Any) -> int:
    """ONNX's number for an element type of NumPy."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


class Builder:
    """The nodes of a graph, in the order in which they were added.

    A method whose name begins with a capital letter adds a node: ``g.Add(x, y)`` returns the name
    of the result, ``g.Split(x, sizes, outputs=3)`` a list of names. An input is the name of a
    value, None if it is left out, an array for a constant, or a Python integer or a list of
    integers for a constant of int64.

    Args:
        opset: version of ONNX's operators.
        parent: the builder of the graph around this one.

    Attributes:
        nodes: the nodes so far.
        origin: prefix for the names of new values, and the documentation of new nodes.
        arrays: values of the constants, by name; they are stored in the outermost graph.
    """

    def __init__(self, opset: int, parent: Builder | None = None) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.origin = ("", "")
        self.arrays: dict[str, np.ndarray[Any, Any]] = parent.arrays if parent else {}
        self.taken: dict[str, int] = parent.taken if parent else {}
        self._constants: dict[Any, str] = parent._constants if parent else {}

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        if not kind[0].isupper():
            raise AttributeError(f"{type(self).__name__} has no {kind}")
        return partial(self.node, kind)

    def inner(self) -> Builder:
        """A builder for a graph inside a node of this one."""
        made = Builder(self.opset, self)
        made.origin = self.origin
        return made

    def unique(self, name: str) -> str:
        """The name itself, or with a number appended if it is taken."""
        count = self.taken.get(name)
        if count is None:
            self.taken[name] = 0
            return name
        while (found := f"{name}.{(count := count + 1)}") in self.taken:
            pass
        self.taken[name] = count
        return self.unique(found)

    def constant(self, value: Any) -> Value:
        """The name of a constant; equal constants share one."""
        array = np.asarray(value)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = self._constants[key] = self.unique("constant")
            self.arrays[name] = array
        return self._constants[key]

    def ints(self, *values: int) -> Value:
        """A constant vector of int64."""
        return self.constant(np.array(values, np.int64))

    def node(self, kind: str, *inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
        """Add a node.

        Args:
            kind: the operator of ONNX.
            inputs: see the class.
            outputs: number of outputs.
            attrs: attributes; None leaves one out.

        Returns:
            The name of the output, or a list of the names if there are several.
        """
        prefix, doc = self.origin
        names = [self.unique(f"{prefix}/{kind}") for _ in range(outputs)]
        self.add(kind, list(map(self._value, inputs)), names, attrs, doc)
        return names[0] if outputs == 1 else names

    def add(
        self,
        kind: str,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        attrs: dict[str, Any],
        doc: str = "",
    ) -> None:
        """Add a node whose inputs and outputs have names."""
        inputs = list(inputs)
        while inputs and not inputs[-1]:
            inputs.pop()
        given = {name: value for name, value in attrs.items() if value is not None}
        name = next(filter(None, outputs), "")
        self.nodes.append(
            helper.make_node(kind, inputs, outputs, name=name, doc_string=doc or None, **given)
        )

    def _value(self, given: Any) -> Value:
        if given is None:
            return ""
        if isinstance(given, str):
            return given
        if isinstance(given, (np.ndarray, np.generic)):
            return self.constant(given)
        return self.constant(np.array(given, np.int64))

    def rename(self, old: Value, new: Value, since: int) -> None:
        """Rename a value in the nodes from index ``since`` on, and in their inner graphs."""
        for node in self.nodes[since:]:
            _rename(node, old, new)
            if node.name == old:
                node.name = new

    def initializers(self) -> list[onnx.TensorProto]:
        """The constants in ONNX's form."""
        return [numpy_helper.from_array(array, name) for name, array in self.arrays.items()]

    def reduce(self, kind: str, x: Any, axes: Sequence[int] | None, keepdims: bool = False) -> Any:
        """A reduction over ``axes``, None for all.

        The axes are an input in new versions of ONNX's operators, and an attribute in older ones.
        """
        keep = int(keepdims)
        if kind == "ReduceSum" or self.opset >= 18:
            given = None if axes is None else list(axes)
            return self.node(kind, x, given, keepdims=keep)
        return self.node(kind, x, keepdims=keep, axes=None if axes is None else list(axes))

    def cast(self, x: Any, dtype: Any) -> Value:
        """The value in another element type."""
        found: Value = self.Cast(x, to=onnx_type(dtype))
        return found

    def before_cast(self, x: Value) -> Value:
        """The value that a cast made ``x`` of, which has the same shape.

        onnxruntime 1.32 loses a ``Not`` whose cast tells the shape of what its ``Where`` selects.
        """
        made = next((node for node in reversed(self.nodes) if x in node.output), None)
        return made.input[0] if made is not None and made.op_type == "Cast" else x

    def size(self, x: Any, axis: int) -> Value:
        """The size of a dimension, as a vector with one element."""
        found: Value = self.Gather(self.Shape(x), self.ints(axis))
        return found

    def reshape(self, x: Any, *shape: int) -> Value:
        """The value in a shape: 0 keeps a dimension, -1 takes the remaining elements."""
        found: Value = self.Reshape(x, self.ints(*shape))
        return found


def _rename(node: onnx.NodeProto, old: Value, new: Value) -> None:
    for names in (node.input, node.output):
        for position, name in enumerate(names):
            if name == old:
                names[position] = new
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                _rename(inner, old, new)
            for value in attribute.g.output:
                if value.name == old:
                    value.name = new
