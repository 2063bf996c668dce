"""``export``: a program or a saved model as an ONNX file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from dpexec.engine.core.scope import Scope, global_scope
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.ir import feed_fetch, roles
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.io.inference import read_program
from dpexec.io.loading import read_vars
from dpexec.io.selection import get_program_persistable_vars
from dpexec.io.variables import put
from dpexec.onnx.exporting.mapping import OPSETS
from dpexec.onnx.program_exporter import ValueOf, program_to_model

__all__ = ["export", "model_of"]

_LARGEST = 2**31 - 2**24
"""Bytes of parameters that fit into one file, which protobuf limits to 2 GiB."""


def export(
    model: str | os.PathLike[str] | Program,
    path: str | os.PathLike[str],
    feeds: Sequence[str | Variable] | None = None,
    targets: Sequence[str | Variable] | None = None,
    *,
    opset: int = 17,
    model_filename: str | None = None,
    params_filename: str | None = None,
    scope: Scope | None = None,
) -> onnx.ModelProto:
    """Write a program for prediction, with its parameters, as an ONNX file.

    Dimensions that are unknown until a batch is fed stay open and have names; the first one of the
    only input that has one is ``batch``. Variables keep their names. The documentation of a node is
    the line of the user's code that made the operator. An input ``words`` with sequences becomes
    two inputs: ``words``, the rows of all sequences, and ``words.lengths``, int64, the number of
    rows of each sequence. Nested sequences have ``words.lengths.0``, ``words.lengths.1``, ..., the
    coarsest level first, like ``recursive_sequence_lengths()``. Outputs with sequences are returned
    in the same way.

    Args:
        model: directory of a model that ``save_inference_model`` of Paddle 1.x or of dpexec wrote,
            or a program. A program for training is cut to the operators that ``targets`` need, in
            test mode.
        path: file to write. It is replaced when the new one is complete. Parameters of more than
            2 GiB go to a second file, ``<path>.data``.
        feeds: variables to feed; None takes those of the saved model, or the variables that the
            targets need and no operator makes.
        targets: variables to fetch; None takes those of the saved model.
        opset: version of ONNX's operators, 13 to 22.
        model_filename: file of the program in the directory, ``__model__`` by default.
        params_filename: file with all parameters in the directory; None if each has its own file.
        scope: holds the values of a program's parameters; by default the global scope.

    Returns:
        The model that was written.

    Raises:
        ExportError: some operators cannot be expressed in ONNX; the error lists all of them with
            the lines of code that made them. No file is written.
        EnforceNotMet: a file of the model is missing or damaged, or a parameter has no value.
        ValueError: the opset is not supported, or a program has no targets.

    Example:
        >>> import os, tempfile
        >>> import dpexec as fluid
        >>> from dpexec import onnx
        >>> with tempfile.TemporaryDirectory() as folder, fluid.program_guard(fluid.Program()):
        ...     out = fluid.layers.relu(fluid.data("x", [None, 2]))
        ...     path = os.path.join(folder, "net.onnx")
        ...     model = onnx.export(fluid.default_main_program(), path, ["x"], [out])
        >>> [node.op_type for node in model.graph.node]
        ['Relu']
    """
    made = model_of(
        model, feeds, targets, opset=opset, scope=scope,
        model_filename=model_filename, params_filename=params_filename,
    )  # fmt: skip
    _write(made, Path(path))
    return made


def model_of(
    model: str | os.PathLike[str] | Program,
    feeds: Sequence[str | Variable] | None = None,
    targets: Sequence[str | Variable] | None = None,
    *,
    opset: int = 17,
    model_filename: str | None = None,
    params_filename: str | None = None,
    scope: Scope | None = None,
) -> onnx.ModelProto:
    """The ONNX model that :func:`export` writes."""
    if opset not in OPSETS:
        raise ValueError(f"opset must be {OPSETS[0]} to {OPSETS[-1]}, but is {opset!r}")
    if isinstance(model, Program):
        program, name, scope = model, "program", scope or global_scope()
    else:
        folder, name = os.fspath(model), os.path.basename(os.path.normpath(model))
        program, scope = _loaded(folder, model_filename, params_filename)
    fetched = _names(targets) if targets is not None else feed_fetch.fetched_names(program)
    if not fetched:
        raise ValueError("the program does not say what to fetch: give targets")
    fed = _names(feeds) if feeds is not None else feed_fetch.fed_names(program)
    plain = feed_fetch.without_feed_and_fetch(program)
    wanted = [_last_writer(plain, target, fed) for target in fetched]
    pruned = plain._prune_with_input(fed, wanted)._inference_optimize()
    for name in fed:  # one that no target needs stays an input
        if name not in pruned.global_block().vars:
            pruned.global_block()._clone_variable(plain.global_block().var(name))
    fed = fed or _data_of(pruned)
    return program_to_model(pruned, fed, fetched, _values_in(scope), opset, name)


def _loaded(folder: str, program: str | None, parameters: str | None) -> tuple[Program, Scope]:
    """A saved model, and a new scope with its parameters."""
    found, scope = read_program(folder, program or "__model__"), Scope()
    values = read_vars(folder, get_program_persistable_vars(found), parameters)
    for name, value in values.items():
        put(name, value, scope)
    return found, scope


def _names(variables: Sequence[str | Variable]) -> list[str]:
    given = [variables] if isinstance(variables, (str, Variable)) else list(variables)
    return [var if isinstance(var, str) else var.name for var in given]


def _last_writer(program: Program, name: str, feeds: Sequence[str]) -> Operator | str:
    """The operator that gives a variable its last value, or its name if it is fed or unknown."""
    written = [op for op in program.global_block().ops if name in op.writes]
    forward = [op for op in written if not op.role & roles.OPTIMIZE]
    return name if name in feeds or not forward else forward[-1]


def _data_of(program: Program) -> list[str]:
    """The variables to feed: a program needs them, and none of its operators makes them."""
    block = program.global_block()
    made: set[str] = set()
    found: dict[str, None] = {}
    for op in block.ops:
        for name in op.needs:
            var = block._find_var_recursive(name)
            if name not in made and var is not None and not var.persistable:
                found[name] = None
        made.update(op.writes)
    return list(found)


def _values_in(scope: Scope) -> ValueOf:
    def value_of(name: str) -> np.ndarray[Any, Any] | None:
        holder = scope.find_var(name)
        value = None if holder is None else holder.value
        if not isinstance(value, LoDTensor) or not value._is_initialized():
            return None
        return np.asarray(value.numpy())

    return value_of


def _write(model: onnx.ModelProto, path: Path) -> None:
    """Write the file, and the file of data if there is one, under other names; then rename them."""
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    data = path.with_name(path.name + ".data")
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        unfinished = Path(folder, path.name)
        if size > _LARGEST:
            onnx.save_model(model, unfinished, save_as_external_data=True, location=data.name)
            os.replace(Path(folder, data.name), data)
        else:
            onnx.save_model(model, unfinished)
        os.replace(unfinished, path)
