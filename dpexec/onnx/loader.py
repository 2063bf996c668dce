"""``load``: an ONNX model as a program."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

import dpexec.onnx.loading.operators  # noqa: F401 - fills the table of mappings
from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.ir.program import Program, program_guard
from dpexec.engine.ir.variable import Variable
from dpexec.io.variables import put
from dpexec.onnx.loading.builder import Builder
from dpexec.onnx.loading.dtypes import as_var_type
from dpexec.onnx.loading.errors import DAMAGE, LoadError, UnsupportedError
from dpexec.onnx.loading.graph import Graph
from dpexec.onnx.loading.model import infer, prepare, read
from dpexec.onnx.loading.origins import never_trained
from dpexec.onnx.loading.quantized_groups import join_quantized_groups
from dpexec.onnx.loading.values import Value

__all__ = ["load", "load_with_padding"]

Trainable = Callable[[str], bool] | Iterable[str] | None
_ALMOST_INFINITE = 1e30


def load(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    is_test: bool = True,
    trainable: Trainable = None,
    constants: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Load an ONNX model as a program, as ``fluid.io.load_inference_model`` loads a saved one.

    Variables have the names of the model's tensors. Initializers become parameters, whose values
    are stored in the scope after the whole model has been converted. Sizes that the model leaves
    open are open in the program.

    Args:
        model: a path, the bytes of a file, or an ``onnx.ModelProto``. Files of external data are
            looked for beside the path.
        is_test: normalizations use their running statistics without changing them, and dropout
            drops nothing; False builds the program for training.
        trainable: which initializers are trained, by name: a list or a function. By default, all
            initializers of real numbers with more than one element are trained, except running
            statistics, masks with infinite elements, settings of operators, and the buffers and
            constants that PyTorch's exporter marks.
        constants: numbers for inputs of the model that need not be fed.

    Returns:
        The program, the names to feed, and the variables to fetch.

    Raises:
        LoadError: the file cannot be read, or is damaged.
        UnsupportedError: the model has operators, attributes or types that programs do not have;
            all such operators are listed with their nodes.

    Example:
        >>> import os, tempfile
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec import onnx
        >>> with tempfile.TemporaryDirectory() as folder, fluid.program_guard(fluid.Program()):
        ...     path = os.path.join(folder, "net.onnx")
        ...     x = fluid.data("x", [None, 2])
        ...     _ = onnx.export(fluid.default_main_program(), path, ["x"], [fluid.layers.relu(x)])
        ...     program, feeds, fetches = onnx.load(path)
        >>> exe, x = fluid.Executor(fluid.CPUPlace()), np.array([[-1, 2]], "float32")
        >>> exe.run(program, feed={feeds[0]: x}, fetch_list=fetches)
        [array([[0., 2.]], dtype=float32)]
    """
    return load_with_padding(
        model, is_test=is_test, trainable=trainable, constants=constants, padding={}
    )


def load_with_padding(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    is_test: bool,
    trainable: Trainable,
    constants: Mapping[str, Any] | None = None,
    padding: Mapping[str, int],
) -> list[Any]:
    """Like :func:`load`; ``padding`` has rows that are not trained, by the names of tables."""
    proto, folder = read(model)
    fixed = never_trained(proto.graph)
    try:
        proto = prepare(proto, constants or {})
        inferred = infer(proto)
        join_quantized_groups(proto.graph)
    except (*DAMAGE, RuntimeError) as error:
        raise LoadError(f"the model is damaged: {error}") from error
    program = Program()
    versions = {o.domain if o.domain != "ai.onnx" else "": o.version for o in proto.opset_import}
    names = _Names(proto.graph)
    with unique_name.BUILDING, unique_name.guard(names), program_guard(program, Program()):
        builder = Builder(program, inferred.sizes, names.taken, padding)
        weights = {tensor.name for tensor in proto.graph.initializer}
        chosen = _chooser(trainable, weights, fixed)
        graph = Graph(builder, versions, folder, inferred.ranks, is_test, chosen)
        graph.initialize(proto.graph)
        _fix(graph, proto.graph, constants or {})
        feeds = _declare_feeds(graph, proto.graph)
        graph.run(proto.graph.node)
        fetches = [_fetched(graph, info) for info in proto.graph.output]
    for name, array in builder.stored.items():
        tensor = LoDTensor()
        tensor.set(array, None)
        put(name, tensor)
    return [program, feeds, fetches]


