"""Programs of trainers: they send gradients, and receive parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpexec.core import unique_name
from dpexec.core.dtypes import VarType
from dpexec.ir import roles
from dpexec.ir.block import Block
from dpexec.ir.program import Program
from dpexec.ir.variable import Variable
from dpexec.transpiler.shards import Split
from dpexec.transpiler.updates import Updates

__all__ = ["Trainer", "add_exchange", "add_reception", "remove_updates"]


@dataclass(frozen=True)
class Trainer:
    """What the exchange of a trainer with the servers depends on.

    Args:
        number: of the trainer.
        count: of all trainers.
        endpoints: the servers.
        synchronous: whether servers wait for all trainers.
        split_in_runtime: whether ``send`` and ``recv`` alone name blocks.
    """

    number: int
    count: int
    endpoints: Sequence[str]
    synchronous: bool
    split_in_runtime: bool

    @property
    def suffix(self) -> str:
        """Behind the names of gradients that servers must tell apart."""
        return f".trainer_{self.number}" if self.synchronous and self.count > 1 else ""

    def sent_grad(self, split: Split) -> str:
        """What the program calls the gradient that is sent whole, or cut."""
        return split.grad + (self.suffix if len(split.shards) == 1 else "")


_RPC = {roles.ROLE: roles.RPC}
_DIST = {roles.ROLE: roles.DIST}


def add_exchange(program: Program, splits: Sequence[Split], trainer: Trainer) -> None:
    """Let a program send its gradients and receive the parameters at the end.

    Args:
        program: rewritten in place.
        splits: parameters in the order in which servers were chosen.
        trainer: who runs it.
    """
    block = program.global_block()
    done = {split.param: _add_send(block, split, trainer) for split in splits}
    splits = _in_order_of_updates(block, splits)
    sent = [done[split.param] for split in splits]
    barrier = []
    if trainer.synchronous:
        barrier = [_control(block)]
        _add_barrier(block, "send_barrier", sent, barrier, trainer)
    for split, control in zip(splits, sent, strict=True):
        role_var = [split.param, trainer.sent_grad(split)]
        _add_recv(block, split, barrier or [control], trainer, role_var, trainer.split_in_runtime)
    if trainer.synchronous:
        received = [shard.param for split in splits for shard in split.shards]
        _add_barrier(block, "fetch_barrier", barrier, received, trainer)
    if not trainer.split_in_runtime:
        _add_concats(block, splits, _DIST)


def add_reception(startup: Program, splits: Sequence[Split], trainer: Trainer) -> None:
    """Let a startup program receive the parameters, so that all trainers begin with the same.

    Args:
        startup: rewritten in place.
        splits: parameters in the order of their updates.
        trainer: who runs it.
    """
    block = startup.global_block()
    for split in splits:
        _add_recv(block, split, [], trainer)
    _add_barrier(block, "fetch_barrier", [], [_control(block)], trainer)
    _add_concats(block, splits, {})


def remove_updates(program: Program, startup: Program, updates: Updates) -> None:
    """Remove from a trainer's programs what the servers do.

    Args:
        program: the trainer's; it does not update parameters any more.
        startup: its startup program; it does not initialize optimizers any more.
        updates: the operators to remove.
    """
    done = [op for ops in updates.of.values() for op in ops]
    gone = {id(op) for op in (*done, *updates.rates)}
    block, first = program.global_block(), startup.global_block()
    block.ops = [op for op in block.ops if id(op) not in gone]
    named = {name for op in done for name in op.role_var}
    state = {name for op in done for name in op.input_arg_names} - named
    state -= {name for op in block.ops for name in op.reads}
    first.ops = [op for op in first.ops if not state.intersection(op.output_arg_names)]
    for holder in (block, first):
        for name in state & holder.vars.keys():
            holder._remove_var(name)


def _add_send(block: Block, split: Split, trainer: Trainer) -> Any:
    """Let the gradient of a parameter be sent as soon as it is there; returns what says so."""
    at = 1 + max(i for i, op in enumerate(block.ops) if split.grad in op.output_arg_names)
    grad = trainer.sent_grad(split)
    if grad != split.grad:
        block._rename_var(split.grad, grad)
        for op in block.ops:
            if op.role_var[:1] == [split.param]:
                op._set_attr(roles.ROLE_VAR, [split.param, grad])
    sent = [block.var(grad)]
    if len(split.shards) > 1 and not trainer.split_in_runtime:
        sent = _cut(block, split, trainer, at)
        at += 1
    done = _control(block)
    attrs = {
        "epmap": [shard.endpoint for shard in split.shards],
        "sections": split.rows if trainer.split_in_runtime else [],
        "send_varnames": [s.grad for s in split.shards] if trainer.split_in_runtime else [],
        roles.ROLE_VAR: [split.param, grad],
        **_RPC,
    }
    block._insert_op(at, "send", {"X": sent}, {"Out": done}, attrs)
    return done


def _cut(block: Block, split: Split, trainer: Trainer, at: int) -> list[Variable]:
    grad = block.var(split.grad)
    blocks = [
        _block_var(block, shard.grad + trainer.suffix, shard.shape, grad) for shard in split.shards
    ]
    sparse = grad.type == VarType.SELECTED_ROWS
    kind = "split_selected_rows" if sparse else "split_byref"
    sections = "height_sections" if sparse else "sections"
    block._insert_op(at, kind, {"X": grad}, {"Out": blocks}, {sections: split.rows, **_DIST})
    return blocks


def _block_var(block: Block, name: str, shape: Sequence[int], like: Variable) -> Variable:
    return block.create_var(
        name=name, shape=shape, dtype=like.dtype, type=like.type, persistable=False
    )


def _in_order_of_updates(block: Block, splits: Sequence[Split]) -> list[Split]:
    order = [op.role_var[0] for op in block.ops if op.role & roles.OPTIMIZE and op.role_var]
    return sorted(splits, key=lambda split: order.index(split.param))


def _control(block: Block) -> Variable:
    return block.create_var(name=unique_name.generate("__control_var@rpc"))


def _add_barrier(
    block: Block, kind: str, inputs: list[Any], outputs: list[Any], trainer: Trainer
) -> None:
    attrs = {"endpoints": list(trainer.endpoints), "trainer_id": trainer.number, **_RPC}
    block.append_op(kind, {"X": inputs}, {"Out": outputs}, attrs)


def _add_recv(
    block: Block,
    split: Split,
    after: list[Any],
    trainer: Trainer,
    role_var: Sequence[str] = (),
    names_only: bool = False,
) -> None:
    """Receive the blocks of a parameter; ``names_only``: no variable stands for each of them."""
    names = [shard.param for shard in split.shards]
    if len(names) > 1 and not names_only:
        param = block.var(split.param)
        for shard in split.shards:
            _block_var(block, shard.param, shard.shape, param)
    attrs: dict[str, Any] = {
        "epmap": [shard.endpoint for shard in split.shards],
        "recv_varnames": names if names_only else [],
        "trainer_id": trainer.number,
        **_RPC,
    }
    if role_var:
        attrs[roles.ROLE_VAR] = list(role_var)
    block.append_op("recv", {"X": after}, {"Out": [split.param] if names_only else names}, attrs)


def _add_concats(block: Block, splits: Sequence[Split], attrs: dict[str, Any]) -> None:
    for split in splits:
        if len(split.shards) > 1:
            names = [shard.param for shard in split.shards]
            block.append_op("concat", {"X": names}, {"Out": split.param}, {"axis": 0, **attrs})
