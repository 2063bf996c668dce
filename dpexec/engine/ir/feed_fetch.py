"""The operators ``feed`` and ``fetch``: what a saved inference model is fed, and what it gives.

Executors feed and fetch without them, whatever a run is asked for; programs hold them for whoever
reads or edits saved models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

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
"""What operators ``feed`` read, and ``fetch`` write."""


def prepend_feed_ops(
    inference_program: Program, feed_target_names: Sequence[str], feed_holder_name: str = "feed"
) -> None:
    """Let a program begin with an operator for each variable that is fed, the last one first.

    Args:
        inference_program: is changed.
        feed_target_names: what is fed, in order: the ``col`` of each operator.
        feed_holder_name: the variable that these operators read.
    """
    if not feed_target_names:
        return
    block = inference_program.global_block()
    holder = block.create_var(name=feed_holder_name, type=VarType.FEED_MINIBATCH, persistable=True)
    for column, name in enumerate(feed_target_names):
        block._prepend_op("feed", {"X": [holder]}, {"Out": [block.var(name)]}, {"col": column})


def append_fetch_ops(
    inference_program: Program, fetch_target_names: Sequence[str], fetch_holder_name: str = "fetch"
) -> None:
    """Let a program end with an operator for each variable that is fetched.

    Args:
        inference_program: is changed.
        fetch_target_names: what is fetched, in order: the ``col`` of each operator.
        fetch_holder_name: the variable that these operators write.
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
    """What an inference model is fed, in order."""
    return [op.outputs["Out"][0] for op in _operators(program.global_block(), "feed")]


def fetched_names(program: Program) -> list[str]:
    """What an inference model gives, in order."""
    return [op.inputs["X"][0] for op in _operators(program.global_block(), "fetch")]


def has_feed_operators(block: Block, feed_targets: Iterable[str], feed_holder_name: str) -> bool:
    """Whether a block has operators ``feed``.

    Args:
        block: the global block of a program.
        feed_targets: what is to be fed.
        feed_holder_name: the variable that the operators are to read.

    Raises:
        ValueError: they feed something else, or from elsewhere.
    """
    operators = _operators(block, "feed")
    fed = {op.outputs["Out"][0] for op in operators}
    _check(operators, "X", fed, set(feed_targets), feed_holder_name)
    return bool(operators)


def has_fetch_operators(block: Block, fetch_targets: Iterable[Any], fetch_holder_name: str) -> bool:
    """Whether a block has operators ``fetch``.

    Args:
        block: the global block of a program.
        fetch_targets: the variables that are to be fetched.
        fetch_holder_name: the variable that the operators are to write.

    Raises:
        ValueError: they fetch something else, or to elsewhere.
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
