"""Reads ONNX models, and prepares them for the walk over their graphs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import inliner

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.onnx.loading import mapping
from dpexec.onnx.loading.errors import LoadError, UnsupportedError

__all__ = ["Inferred", "infer", "nodes_of", "prepare", "read"]

_OLDEST = 7
_REQUIRED = onnx.defs.OpSchema.FormalParameterOption.Single
_UNLIMITED = 2**31 - 1
_LARGEST_SIZE = 2**48
_SHOWN = 4  # how many nodes of each unsupported operator an error names


@dataclass(frozen=True)
class Inferred:
    """Facts that ONNX infers about a model's values.

    Args:
        sizes: sizes by name: a number, the name of an open size, or None.
        ranks: numbers of dimensions by name.
    """

    sizes: Mapping[str, tuple[Any, ...]]
    ranks: Mapping[str, int]


def read(source: Any) -> tuple[Any, str]:
    """A model, and the folder of its external data.

    Args:
        source: a path, bytes, or ``onnx.ModelProto``.

    Raises:
        LoadError: the file cannot be read, or holds no ONNX model.
    """
    if isinstance(source, onnx.ModelProto):
        model, folder, name = onnx.ModelProto(), "", "the model"
        model.CopyFrom(source)
    elif isinstance(source, bytes):
        model, folder, name = _parsed(source, "the bytes"), "", "the bytes"
    else:
        path = Path(os.fspath(source))
        try:
            size = path.stat().st_size
            if size >= onnx.checker.MAXIMUM_PROTOBUF:
                raise LoadError(
                    f"{path} has {size:,} bytes, but a file of protobuf ends at 2 GiB: write the "
                    "model with external data"
                )
            data = path.read_bytes()
        except OSError as error:
            raise LoadError(f"cannot read {path}: {error.strerror}") from None
        model, folder, name = _parsed(data, str(path)), str(path.parent), str(path)
    if not model.graph.node and not model.graph.output:
        raise LoadError(f"{name} holds no ONNX model")
    for each in _names(model.graph):
        if not isinstance(each, str):  # protobuf leaves bytes that are no UTF-8 as they are
            raise LoadError(f"{name} is damaged: it has the name {each!r}")
    return model, folder


def _names(graph: Any) -> Iterator[Any]:
    """The names in a graph, and those in graphs inside its nodes."""
    yield from (each.name for each in (*graph.input, *graph.output, *graph.initializer))
    for node in nodes_of(graph):
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)


def _parsed(data: bytes, name: str) -> Any:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise LoadError(f"{name} is no ONNX model, or damaged") from None
    return model


def prepare(model: Any, fixed: Collection[str] = ()) -> Any:
    """The model, with the ONNX functions expanded that have no mapping.

    Args:
        model: ``onnx.ModelProto``.
        fixed: names of inputs whose numbers are given.

    Raises:
        UnsupportedError: operators have neither a mapping nor a function; all are listed.
    """
    version = _version(model)
    newest = onnx.defs.onnx_opset_version()
    if not _OLDEST <= version <= newest:
        raise UnsupportedError(
            f"the model has version {version} of ONNX's operators; {_OLDEST} to {newest} can be "
            "loaded"
        )
    if model.functions:
        _agree(model, version)
        model = inliner.inline_local_functions(model)
    _require_sizes(model)
    _require_inputs(model)
    _sort(model.graph)
    wanted = {
        (node.domain, node.op_type)
        for node in nodes_of(model.graph)
        if mapping.find(node.domain, node.op_type) is None and _has_function(node, version)
    }
    if wanted:
        for node in nodes_of(model.graph):
            if (node.domain, node.op_type) in wanted:
                _fill_defaults(node, version)
        _declare_weights(model.graph)
        try:
            model = inliner.inline_selected_functions(
                model, sorted(wanted), exclude=False, inline_schema_functions=True
            )
        except RuntimeError as error:  # of ONNX's C++ library
            names = ", ".join(op_type for _, op_type in sorted(wanted))
            raise UnsupportedError(
                f"the functions that ONNX defines for {names} cannot be expanded: {error}"
            ) from error
    _require_mappings(model, fixed)
    _forget_unread(model)
    return model


def _agree(model: Any, version: int) -> None:
    """Give functions the model's version of ONNX's operators where both mean the same.

    The inliner leaves functions of other versions as they are.
    """
    for function in model.functions:
        for own in function.opset_import:
            if own.domain in ("", "ai.onnx") and own.version != version:
                nodes = [n for n in nodes_of(function) if n.domain in ("", "ai.onnx")]
                if all(_since(n, own.version) == _since(n, version) for n in nodes):
                    own.version = version


def _since(node: Any, version: int) -> int:
    """The version that brought the operator of a node as it is in another version; 0 for none."""
    if not onnx.defs.has(node.op_type, version, ""):
        return 0
    return onnx.defs.get_schema(node.op_type, version, "").since_version


def _sort(graph: Any) -> None:
    """Put nodes behind those whose outputs they read; tools write them in any order.

    Nodes that wait for each other stay where they are.
    """
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _sort(inner)
    makers = {name: k for k, node in enumerate(graph.node) for name in node.output if name}
    read = [{makers[n] for n in _reads(node) if n in makers} for node in graph.node]
    if all(max(before, default=-1) < k for k, before in enumerate(read)):
        return
    order: list[int] = []
    seen: set[int] = set()
    for first in range(len(graph.node)):
        path = [] if first in seen else [first]
        while path:
            number = path[-1]
            seen.add(number)
            behind = sorted(read[number] - seen, reverse=True)
            if behind:
                path.append(behind[-1])
                continue
            order.append(path.pop())
    nodes = [graph.node[k] for k in order]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _reads(node: Any) -> Iterator[str]:
    """The names that a node reads, those of graphs inside it included."""
    yield from node.input
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            for each in inner.node:
                yield from _reads(each)
            yield from (info.name for info in inner.output)


def _require_sizes(model: Any) -> None:
    """Check the sizes that a model declares: onnx's inference computes for minutes with some.

    Raises:
        LoadError: a size is beyond any memory.
    """
    for info in _infos(model.graph):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_value > _LARGEST_SIZE:
                raise LoadError(f"{info.name} has the size {dim.dim_value:,} along an axis")


def _require_inputs(model: Any) -> None:
    """Check that nodes have the inputs that ONNX demands: its library crashes without them.

    Raises:
        LoadError: a node has too few or too many inputs, too many outputs, or lacks an attribute.
    """
    versions = {o.domain if o.domain != "ai.onnx" else "": o.version for o in model.opset_import}
    for node in nodes_of(model.graph):
        domain = "" if node.domain == "ai.onnx" else node.domain
        version = versions.get(domain, _OLDEST)
        if not onnx.defs.has(node.op_type, version, domain):
            continue
        schema: Any = onnx.defs.get_schema(node.op_type, version, domain)
        given = {attribute.name for attribute in node.attribute}
        lacking = [n for n, a in schema.attributes.items() if a.required and n not in given]
        name = f"{node.op_type} {node.name or ', '.join(node.output)!r}"
        if lacking:
            raise LoadError(f"{name} lacks the attribute {lacking[0]}")
        count, least, most = len(node.input), schema.min_input, schema.max_input
        if not least <= count <= most:
            raise LoadError(f"{name} has {count} inputs, but must have {_range(least, most)}")
        if len(node.output) > schema.max_output:
            raise LoadError(f"{name} has {len(node.output)} outputs, not {schema.max_output}")
        for number, (value, formal) in enumerate(zip(node.input, schema.inputs, strict=False)):
            if formal.option == _REQUIRED and not value:
                raise LoadError(f"{name} lacks input {number}, {formal.name}")


def _range(least: int, most: int) -> str:
    if least == most:
        return str(least)
    return f"{least} to {most}" if most < _UNLIMITED else f"{least} or more"


def _forget_unread(model: Any) -> None:
    """Take the names from further outputs that nobody reads: mappings need not make them."""
    read = {info.name for info in model.graph.output}
    for node in nodes_of(model.graph):
        read.update(node.input)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                read.update(info.name for info in inner.output)
    for node in nodes_of(model.graph):
        for index, name in enumerate(node.output[1:], 1):
            if name not in read:
                node.output[index] = ""


def _version(model: Any) -> int:
    found = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    return max(found, default=_OLDEST)


def nodes_of(graph: Any) -> Iterator[Any]:
    """The nodes of a graph and of the graphs inside them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from nodes_of(inner)


