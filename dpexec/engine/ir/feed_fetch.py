"""The operators ``feed`` and ``fetch``, which list the inputs and outputs of inference models.

Executors do not need them to feed and fetch. Programs keep them for tools that read or edit saved
models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dpexec.engine.arguments.explained import explained
from dpexec.engine.core.dtypes import VarType

if TYPE_CHECKING:
    from dpexec.engine.ir.block import Block
    from dpexec.engine.ir.operator import Operator
    from dpexec.engine.ir.program import Program

__all__ = [
    "HOLDERS",
    "append_fetch_ops",
    "fed_names",
    "fetched_names",
    "has_feed_operators",
    "has_fetch_operators",
    "prepend_feed_ops",
    "without_feed_and_fetch",
]

HOLDERS = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST)
"""The kinds of the variables that ``feed`` reads and ``fetch`` writes."""


@explained
def prepend_feed_ops(
    inference_program: Program, feed_target_names: Sequence[str], feed_holder_name: str = "feed"
) -> None:
    """Insert a ``feed`` operator per fed variable at the start of a program, the last one first.

    Args:
        inference_program: the program, changed in place.
        feed_target_names: the fed variables; the position is the operator's ``col``.
        feed_holder_name: the variable that these operators read.

    Raises:
        TypeError: ``inference_program`` is no program.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     out = fluid.layers.relu(fluid.data("x", [None, 4]))
        >>> fluid.io.prepend_feed_ops(main, ["x"])
        >>> [op.type for op in main.global_block().ops]
        ['feed', 'relu']
    """
    if not feed_target_names:
        return
    block = inference_program.global_block()
    holder = block.create_var(name=feed_holder_name, type=VarType.FEED_MINIBATCH, persistable=True)
    for column, name in enumerate(feed_target_names):
        block._prepend_op("feed", {"X": [holder]}, {"Out": [block.var(name)]}, {"col": column})


@explained
def append_fetch_ops(
    inference_program: Program, fetch_target_names: Sequence[str], fetch_holder_name: str = "fetch"
) -> None:
    """Append a ``fetch`` operator per fetched variable to a program.

    Args:
        inference_program: the program, changed in place.
        fetch_target_names: the fetched variables; the position is the operator's ``col``.
        fetch_holder_name: the variable that these operators write.

    Raises:
        TypeError: ``inference_program`` is no program.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     out = fluid.layers.relu(fluid.data("x", [None, 4]))
        >>> fluid.io.append_fetch_ops(main, [out.name])
        >>> [op.type for op in main.global_block().ops]
        ['relu', 'fetch']
    """
    block = inference_program.global_block()
    holder = block.create_var(name=fetch_holder_name, type=VarType.FETCH_LIST, persistable=True)
    for column, name in enumerate(fetch_target_names):
        block.append_op("fetch", {"X": [name]}, {"Out": [holder]}, {"col": column})


def _operators(block: Block, type: str) -> list[Operator]:
    """Operators of one kind in the order of their columns."""
    found = (op for op in block.ops if op.type == type)
    return sorted(found, key=lambda op: int(op.attrs["col"]))


def fed_names(program: Program) -> list[str]:
    """Names of an inference model's inputs, in order."""
    return [op.outputs["Out"][0] for op in _operators(program.global_block(), "feed")]


def fetched_names(program: Program) -> list[str]:
    """Names of an inference model's outputs, in order."""
    return [op.inputs["X"][0] for op in _operators(program.global_block(), "fetch")]


@explained
def has_feed_operators(block: Block, feed_targets: Iterable[str], feed_holder_name: str) -> bool:
    """Whether a block has ``feed`` operators.

    Args:
        block: the global block of a program.
        feed_targets: the expected fed variables.
        feed_holder_name: the variable that the operators are expected to read.

    Returns:
        True if there is one at least.

    Raises:
        ValueError: the operators feed other variables, or read another holder.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     x = fluid.data("x", [None, 4])
        >>> block = main.global_block()
        >>> before = fluid.executor.has_feed_operators(block, ["x"], "feed")
        >>> fluid.io.prepend_feed_ops(main, ["x"])
        >>> before, fluid.executor.has_feed_operators(block, ["x"], "feed")
        (False, True)
    """
    operators = _operators(block, "feed")
    fed = {op.outputs["Out"][0] for op in operators}
    _check(operators, "X", fed, set(feed_targets), feed_holder_name)
    return bool(operators)


@explained
def has_fetch_operators(block: Block, fetch_targets: Iterable[Any], fetch_holder_name: str) -> bool:
    """Whether a block has ``fetch`` operators.

    Args:
        block: the global block of a program.
        fetch_targets: the expected fetched variables.
        fetch_holder_name: the variable that the operators are expected to write.

    Returns:
        True if there is one at least.

    Raises:
        ValueError: the operators fetch other variables, or write another holder.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     out = fluid.layers.relu(fluid.data("x", [None, 4]))
        >>> fluid.io.append_fetch_ops(main, [out.name])
        >>> fluid.executor.has_fetch_operators(main.global_block(), [out], "fetch")
        True
    """
    operators = _operators(block, "fetch")
    fetched = {op.inputs["X"][0] for op in operators}
    wanted = {var if isinstance(var, str) else var.name for var in fetch_targets}
    _check(operators, "Out", fetched, wanted, fetch_holder_name)
    return bool(operators)


def _check(
    operators: list[Operator], slot: str, found: set[str], wanted: set[str], holder: str
) -> None:
    if operators and found != wanted:
        raise ValueError(
            f"the program has operators {operators[0].type} for {sorted(found)}, not for "
            f"{sorted(wanted)}"
        )
    for op in operators:
        (name,) = (op.inputs | op.outputs)[slot]
        if name != holder:
            raise ValueError(f"the operators {op.type} of the program use {name!r}, not {holder!r}")


def without_feed_and_fetch(program: Program) -> Program:
    """A copy without operators ``feed`` and ``fetch``; the program itself if it has none."""
    kinds = ("feed", "fetch")
    if not any(op.type in kinds for op in program.global_block().ops):
        return program
    made = program.clone()
    block = made.global_block()
    block.ops = [op for op in block.ops if op.type not in kinds]
    for name in [var.name for var in block.vars.values() if var.type in HOLDERS]:
        del block.vars[name]
    made._changed()
    return made
