"""Saving and loading a program for prediction together with its parameters."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from dpexec.engine.core import unique_name
from dpexec.engine.core.errors import EnforceNotMet, see
from dpexec.engine.formats import streams
from dpexec.engine.ir.attributes import warn_of_unknown_attributes
from dpexec.engine.ir.callsite import warn
from dpexec.engine.ir.desc import parse
from dpexec.engine.ir.feed_fetch import append_fetch_ops, prepend_feed_ops, without_feed_and_fetch
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.io.atomic import stored, write_files
from dpexec.io.loading import load_persistables
from dpexec.io.selection import get_program_persistable_vars, valid_program
from dpexec.io.variables import value_of

__all__ = ["load_inference_model", "save_inference_model"]


def save_inference_model(
    dirname: str,
    feeded_var_names: str | Sequence[str],
    target_vars: Variable | Sequence[Variable],
    executor: Any,
    main_program: Program | None = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Save the program that computes ``target_vars``, with its parameters, in Paddle's format.

    A killed process leaves either the complete old model or the complete new one.

    Args:
        dirname: directory to write to.
        feeded_var_names: names of the variables to feed.
        target_vars: variables to fetch.
        executor: ignored; accepted for compatibility.
        main_program: None takes the default main program; it is not changed.
        model_filename: file of the program, ``__model__`` by default.
        params_filename: one file for all parameters; None writes a file for each.
        export_for_deployment: prune the program. False saves the whole program as
            ``<model_filename>.main_program``.
        program_only: do not save the parameters.

    Returns:
        The targets' names in the saved program.

    Raises:
        ValueError: names or targets have the wrong type, or are not in the program.
        EnforceNotMet: a parameter has no value.

    See Also:
        :func:`~dpexec.io.save_params`: parameters.
        :func:`~dpexec.io.save_persistables`: all that training needs.
        :func:`~dpexec.io.save_vars`: chosen variables.

    Example:
        >>> import dpexec as fluid, tempfile
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     x = fluid.data("x", [None, 2])
        ...     y = fluid.layers.fc(x, size=1)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as folder:
        ...     _ = exe.run(startup)
        ...     _ = fluid.io.save_inference_model(folder, ["x"], [y], exe, main)
        ...     program, feeds, fetches = fluid.io.load_inference_model(folder, exe)
        >>> feeds, [fetch.shape for fetch in fetches]
        (['x'], [(-1, 1)])
    """
    feeds = [feeded_var_names] if isinstance(feeded_var_names, str) else list(feeded_var_names)
    targets = [target_vars] if isinstance(target_vars, Variable) else list(target_vars)
    if export_for_deployment and not all(isinstance(name, str) for name in feeds):
        raise ValueError("'feed_var_names' should be a list of str.")
    named = targets or not export_for_deployment  # a program that is saved whole needs none
    if not named or not all(isinstance(var, Variable) for var in targets):
        raise ValueError("'target_vars' should be a list of Variable.")
    program = valid_program(main_program).clone()
    if any(op.type == "auc" for op in program.global_block().ops):
        warn(
            "please ensure that you have set the auc states to zeros before saving inference model"
        )
    names = _name_targets(program, targets)
    base = os.path.basename(model_filename or "__model__")
    if export_for_deployment:
        program = _prune(program, feeds, names)
    else:
        base += ".main_program"
    model = program.desc.serialize_to_string()
    writers: dict[str, Any] = {base: lambda file: file.write(model)}
    if program_only:
        warn(
            "save_inference_model specified the param `program_only` to True, It will not save "
            "params of Program."
        )
    else:
        writers.update(_parameter_writers(program, params_filename))
    write_files(dirname, writers)
    return names


def _parameter_writers(program: Program, filename: str | None) -> dict[str, Any]:
    values = {v.name: value_of(v.name) for v in get_program_persistable_vars(program)}
    if filename is None:
        return {name: partial(streams.write, value=value) for name, value in values.items()}
    ordered = [values[name] for name in sorted(values)]

    def write(file: Any) -> None:
        for value in ordered:
            streams.write(file, value)

    return {os.path.basename(filename): write}


def _name_targets(program: Program, targets: list[Variable]) -> list[str]:
    """Give each target its own output variable for the saved program to fetch."""
    block = program.global_block()
    names = []
    for index, target in enumerate(targets):
        var = block.var(target.name)
        name = unique_name.generate(f"save_infer_model/scale_{index}.tmp")
        while block.has_var(name):  # of a process before, which saved what is saved again
            name = unique_name.generate(f"save_infer_model/scale_{index}.tmp")
        made = block.create_var(name=name, shape=var.shape, dtype=var.dtype)
        block.append_op("scale", {"X": [var]}, {"Out": [made]}, {"scale": 1.0})
        names.append(made.name)
    return names