class _Names(unique_name.UniqueNameGenerator):
    """Names that a model has nowhere: those that dpexec exported are full of ``cast_1.tmp_0``."""

    def __init__(self, proto: Any) -> None:
        super().__init__()
        self.taken = set(_value_names(proto))

    def __call__(self, key: str) -> str:
        while (name := super().__call__(key)) in self.taken:
            pass
        return name


def _value_names(proto: Any) -> Iterator[str]:
    """Names of all values of a graph and of the graphs inside its nodes."""
    yield from (value.name for value in (*proto.input, *proto.initializer))
    for node in proto.node:
        yield from node.output
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _value_names(graph)


def _fix(graph: Graph, proto: Any, constants: Mapping[str, Any]) -> None:
    """Bind the inputs whose values are given when the model is loaded."""
    known = {info.name for info in proto.input}
    for name, numbers in constants.items():
        if name not in known:
            raise LoadError(f"constants has {name!r}, but the model's inputs are {sorted(known)}")
        array = np.asarray(numbers)
        graph.values[name] = Value(name, array, scalar=array.ndim == 0)


def _chooser(trainable: Trainable, names: set[str], fixed: set[str]) -> Callable[[str, Any], bool]:
    """A function that tells whether an initializer is trained, given its name and value."""
    if trainable is None:
        return lambda name, array: name not in fixed and _is_weight(array)
    if callable(trainable):
        return lambda name, array: bool(trainable(name))
    listed = set(trainable)
    if listed - names:
        raise LoadError(f"trainable has {sorted(listed - names)}, which are no initializers")
    return lambda name, array: name in listed


def _is_weight(array: np.ndarray[Any, Any]) -> bool:
    if array.dtype.kind != "f" or array.size < 2:
        return False
    finite = np.isfinite(array).all()
    return bool(finite and np.abs(array).max() < min(_ALMOST_INFINITE, np.finfo(array.dtype).max))


def _declare_feeds(graph: Graph, proto: Any) -> list[str]:
    """Declare the variables to feed; returns their names."""
    names = []
    for info in proto.input:
        if info.name in graph.values:
            continue
        if not info.type.HasField("tensor_type"):
            raise UnsupportedError(f"input {info.name} is no tensor; programs are fed tensors")
        kind = info.type.tensor_type
        shape = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim]
        if not kind.HasField("shape"):
            raise UnsupportedError(f"input {info.name} has no number of dimensions")
        var = graph.builder.block.create_var(
            name=info.name,
            shape=shape or [1],
            dtype=as_var_type(kind.elem_type, f"input {info.name}"),
            is_data=True,
            stop_gradient=True,
            need_check_feed=True,
        )
        graph.values[info.name] = Value(info.name, None, var, not shape)
        names.append(info.name)
    return names


def _fetched(graph: Graph, info: Any) -> Variable:
    """The variable of an output, which has its name and type."""
    name, element = info.name, info.type.tensor_type.elem_type
    value = graph.values.get(name)
    if value is None or value.is_sequence:
        raise UnsupportedError(f"output {name} is a sequence; programs fetch tensors")
    found = graph.builder.variable(value)
    words = element == TensorProto.STRING and value.element == element  # their numbers
    known = bool(element) and not words
    wanted = as_var_type(element, f"output {name}") if known else found.dtype
    if found.dtype != wanted:
        return graph.builder.cast(found, wanted, name)
    block = graph.builder.block
    taken = found.name == name or block.has_var(name)
    if taken and block.ops:  # a program without operators cannot run
        return found
    made = graph.builder.fresh(name) if taken else block.create_var(name=name)
    if wanted == VarType.INT8:  # cast takes none
        found = graph.builder.cast(found, VarType.INT32, name)
    attrs = {"in_dtype": found.dtype, "out_dtype": wanted}
    small = wanted in (VarType.UINT8, VarType.INT8, VarType.FP16)  # assign has no kernels for them
    graph.builder.add(
        "cast" if small else "assign",
        {"X": found},
        attrs if small else {},
        prefix=name,
        outputs={"Out": made},
    )
    return made