def _has_function(node: Any, version: int) -> bool:
    if node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type):
        return False
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, version)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _fill_defaults(node: Any, version: int) -> None:
    """Give a node the attributes that it leaves out; the inliner does not."""
    given = {a.name for a in node.attribute}
    for name, attribute in onnx.defs.get_schema(node.op_type, version).attributes.items():
        if name not in given and attribute.default_value.name:
            node.attribute.append(attribute.default_value)


def _declare_weights(graph: Any) -> None:
    """Declare types of initializers as those of values; the inliner reads no others."""
    declared = {info.name for info in (*graph.input, *graph.value_info)}
    for tensor in graph.initializer:
        if tensor.name not in declared:
            info = graph.value_info.add(name=tensor.name)
            info.type.tensor_type.elem_type = tensor.data_type
            info.type.tensor_type.shape.SetInParent()
            for size in tensor.dims:
                info.type.tensor_type.shape.dim.add(dim_value=size)
    left_out = graph.value_info.add(name="")  # the inliner looks for types of these inputs, too
    left_out.type.tensor_type.elem_type = onnx.TensorProto.FLOAT


def _require_mappings(model: Any, fixed: Collection[str]) -> None:
    """Refuse operators without a mapping, but those that may be computed while loading."""
    missing: dict[str, list[str]] = {}
    known = {tensor.name for tensor in model.graph.initializer} | {"", *fixed}
    for node in nodes_of(model.graph):
        folds = node.op_type in ("Shape", "Size") or all(name in known for name in node.input)
        if folds and node.domain in ("", "ai.onnx"):
            known.update(node.output)
        elif mapping.find(node.domain, node.op_type) is None:
            operator = f"{node.domain}.{node.op_type}".lstrip(".")
            missing.setdefault(operator, []).append(node.name or ", ".join(node.output))
    if missing:
        lines = [
            f"  {operator}: {', '.join(names[:_SHOWN])}"
            + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
            for operator, names in sorted(missing.items())
        ]
        raise UnsupportedError(
            "the model has operators that programs do not have (operator: nodes):\n"
            + "\n".join(lines)
        )