def _prune(program: Program, feeds: list[str], targets: list[str]) -> Program:
    """The part of the program that computes the targets from the feeds, in test mode."""
    found: list[Any] = [program.global_block().var(name) for name in feeds]
    made = without_feed_and_fetch(program)._prune_with_input(feeds, targets)._inference_optimize()
    block = made.global_block()
    for var in found:
        if not block.has_var(var.name):
            raise ValueError(
                f"'{var.name}' is to be fed, but nothing that is fetched needs it; leave it out of "
                "feeded_var_names"
            )
    prepend_feed_ops(made, feeds)
    append_fetch_ops(made, targets)
    return made


def load_inference_model(
    dirname: str | None,
    executor: Any,
    model_filename: str | bytes | None = None,
    params_filename: str | bytes | None = None,
    pserver_endpoints: Sequence[str] | None = None,
) -> list[Any]:
    """Load a model saved by :func:`save_inference_model` or Paddle 1.x.

    Args:
        dirname: the model's directory; None if program and parameters are given as bytes.
        executor: ignored; accepted for compatibility.
        model_filename: file of the program, ``__model__`` by default, or its bytes.
        params_filename: the file with all parameters, or its bytes; None for a file for each.
        pserver_endpoints: parameter servers in which to look up rows of distributed tables; None
            keeps the program's.

    Returns:
        The program, the names to feed, and the variables to fetch. Parameters go to the global
        scope.

    Raises:
        EnforceNotMet: a file is damaged, or that of a parameter is missing.
        FileNotFoundError: the file of the program is missing.
        ValueError: there is no such directory, or no parameters are given.

    See Also:
        :func:`~dpexec.io.load_params`: parameters.
        :func:`~dpexec.io.load_persistables`: all that training needs.
        :func:`~dpexec.io.load_vars`: chosen variables.

    Example:
        >>> import dpexec as fluid, tempfile
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     x = fluid.data("x", [None, 2])
        ...     y = fluid.layers.fc(x, size=1)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as folder:
        ...     _ = exe.run(startup)
        ...     _ = fluid.io.save_inference_model(folder, ["x"], [y], exe, main)
        ...     program, feeds, fetches = fluid.io.load_inference_model(folder, exe)
        >>> [op.type for op in program.global_block().ops if op.type not in ("feed", "fetch")]
        ['mul', 'elementwise_add', 'scale']
    """
    if dirname is None:
        if not isinstance(model_filename, bytes) or not isinstance(params_filename, bytes):
            raise ValueError(
                "without a directory, model_filename and params_filename must be the bytes of "
                "program and parameters"
            )
        program = Program.parse_from_string(model_filename)
    else:
        if not os.path.isdir(dirname):
            problem = f"There is no directory named '{dirname}'"
            raise see("parameters-that-are-not-in-the-folder", ValueError(problem))
        name = os.path.basename(str(model_filename or "__model__"))
        if not stored(dirname, name).exists():
            raise FileNotFoundError(
                f"there is no file {name} in {dirname}; the model may have been saved with another "
                "model_filename"
            )
        program = read_program(dirname, name)
        if params_filename is not None:
            params_filename = os.path.basename(str(params_filename))
    if get_program_persistable_vars(program):
        load_persistables(executor, dirname, program, params_filename)
    block = program.global_block()
    if pserver_endpoints:
        for op in block.ops:
            if op.attrs.get("epmap"):
                op._set_attr("epmap", list(pserver_endpoints))
    targets = [block.var(name) for name in program.desc.get_fetch_target_names()]
    return [program, program.desc.get_feed_target_names(), targets]


def read_program(directory: str, name: str) -> Program:
    """Read a program from a file.

    Unknown attributes of operators are ignored with a warning.

    Raises:
        EnforceNotMet: the file cannot be read, or is damaged.
    """
    path = stored(directory, name)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EnforceNotMet(f"cannot read the program in file {path}: {error.strerror}") from None
    try:
        program = parse(data)
    except EnforceNotMet as error:
        raise type(error)(f"file {path}: {error}") from None
    warn_of_unknown_attributes(program, f"file {path}")
    return program
