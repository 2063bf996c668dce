"""Programs of trainers: they send gradients, and receive parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.transpiler.config import DistributeTranspilerConfig
from dpexec.transpiler.shards import Split
from dpexec.transpiler.updates import Updates

__all__ = ["Trainer", "add_exchange", "add_geo_exchange", "add_reception", "remove_updates"]


@dataclass(frozen=True)
class Trainer:
    """A trainer, as far as its exchange with the servers depends on it.

    Args:
        number: number of the trainer.
        count: number of trainers.
        endpoints: endpoints of the servers.
        config: options of the transpiler.
        tables: parameters that only servers hold.
    """

    number: int
    count: int
    endpoints: Sequence[str]
    config: DistributeTranspilerConfig
    tables: frozenset[str] = frozenset()

    @property
    def split_in_runtime(self) -> bool:
        """Whether blocks appear only in ``send`` and ``recv``."""
        return self.config.runtime_split_send_recv

    @property
    def suffix(self) -> str:
        """The suffix of gradients' names if servers must distinguish trainers."""
        return f".trainer_{self.number}" if self.config.waits_for_all and self.count > 1 else ""

    def sent_grad(self, split: Split) -> str:
        """The name of the gradient in the program before it is divided and sent."""
        named = len(split.shards) == 1 and not self.split_in_runtime
        return split.grad + (self.suffix if named else "")


_RPC = {roles.ROLE: roles.RPC}
_DIST = {roles.ROLE: roles.DIST}


def add_exchange(program: Program, splits: Sequence[Split], trainer: Trainer) -> None:
    """Make a program send its gradients, and receive the parameters at the end.

    Args:
        program: rewritten in place.
        splits: parameters in the order in which they were assigned to servers.
        trainer: the trainer that runs it.
    """
    block = program.global_block()
    done = {split.param: _add_send(block, split, trainer) for split in splits}
    splits = _in_order_of_updates(block, splits)
    sent = [done[split.param] for split in splits]
    barrier = _add_send_barrier(block, sent, trainer)
    synchronous = trainer.config.sync_mode
    held = [split for split in splits if split.param not in trainer.tables]
    for split in held:
        role_var = [split.param, trainer.sent_grad(split)]
        after = barrier if synchronous else [done[split.param]]
        _add_recv(block, split, after, trainer, role_var, trainer.split_in_runtime)
    if synchronous:
        received = [shard.param for split in held for shard in split.shards]
        _add_fetch_barrier(block, barrier, received, trainer)
    if not trainer.split_in_runtime:
        _add_concats(block, held, _DIST)


def add_geo_exchange(program: Program, splits: Sequence[Split], trainer: Trainer) -> None:
    """Make a program exchange the changes of its parameters; it keeps its updates.

    Args:
        program: rewritten in place.
        splits: parameters, with deltas in place of gradients.
        trainer: the trainer that runs it.
    """
    block = program.global_block()
    for split in splits:
        sent = _control(block)
        attrs = {
            "epmap": [shard.endpoint for shard in split.shards],
            "sections": split.rows,
            "send_varnames": [shard.grad for shard in split.shards],
            "geo_need_push_nums": trainer.config.geo_sgd_need_push_nums,
            "trainers": trainer.count,
            "is_sparse": block.var(split.grad).type == VarType.SELECTED_ROWS,
            **_RPC,
        }
        block.append_op("send", {"X": split.param}, {"Out": sent}, attrs)
        _add_recv(block, split, [sent], trainer, names_only=True)


def add_reception(startup: Program, splits: Sequence[Split], trainer: Trainer) -> None:
    """Make a startup program receive the parameters, so that all trainers start with equal ones.

    Args:
        startup: rewritten in place.
        splits: parameters in the order of their updates.
        trainer: the trainer that runs it.
    """
    block = startup.global_block()
    held = [split for split in splits if split.param not in trainer.tables]
    for split in held:
        _add_recv(block, split, [], trainer)
    _add_fetch_barrier(block, [], [_control(block)], trainer)
    _add_concats(block, held, {})


def remove_updates(program: Program, startup: Program, updates: Updates) -> None:
    """Remove the servers' operators from a trainer's programs.

    Args:
        program: the trainer's program; loses its updates of parameters.
        startup: its startup program; loses the initialisation of optimizers.
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
    """Send a parameter's gradient as soon as it is computed; returns the signalling variable."""
    at = 1 + max(i for i, op in enumerate(block.ops) if split.grad in op.output_arg_names)
    grad = trainer.sent_grad(split)
    if grad != split.grad:
        block._rename_var(split.grad, grad)
        for op in block.ops:
            if split.grad in op.role_var:
                named = [grad if name == split.grad else name for name in op.role_var]
                op._set_attr(roles.ROLE_VAR, named)
    sent = [block.var(grad)]
    if len(split.shards) > 1 and not trainer.split_in_runtime:
        sent = _cut(block, split, trainer, at)
        at += 1
    done = _control(block)
    names = [shard.grad + trainer.suffix for shard in split.shards]
    attrs = {
        "epmap": [shard.endpoint for shard in split.shards],
        "sections": split.rows if trainer.split_in_runtime else [],
        "send_varnames": names if trainer.split_in_runtime else [],
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


def _add_send_barrier(block: Block, sent: list[Any], trainer: Trainer) -> list[Any]:
    """Signal that all gradients are sent, if servers wait for it; returns the variable for it."""
    config = trainer.config
    if not (config.sync_mode or (config.half_async and config.runtime_split_send_recv)):
        return []
    done = [_control(block)]
    half = {"half_async": not config.sync_mode}
    block.append_op("send_barrier", {"X": sent}, {"Out": done}, {**_ends(trainer), **half})
    return done


def _add_fetch_barrier(
    block: Block, inputs: list[Any], outputs: list[Any], trainer: Trainer
) -> None:
    block.append_op("fetch_barrier", {"X": inputs}, {"Out": outputs}, _ends(trainer))


def _ends(trainer: Trainer) -> dict[str, Any]:
    return {"endpoints": list(trainer.endpoints), "trainer_id": trainer.number, **_RPC}


def _add_recv(
    block: Block,
    split: Split,
    after: list[Any],
    trainer: Trainer,
    role_var: Sequence[str] = (),
    names_only: bool = False,
) -> None:
    """Receive the blocks of a parameter; with ``names_only`` blocks have no variables."""
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
