"""Cutting programs: keep what given targets need, or prediction; complete such copies.

These methods of programs are private in fluid, but scripts that split networks call them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.variable import Variable

if TYPE_CHECKING:
    from dpexec.engine.ir.program import Program

__all__ = ["Prunable", "deleted_for_good"]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _program(value: Any) -> Program:
    from dpexec.engine.ir.program import Program

    if not isinstance(value, Program):
        raise TypeError(f"a source Program is needed, but received {type(value)}")
    return value


class Prunable:
    """Base class of ``Program`` with the methods for cutting."""

    def _prune(self, targets: Any) -> Program:
        """A copy with the operators that the targets (variables, names, operators) need."""
        return self._prune_with_input([], targets)

    def _prune_with_input(self, feeded_var_names: str | list[str], targets: Any) -> Program:
        """A copy with the operators that compute the targets from the fed variables.

        Operators of the optimizer are kept only as targets. What makes a fed variable is left out,
        but not what changes one, such as a loop whose state it is.

        Raises:
            ValueError: a name is not a variable's, or no operator computes a target.
        """
        program = _program(self)
        feeds = _listed(feeded_var_names)
        if not all(isinstance(name, str) for name in feeds):
            raise ValueError(
                "All feeded_var_names of Program._prune_with_input() can only be str, but "
                f"received {feeds}."
            )
        wanted = _target_operators(program.global_block().ops, feeds, _listed(targets))
        made = program.clone()
        block = made.global_block()
        kept: list[Operator] = []
        needed: set[str] = set()
        for op, twin in zip(program.global_block().ops[::-1], block.ops[::-1], strict=True):
            updates = op.role & roles.OPTIMIZE
            if op in wanted or (not updates and _makes(twin, needed, feeds)):
                kept.append(twin)
                needed.update(twin.reads)
        block.ops = kept[::-1]
        made._drop_unused_blocks()
        used = {name for op in kept for name in (*op.reads, *op.writes)}
        for name in block.vars.keys() - used:
            del block.vars[name]
        made._changed()
        return made

    def _inference_optimize(self, prune_read_op: bool = True) -> Program:
        """A copy in test mode, without readers unless ``prune_read_op`` is False."""
        made = _program(self).clone()
        block = made.global_block()
        reads = [op.idx for op in block.ops if op.type == "read"]
        if prune_read_op:
            del block.ops[: reads[0] + 1 if reads else 0]
            for name, var in list(block.vars.items()):
                if var.type == VarType.READER:
                    del block.vars[name]
        for op in (op for each in made.blocks for op in each.ops):
            if "is_test" in op.attrs:
                op._set_attr("is_test", True)
        return made

    def _sync_with_cpp(self) -> None:
        """Make executors compile the program again; there is no C++ copy to update here."""
        _program(self)._changed()

    def _copy_param_info_from(self, other: Program) -> None:
        """Turn variables into parameters if they are parameters in the other program.

        Raises:
            TypeError: ``other`` is no program.
        """
        block = _program(self).global_block()
        for param in _program(other).global_block().iter_parameters():
            var = block.vars.get(param.name)
            if var is not None:
                twin = copy.copy(param)
                twin.block, twin.op = block, var.op
                twin.set_spec(var.spec)
                block.vars[param.name] = twin
        block.program._changed()

    def _copy_data_info_from(
        self, other: Program, pruned_origin_block_id_map: Mapping[int, int] | None = None
    ) -> None:
        """Copy ``is_data`` and ``stop_gradient`` of the variables from another program.

        Args:
            other: the program that this one was made from.
            pruned_origin_block_id_map: maps block numbers of this program to those of ``other``;
                None if they are equal.

        Raises:
            TypeError: ``other`` is no program.
            ValueError: it lacks a variable of this program.
        """
        originals = _program(other).blocks
        for block in _program(self).blocks:
            original = originals[(pruned_origin_block_id_map or {}).get(block.idx, block.idx)]
            for var in block.vars.values():
                source = original.var(var.name)
                var.is_data = var.is_data or source.is_data
                var.need_check_feed = var.need_check_feed or source.need_check_feed
                var.stop_gradient = var.stop_gradient or source.stop_gradient

    def _copy_dist_param_info_from(self, other: Program) -> None:
        """No effect, accepted for fluid's sake: there are no settings of parameter servers to copy.

        Raises:
            TypeError: ``other`` is no program.
        """
        _program(other)


def _makes(op: Operator, needed: set[str], feeds: list[str]) -> bool:
    """Whether an operator makes a needed variable, or changes a fed one."""
    made = needed.intersection(op.writes)
    return any(name not in feeds or name in op.reads for name in made)


def _target_operators(
    ops: Sequence[Operator], feeds: list[str], targets: list[Any]
) -> list[Operator]:
    found: list[Operator] = []
    for target in targets:
        if isinstance(target, Operator):
            found.append(target)
            continue
        if not isinstance(target, (Variable, str)):
            raise ValueError(
                "All targets of Program._prune_with_input() can only be Variable or Operator, "
                f"but received {type(target)}."
            )
        name = target if isinstance(target, str) else target.name
        if name in feeds:
            continue
        writers = (
            op
            for op in ops
            if name in op.writes and (op in targets or not op.role & roles.OPTIMIZE)
        )
        maker = next(writers, None)
        if maker is None:
            raise ValueError(
                "The target variable used for pruning should have an associated operator that "
                f"generates it, but {name} has none."
            )
        found.append(maker)
    return found


def deleted_for_good(block: Block) -> list[str]:
    """The persistable variables that ``delete_var`` deletes and that no later operator writes.

    Args:
        block: the global block.
    """
    gone: dict[str, None] = {}
    for op in block.ops:
        for name in op.writes:
            gone.pop(name, None)
        if op.type == "delete_var":
            gone.update(dict.fromkeys(op.input_arg_names))
    return [name for name in gone if block._var_recursive(name).persistable]
