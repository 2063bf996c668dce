"""Operators between ``DequantizeLinear`` and ``QuantizeLinear`` become operators on integers.

Tools write a quantized model with nodes that compute real numbers, or with nodes that compute
integers. Here the first kind becomes the second, as engines for prediction do: a convolution or
product whose sides are levels with scales, and the rounding of its result, are one node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx

__all__ = ["join_quantized_groups"]

_ONNX, _MICROSOFT = ("", "ai.onnx"), "com.microsoft"
_LEVELS = {onnx.TensorProto.UINT8: np.uint8, onnx.TensorProto.INT8: np.int8}
_AXES = {"Conv": (0,), "MatMul": (-1, 1), "Gemm": (1, -1)}
"""Axes along which weights may have scales of their own."""


def join_quantized_groups(graph: Any) -> None:
    """Join groups of nodes, also in graphs inside nodes."""
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                join_quantized_groups(inner)
    if any(n.op_type in ("DequantizeLinear", "MatMulInteger") for n in graph.node):
        _Groups(graph).join()


class _Groups:
    """The nodes of a graph, with who makes and who reads a value.

    Args:
        graph: ``onnx.GraphProto``, which is changed.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._makers = {name: node for node in graph.node for name in node.output if name}
        self._arrays = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self._arrays[node.output[0]] = node.attribute[0].t
        self._readers: dict[str, list[Any]] = {}
        for node in graph.node:
            for name in _reads(node):
                self._readers.setdefault(name, []).append(node)
        for info in graph.output:
            self._readers.setdefault(info.name, []).append(None)

    def join(self) -> None:
        """Replace nodes by those that compute with integers."""
        made: dict[int, Any] = {}
        gone: set[int] = set()
        for node in self._graph.node:
            found = self._joined(node)
            if found is not None:
                made[id(node)], taken = found
                gone.update(map(id, taken))
        nodes = [made.get(id(n), n) for n in self._graph.node if id(n) not in gone]
        copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes] if made else []
        if copies:
            kept = _read(copies, {info.name for info in self._graph.output})
            del self._graph.node[:]
            self._graph.node.extend(kept)

    def _joined(self, node: Any) -> tuple[Any, list[Any]] | None:
        """The node that computes with integers, and those that it makes superfluous."""
        if node.domain not in _ONNX:
            return None
        if node.op_type == "MatMulInteger":
            return self._real_product(node)
        if node.op_type not in _AXES or not self._has_plain_attributes(node):
            return None
        sides = [self._side(node, i) for i in range(min(len(node.input), 3))]
        if any(side is None for side in sides):
            return None
        data, weight, *bias = [[*side.input, ""] for side in sides]
        if not self._is_single(data[1]) or not (bias or len(sides) == 2):
            return None
        relu, after, scale, point = self._rounding(node)
        out = (after or node).output[0]
        parts = [*data[:3], *self._whole(weight[:3])]
        added = bias[0][0] if bias else ""
        if node.op_type == "Gemm":
            made = _node("QGemm", [*parts, added, scale, point], out, node, _MICROSOFT)
        else:
            op_type = "QLinearConv" if node.op_type == "Conv" else "QLinearMatMul"
            more = [added] if added else []
            made = _node(op_type, [*parts, scale, point, *more], out, node)
        if relu is not None and node.op_type == "Conv":
            made.attribute.append(onnx.helper.make_attribute("relu", 1))
        return made, [each for each in (relu, after) if each is not None]

    def _real_product(self, node: Any) -> tuple[Any, list[Any]] | None:
        """A product of integers that only becomes real numbers."""
        cast = self._only_reader(node.output[0])
        if cast is None or cast.op_type != "Cast" or cast.attribute[0].i != onnx.TensorProto.FLOAT:
            return None
        left, right, *points = node.input
        made = _node(
            "MatMulIntegerToFloat", [left, right, "", "", *points], cast.output[0], node, _MICROSOFT
        )
        return made, [cast]

    def _has_plain_attributes(self, node: Any) -> bool:
        """Whether ``QGemm`` can say what a ``Gemm`` says; other operators have nothing to say."""
        attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        return node.op_type != "Gemm" or (attrs.get("beta", 1.0) == 1 and not attrs.get("transA"))

    def _side(self, node: Any, index: int) -> Any:
        """The node that makes real numbers of the levels of an input; None if there is none.

        A bias of 32 bits has the product of the scales of both sides.
        """
        maker = self._makers.get(node.input[index])
        if maker is None or maker.op_type != "DequantizeLinear" or maker.domain not in _ONNX:
            return None
        attrs = {a.name: onnx.helper.get_attribute_value(a) for a in maker.attribute}
        if attrs.get("block_size") or attrs.get("output_dtype"):
            return None
        whole = self._arrays.get(maker.input[0])
        if index == 2:
            return maker if whole is not None and self._is_bias(node, maker) else None
        axis = attrs.get("axis", 1)
        if self._is_single(maker.input[1]):
            return maker
        turned = any(a.name == "transB" and a.i for a in node.attribute)
        axes = (0, -2) if turned else _AXES[node.op_type]
        return maker if index == 1 and axis in axes else None

    def _is_bias(self, node: Any, maker: Any) -> bool:
        scales = [self._array(maker.input[1])]
        scales += [self._array(self._makers[node.input[i]].input[1]) for i in (0, 1)]
        if any(scale is None for scale in scales) or self._arrays[maker.input[0]].data_type != 6:
            return False
        own, first, second = (np.asarray(s, np.float64).reshape(-1) for s in scales)
        both = first * second
        points = self._array(maker.input[2]) if len(maker.input) > 2 and maker.input[2] else None
        fits = own.size in (1, both.size) or both.size == 1
        near = fits and bool(np.allclose(own, both, rtol=1e-5, atol=0))
        return near and (points is None or not np.any(points))

    def _rounding(self, node: Any) -> tuple[Any, Any, str, str]:
        """The only reader of a result if it rounds it to levels of 8 bits, its scale and point.

        A relu may stand before it if it leaves nothing below the zero point: the levels end there,
        or those of a convolution can.
        """
        relu, reader, none = None, self._only_reader(node.output[0]), (None, None, "", "")
        if reader is not None and reader.op_type == "Relu":
            relu, reader = reader, self._only_reader(reader.output[0])
        if reader is None or reader.op_type != "QuantizeLinear" or reader.domain not in _ONNX:
            return none
        point = reader.input[2] if len(reader.input) > 2 else ""
        known, zero = self._arrays.get(point), self._array(point)
        if known is None or known.data_type not in _LEVELS or not self._is_single(reader.input[1]):
            return none
        kind = _LEVELS[known.data_type]
        lowest = np.iinfo(kind).min
        ends = (0, lowest) if node.op_type == "Conv" and kind is np.int8 else (lowest,)
        if relu is not None and (zero is None or zero.size != 1 or int(zero.flat[0]) not in ends):
            return none
        return relu, reader, reader.input[1], point

    def _only_reader(self, name: str) -> Any:
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 else None

    def _whole(self, side: Sequence[str]) -> list[str]:
        """Levels of weights, their scales and points; what a node rounds is rounded here.

        Nets that were trained with quantizers have real weights and a node that rounds them.
        """
        levels, scale, point = side
        maker = self._makers.get(levels)
        if maker is None or maker.op_type != "QuantizeLinear" or levels in self._arrays:
            return list(side)
        known = [self._array(name) for name in maker.input[:2]]
        zero = self._arrays.get(maker.input[2]) if len(maker.input) > 2 else None
        if any(array is None for array in known) or zero is None or zero.data_type not in _LEVELS:
            return list(side)
        real, unit = known
        axis = next((a.i for a in maker.attribute if a.name == "axis"), 1)
        moved = onnx.numpy_helper.to_array(zero)
        if unit.size > 1:
            shape = [-1 if a == axis % real.ndim else 1 for a in range(real.ndim)]
            unit, moved = unit.reshape(shape), moved.reshape(shape)
        kind = _LEVELS[zero.data_type]
        ends = np.iinfo(kind)
        rounded = np.clip(np.rint(real / unit) + moved, ends.min, ends.max).astype(kind)
        name = f"{levels}/levels"
        if name not in self._arrays:
            tensor = onnx.numpy_helper.from_array(rounded, name)
            self._graph.initializer.append(tensor)
            self._arrays[name] = tensor
        return [name, scale, point]

    def _array(self, name: str) -> Any:
        found = self._arrays.get(name)
        external = found is not None and found.data_location == onnx.TensorProto.EXTERNAL
        return None if found is None or external else onnx.numpy_helper.to_array(found)

    def _is_single(self, name: str) -> bool:
        """Whether a name is an initializer with one number."""
        found = self._arrays.get(name)
        return found is not None and int(np.prod(found.dims)) == 1


def _reads(node: Any) -> Iterator[str]:
    """The names that a node reads, those of graphs inside it included."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            for each in inner.node:
                yield from _reads(each)
            yield from (info.name for info in inner.output)


def _node(op_type: str, inputs: Sequence[str], out: str, old: Any, domain: str = "") -> Any:
    """A node with the name and the attributes of another one."""
    inputs = list(inputs)
    while inputs and not inputs[-1]:
        inputs.pop()
    made = onnx.helper.make_node(op_type, inputs, [out], name=old.name, domain=domain)
    made.attribute.extend(a for a in old.attribute if a.name != "beta")
    return made


def _read(nodes: Sequence[Any], wanted: set[str]) -> list[Any]:
    """Nodes without those that only made real numbers for what is joined now."""
    kept = []
    for node in reversed(nodes):
        idle = node.op_type in ("DequantizeLinear", "QuantizeLinear")
        if not idle or any(name in wanted for name in node.output):
            wanted.update(_reads(node))
            kept.append(node)
    return kept[::-1]