def infer(model: Any) -> Inferred:
    """Sizes and ranks of the model's values, including those of graphs inside nodes."""
    opened = _open_sizes(model)
    if model.ByteSize() < onnx.checker.MAXIMUM_PROTOBUF:
        # What the model itself says of its values is all there is if they contradict each other.
        with contextlib.suppress(onnx.shape_inference.InferenceError):
            model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    sizes: dict[str, tuple[Any, ...]] = {}
    for info in _infos(model.graph):
        kind = info.type.tensor_type
        if info.type.HasField("tensor_type") and kind.HasField("shape"):
            sizes[info.name] = tuple(map(_size, kind.shape.dim))
    for name, words in opened.items():
        if name in sizes and len(sizes[name]) == len(words):
            sizes[name] = tuple(w or size for w, size in zip(words, sizes[name], strict=True))
    return Inferred(sizes, {name: len(shape) for name, shape in sizes.items()})


def _open_sizes(model: Any) -> dict[str, tuple[Any, ...]]:
    """Which sizes of values are open ones of the inputs, by the model's operators alone.

    PyTorch's exporter notes the length of its example at what a ``GRU`` of any length gives.
    """
    graph = model.graph
    words = {d.dim_param for info in graph.input for d in info.type.tensor_type.shape.dim} - {""}
    if not words or not graph.value_info or model.ByteSize() >= onnx.checker.MAXIMUM_PROTOBUF:
        return {}
    noted, outputs = [*graph.value_info], [*graph.output]
    del graph.value_info[:], graph.output[:]
    try:
        for info in outputs:
            made = graph.output.add()
            made.CopyFrom(info)
            if made.type.HasField("tensor_type"):
                made.type.tensor_type.ClearField("shape")
        found = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except onnx.shape_inference.InferenceError:
        return {}
    finally:
        del graph.output[:]
        graph.value_info.extend(noted)
        graph.output.extend(outputs)
    return {
        info.name: tuple(
            d.dim_param if d.dim_param in words else None for d in info.type.tensor_type.shape.dim
        )
        for info in (*found.value_info, *found.output)
        if info.type.HasField("tensor_type")
    }


def _size(dim: Any) -> Any:
    return dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None


def _infos(graph: Any) -> Iterator[Any]:
    yield from (*graph.input, *graph.value_info, *graph.output)
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _infos(inner)
