"""Goes through the nodes of an ONNX graph and adds the operators of each."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.ir.undo import note
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading import mapping
from dpexec.onnx.loading.builder import Builder
from dpexec.onnx.loading.dims import UnknownNumberError
from dpexec.onnx.loading.dtypes import array_of
from dpexec.onnx.loading.errors import DAMAGE, LoadError, UnsupportedError
from dpexec.onnx.loading.folding import fold, fold_open
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.values import Value

__all__ = ["Graph"]

_STATISTICS = {
    "BatchNormalization": (3, 4),
    "QuantizeLinear": (1,),
    "DequantizeLinear": (1,),
    "QLinearConv": (1, 4, 6),
    "QLinearMatMul": (1, 4, 6),
    "QGemm": (1, 4, 7),
    "MatMulNBits": (2, 3),
}
"""Inputs that are running statistics or scales, by operator: they are never trained."""


class Graph:
    """A walk over a graph of a model.

    Args:
        builder: adds operators.
        versions: versions of domains.
        folder: folder of the files of external data.
        ranks: numbers of dimensions of values as ONNX infers them, by name.
        is_test: whether normalizations use their running statistics and nothing is dropped.
        chosen: whether an initializer is a parameter to be trained, by name and numbers.
        values: values by name; a graph inside a node sees those of the graphs around it.
    """

    def __init__(
        self,
        builder: Builder,
        versions: Mapping[str, int],
        folder: str,
        ranks: Mapping[str, int],
        is_test: bool,
        chosen: Callable[[str, Any], bool],
        values: MutableMapping[str, Value] | None = None,
    ) -> None:
        self.builder = builder
        self.versions = versions
        self.folder = folder
        self.ranks = ranks
        self.is_test = is_test
        self.chosen = chosen
        self.values: MutableMapping[str, Value] = {} if values is None else values

    def inside(self) -> Graph:
        """A walk over a graph inside a node of this one."""
        return Graph(
            self.builder,
            self.versions,
            self.folder,
            self.ranks,
            self.is_test,
            self.chosen,
            ChainMap({}, self.values),
        )

    def initialize(self, proto: Any) -> None:
        """Bind the initializers of a graph."""
        for sparse in proto.sparse_initializer:
            raise UnsupportedError(f"initializer {sparse.values.name} is sparse")
        statistics = {
            node.input[i]
            for node in proto.node
            for i in _STATISTICS.get(node.op_type, ())
            if i < len(node.input)
        }
        for tensor in proto.initializer:
            array = array_of(tensor, self.folder, f"initializer {tensor.name}")
            value = Value(tensor.name, array, scalar=array.ndim == 0)
            value.statistic = tensor.name in statistics
            value.weight = not value.statistic and self.chosen(tensor.name, value.array)
            self.values[tensor.name] = value

    def body(self, proto: Any, inputs: Sequence[Value]) -> list[Value]:
        """The outputs of a graph inside a node, whose operators are added here.

        Args:
            proto: ``onnx.GraphProto``.
            inputs: the values of its inputs.
        """
        walk = self.inside()
        walk.initialize(proto)
        for info, value in zip(proto.input, inputs, strict=False):
            walk.values[info.name] = value
        walk.run(proto.node)
        return [walk._known(info.name, "a graph inside a node returns") for info in proto.output]

    def _known(self, name: str, reader: str) -> Value:
        """The value of a name.

        Raises:
            LoadError: no node before the reader makes it.
        """
        if name not in self.values:
            raise LoadError(
                f"{reader} {name!r}, which no input, initializer or node before it gives"
            )
        return self.values[name]

    def run(self, nodes: Sequence[Any]) -> None:
        """Add the operators of nodes, which are given in an order in which they can run."""
        for proto in nodes:
            node = self._node(proto)
            with _named(node), self._scoped(node):
                made = self._folded(node, proto)
                self._bind(node, self._mapped(node, proto) if made is None else made)

    def _node(self, proto: Any) -> Node:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        name = proto.name or next((o for o in proto.output if o), proto.op_type)
        reader = f"{proto.op_type} {name!r} reads"
        inputs = [self._known(n, reader) if n else None for n in proto.input]
        attrs = {a.name: self._attribute(a, name) for a in proto.attribute}
        version = self.versions.get(domain, 1)
        return Node(
            self.builder, self, proto.op_type, name, version, inputs, list(proto.output), attrs
        )

    def _attribute(self, proto: Any, node: str) -> Any:
        if proto.ref_attr_name:
            raise UnsupportedError(f"attribute {proto.name} of {node!r} has no value")
        try:
            value = onnx.helper.get_attribute_value(proto)
        except ValueError as error:
            raise LoadError(f"attribute {proto.name} of {node!r} is damaged: {error}") from error
        if isinstance(value, float):
            return _shortest(value)
        if isinstance(value, onnx.TensorProto):
            return array_of(value, self.folder, f"attribute {proto.name} of {node!r}")
        if isinstance(value, bytes):
            return value.decode()
        if value is None:
            raise LoadError(f"attribute {proto.name} of {node!r} has no type")
        if isinstance(value, onnx.GraphProto | onnx.SparseTensorProto | onnx.TypeProto | int):
            return value
        return [
            v.decode() if isinstance(v, bytes) else _shortest(v) if isinstance(v, float) else v
            for v in value
        ]

    def _folded(self, node: Node, proto: Any) -> list[Any] | None:
        values = [value for value in node.inputs if value is not None]
        if proto.domain not in ("", "ai.onnx") or any(v.is_sequence for v in values):
            return None
        if any(v.known is None for v in values):
            return None
        if node.op_type == "QuantizeLinear" and any(v.element for v in values):
            return None  # onnx would take the limits of the type that holds the zero point
        if proto.op_type == "Constant" and "value" in node.attrs:
            return [node.attrs["value"]]
        inputs = [None if value is None else value.array for value in node.inputs]
        if any(value.is_open for value in values):
            return fold_open(node, inputs)
        return fold(proto, inputs, node.version)

    def _mapped(self, node: Node, proto: Any) -> list[Any]:
        found = mapping.find(proto.domain, proto.op_type)
        if found is None:
            node.fail("programs have no such operator")
        made = found(node)
        return list(made) if isinstance(made, (list, tuple)) else [made]

    def _bind(self, node: Node, made: Sequence[Any]) -> None:
        """Give the outputs their names.

        Raises:
            LoadError: another node, an input or an initializer of the graph has such a name.
        """
        own = self.values.maps[0] if isinstance(self.values, ChainMap) else self.values
        for name, result in zip(node.outputs, made, strict=False):
            if name in own:
                raise LoadError(f"{node} makes {name!r}, which the graph has already")
            if name and result is not None:
                self.values[name] = self._value(node, name, result)
        missing = [n for n in node.outputs if n and n not in self.values]
        if missing:
            node.fail(f"programs cannot make its output {missing[0]}")

    def _value(self, node: Node, name: str, result: Any) -> Value:
        if isinstance(result, np.ndarray):
            return Value(name, result, scalar=result.ndim == 0)
        if isinstance(result, Value):
            if result.var is None or result.name != name:
                return result
            var, scalar, element = result.var, result.scalar, result.element
        else:
            var, scalar, element = result, None, 0
        if var.name.startswith(f"{node.prefix}.tmp_") and not var.persistable:
            self._rename(var, name)
        if scalar is None:
            others = [value for value in node.inputs if value is not None]
            scalar = self.ranks.get(name, -1) == 0
            if name not in self.ranks and others:
                scalar = all(value.scalar for value in others)
        return Value(name, None, var, scalar, element=element)

    def _rename(self, var: Variable, name: str) -> None:
        """Give a variable that a node has just made the name of the node's output."""
        block = var.block
        if block._find_var_recursive(name) is not None:
            return
        old = var.name
        note(_name_back, var, old)
        del block.vars[old]
        var.name = name
        block.vars[name] = var
        blocks = block.program.blocks
        for op in (op for b in blocks for op in b.ops) if len(blocks) > 1 else reversed(block.ops):
            written = old in op.output_arg_names
            op._rename_input(old, name)
            op._rename_output(old, name)
            if written and len(blocks) == 1:  # what came before cannot know it
                break

    @contextmanager
    def _scoped(self, node: Node) -> Iterator[None]:
        """Group operators for views as the names of PyTorch's nodes are: /layer1/conv/Conv."""
        before = self.builder.scope_name
        path = [part for part in node.name.split("/")[:-1] if part]
        self.builder.scope_name = f"/{'/'.join(path)}/" if path else before
        try:
            yield
        finally:
            self.builder.scope_name = before


def _name_back(var: Variable, name: str) -> None:
    """Undo what :meth:`Graph._rename` did to a block; operators that name it are undone, too."""
    del var.block.vars[var.name]
    var.name = name
    var.block.vars[name] = var


def _shortest(number: float) -> float:
    """The shortest decimal number with the same float32 value: 0.001 for 0.0010000000475."""
    return float(str(np.float32(number)))


@contextmanager
def _named(node: Node) -> Iterator[None]:
    """Add the node to errors of building its operators."""
    try:
        yield
    except LoadError:
        raise
    except UnknownNumberError as error:
        raise UnsupportedError(f"{node} depends on sizes that only a batch tells") from error
    except (EnforceNotMet, *DAMAGE) as error:
        inputs = [
            node.builder.described(v) for v in node.inputs if v is not None and not v.is_sequence
        ]
        raise UnsupportedError(
            f"{node} cannot become operators of a program: {error}\n  inputs: {', '.join(inputs)}"
        ) from error
