"""A node of an ONNX graph, as the mappings of operators see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.builder import Builder
from dpexec.onnx.loading.dims import OpenDim
from dpexec.onnx.loading.errors import NotConstantError, UnsupportedError
from dpexec.onnx.loading.mapping import find
from dpexec.onnx.loading.values import Value

__all__ = ["Node", "common_dims", "is_one"]


def is_one(size: Any) -> bool:
    """Whether a size is 1 for certain."""
    return isinstance(size, int) and size == 1


def common_dims(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    """The sizes to which NumPy broadcasts; an open size counts as equal to any but 1."""
    rank = max(map(len, shapes))
    laid = [[1] * (rank - len(dims)) + list(dims) for dims in shapes]
    common = []
    for sizes in zip(*laid, strict=True):
        large = [size for size in sizes if not is_one(size)]
        numbers = [size for size in large if isinstance(size, int)]
        common.append((numbers or large or [1])[0])
    return common


class Node:
    """One node: its inputs, attributes and version, and methods that add operators for it.

    Args:
        builder: adds operators.
        graph: the walk over the node's graph; control flow uses it to walk inner graphs.
        op_type: type of the operator.
        name: name of the node, or of its first output.
        version: version of the operator's domain.
        inputs: values; None for inputs that are left out.
        outputs: names of the outputs; "" for outputs that are left out.
        attrs: attributes by name.
    """

    def __init__(
        self,
        builder: Builder,
        graph: Any,
        op_type: str,
        name: str,
        version: int,
        inputs: Sequence[Value | None],
        outputs: Sequence[str],
        attrs: Mapping[str, Any],
    ) -> None:
        self.builder = builder
        self.graph = graph
        self.op_type = op_type
        self.name = name
        self.version = version
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.attrs = dict(attrs)
        self.prefix = next((o for o in outputs if o), name)

    def __str__(self) -> str:
        return f"{self.op_type} {self.name!r}"

    def fail(self, problem: str) -> NoReturn:
        """Refuse the node.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(f"{self}: {problem}")

    # ---- attributes and inputs

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute: a number, a string, a list of them, an array, or a graph."""
        return self.attrs.get(name, default)

    def input(self, index: int) -> Value | None:
        """An input; None if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def value(self, index: int) -> Value:
        """A required input.

        Raises:
            UnsupportedError: it is left out.
        """
        found = self.input(index)
        if found is None:
            self.fail(f"input {index} is missing")
        return found

    def var(self, index: int) -> Variable:
        """The variable of a required input."""
        return self.builder.variable(self.value(index))

    def optional(self, index: int) -> Variable | None:
        """The variable of an input; None if it is left out."""
        found = self.input(index)
        return None if found is None else self.builder.variable(found)

    def known(self, index: int) -> np.ndarray[Any, Any] | None:
        """The numbers of an input if loading may compute with them; None for weights."""
        found = self.input(index)
        return None if found is None or found.is_open else found.known

    def single(self, index: int) -> float | None:
        """The number of an input if it is known and has one element; else None."""
        found = self.known(index)
        return float(found.reshape(-1)[0]) if found is not None and found.size == 1 else None

    def constant(self, index: int, what: str) -> np.ndarray[Any, Any] | None:
        """The numbers of an input that must be known; None if it is left out.

        Raises:
            NotConstantError: they are computed in a run.
        """
        found = self.input(index)
        if found is None:
            return None
        if found.array is None or found.is_open:
            raise NotConstantError(
                f"{self}: {what} ({found.name}) must be known when the model is loaded, but only "
                "a run tells it",
                found.name,
            )
        return found.array

    def integers(self, index: int, name: str) -> list[int] | None:
        """A list of integers: an attribute in older versions, an input in newer ones."""
        if name in self.attrs:
            return [int(v) for v in self.attrs[name]]
        found = self.constant(index, name)
        return None if found is None else [int(v) for v in found.reshape(-1)]

    def sizes(self, index: int, name: str) -> list[Any] | None:
        """Like :meth:`integers`, with open sizes allowed; None if they are computed in a run."""
        if name in self.attrs:
            return [int(v) for v in self.attrs[name]]
        found = self.input(index)
        if found is None or found.array is None:
            return None
        return [v if isinstance(v, OpenDim) else int(v) for v in found.array.reshape(-1).tolist()]

    def sizes_of_run(self, index: int, name: str) -> list[Any]:
        """Like :meth:`sizes`; sizes that a run computes are open ones.

        Raises:
            NotConstantError: not even how many there are is known.
        """
        found, var = self.sizes(index, name), self.optional(index)
        if found is not None or var is None:
            return found or []
        if len(var.shape) != 1 or var.shape[0] < 0:
            self.constant(index, name)
        key = self.value(index).name
        return [
            self.builder.computed_dim(partial(self.slice, var, 0, i, i + 1), ("item", key, i))
            for i in range(var.shape[0])
        ]

    def dims(self, index: int) -> list[Any]:
        """The sizes of an input: integers and open sizes."""
        return self.builder.dims(self.value(index))

    def axis(self, default: int = 0, name: str = "axis", rank: int | None = None) -> int:
        """The attribute of an axis, counted from the front."""
        number = int(self.attr(name, default))
        return number + (self.value(0).rank if rank is None else rank) if number < 0 else number

    # ---- new operators

    def add(
        self, op_type: str, inputs: Mapping[str, Any], slot: str = "Out", **attrs: Any
    ) -> Variable:
        """Add an operator; returns the variable of an output slot."""
        made = self.builder.add(op_type, inputs, attrs, prefix=self.prefix)
        found: Variable = made[slot]
        return found

    def number(self, value: Any, dtype: VarType) -> Variable:
        """A constant of shape [1]."""
        return self.builder.constant(np.array([value], to_numpy(dtype)), self.prefix)

    def cast(self, var: Variable, dtype: VarType) -> Variable:
        """A variable in another type."""
        return self.builder.cast(var, dtype, self.prefix)

    def reshape(self, var: Variable, dims: Sequence[Any], old: Sequence[Any] = ()) -> Variable:
        """A variable in another shape.

        Args:
            var: the variable.
            dims: sizes; at most one is -1, and some may be open.
            old: the sizes of the variable; an open size at the same position needs no operators.
        """
        dims = list(dims) or [1]
        open_ones = [i for i, size in enumerate(dims) if isinstance(size, OpenDim)]
        free = sum(not isinstance(size, OpenDim) and size == -1 for size in dims)
        for i in open_ones:
            if len(open_ones) + free > 1 and i < len(old) and dims[i].same(old[i]):
                dims[i] = 0
        left = [i for i in open_ones if isinstance(dims[i], OpenDim)]
        if left and not free:
            dims[left[0]] = -1
        numbers, variables = self.builder.mixed(dims)
        if tuple(numbers) == tuple(var.shape) and numbers.count(-1) < 2 and variables is None:
            return var
        inputs = {"X": var, "ShapeTensor": variables}
        made = self.builder.add("reshape2", inputs, {"shape": numbers}, prefix=self.prefix)
        found: Variable = made["Out"]
        return found

    def transpose(self, var: Variable, order: Sequence[int]) -> Variable:
        """A variable with its dimensions in another order."""
        if list(order) == sorted(order):
            return var
        return self.add("transpose2", {"X": var}, axis=list(order))

    def unsqueeze(self, var: Variable, axes: Sequence[int]) -> Variable:
        """A variable with dimensions of 1 at some places of the result."""
        return self.add("unsqueeze2", {"X": var}, axes=list(axes)) if axes else var

    def squeeze(self, var: Variable, axes: Sequence[int]) -> Variable:
        """A variable without some dimensions of 1; at least one dimension stays."""
        axes = list(axes)[: max(len(var.shape) - 1, 0)] if len(axes) == len(var.shape) else axes
        return self.add("squeeze2", {"X": var}, axes=list(axes)) if axes else var

    def slice(self, var: Variable, axis: int, start: int, stop: int) -> Variable:
        """Some rows along an axis."""
        return self.add("slice", {"Input": var}, axes=[axis], starts=[start], ends=[stop])

    def concat(self, variables: Sequence[Variable], axis: int) -> Variable:
        """Variables concatenated along an axis."""
        if len(variables) == 1:
            return variables[0]
        return self.add("concat", {"X": list(variables)}, axis=axis)

    def binary(self, op_type: str, left: Variable, right: Variable) -> Variable:
        """An operator on two variables, element by element, broadcast as in NumPy."""
        return self.add(op_type, {"X": left, "Y": right}, axis=-1)

    def scaled(self, var: Variable, scale: float = 1.0, bias: float = 0.0) -> Variable:
        """``scale * var + bias``."""
        if scale == 1.0 and bias == 0.0:
            return var
        return self.add("scale", {"X": var}, scale=float(scale), bias=float(bias))

    def expand(self, var: Variable, old: Sequence[Any], dims: Sequence[Any]) -> Variable:
        """A variable repeated along its dimensions of 1.

        Args:
            var: the variable.
            old: its sizes.
            dims: the new sizes; additional dimensions come first.
        """
        if len(dims) > max(len(old), 1):
            lead = len(dims) - max(len(old), 1)
            old = [1] * lead + list(old or [1])
            var = self.unsqueeze(var, list(range(lead)))
        old = list(old) or [1]
        times = [new if is_one(now) and not is_one(new) else 1
                 for now, new in zip(old, dims, strict=True)] if dims else [1]  # fmt: skip
        if all(is_one(count) for count in times):
            return var
        numbers, variables = self.builder.mixed(times)
        inputs = {"X": var, "expand_times_tensor": variables}
        return self.add("expand", inputs, expand_times=numbers)

    def broadcast(self, *indices: int) -> list[Variable]:
        """Inputs repeated to a common shape, as NumPy broadcasts.

        Open sizes that are not known to be equal may be 1 in a run; the largest counts.
        """
        dims = [self.dims(i) for i in indices]
        common = common_dims(dims)
        for axis, size in enumerate(common):
            behind = len(common) - axis
            for sizes in (each for each in dims if len(each) >= behind):
                if isinstance(size, OpenDim) and isinstance(sizes[-behind], OpenDim):
                    size = size if size.same(sizes[-behind]) else size.at_least(sizes[-behind])
            common[axis] = size
        pairs = zip(indices, dims, strict=True)
        return [self._grown(self.expand(self.var(i), old, common), old, common) for i, old in pairs]

    def _grown(self, var: Variable, old: Sequence[Any], dims: Sequence[Any]) -> Variable:
        """A variable repeated along dimensions whose open size may be 1 in a run."""
        old = [1] * (len(dims) - len(old)) + list(old)
        times = [
            new // now.at_least(1) if isinstance(now, OpenDim) and not now.same(new) else 1
            for now, new in zip(old, dims, strict=True)
        ]
        if all(is_one(count) for count in times):
            return var
        numbers, variables = self.builder.mixed(times)
        inputs = {"X": var, "expand_times_tensor": variables}
        return self.add("expand", inputs, expand_times=numbers)

    def through(self, op_type: str, inputs: Sequence[Value | None], **attrs: Any) -> list[Value]:
        """What the mapping of another of ONNX's operators makes of some inputs.

        Attributes that are not given are those of this node.
        """
        version = self.graph.versions.get("", self.version)
        other = Node(
            self.builder, self.graph, op_type, self.prefix, version, inputs, (), self.attrs | attrs
        )
        made: Any = find("", op_type)(other)  # type: ignore[misc]
        results = made if isinstance(made, list) else [made]
        return [r if isinstance(r, Value) else Value(r.name, None, r) for r in results]

    def result(self, var: Variable, scalar: bool = False, index: int = 0) -> Value:
        """An output; ``scalar`` says that it has no dimensions in the model."""
        return Value(self.outputs[index] if index < len(self.outputs) else "", None, var, scalar)
