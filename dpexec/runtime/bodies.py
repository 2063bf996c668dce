"""Bodies: the blocks that operators run, bound once like everything else of a plan."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

from dpexec.errors import EOFException
from dpexec.ir.block import Block
from dpexec.ir.operator import Operator
from dpexec.ir.roles import grad_name
from dpexec.runtime.env import Env, Shard

__all__ = ["Body", "BodyError", "Part", "Plain"]

Call = Callable[[Env], None]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class BodyError(Exception):
    """An operator in a body failed.

    Args:
        op: that operator.
        env: what it saw.
        reason: what it raised.
    """

    def __init__(self, op: Operator, env: Env, reason: Exception) -> None:
        super().__init__(str(reason))
        self.op, self.env, self.reason = op, env, reason


class Part(Protocol):
    """A part of a body: an operator, or several that run together."""

    def run(self, env: Env) -> None:
        """Run it on the values of a round.

        Args:
            env: the values.

        Raises:
            BodyError: an operator failed.
        """


@dataclass(slots=True)
class Plain:
    """An operator of a body.

    Args:
        op: the operator.
        call: does its work.
        drops: names whose values nobody needs afterwards.
    """

    op: Operator
    call: Call
    drops: Sequence[str]

    def run(self, env: Env) -> None:
        """Run it, see :class:`Part`."""
        try:
            if env.record is None:
                self.call(env)
            else:
                start = time.perf_counter()
                self.call(env)
                env.record(self.op.type, start, time.perf_counter())
        except (EOFException, BodyError):
            raise
        except Exception as error:
            raise BodyError(self.op, env, error) from error
        for name in self.drops:
            env.pop(name, None)


class Body:
    """The block of an operator with its kernels.

    Args:
        op: the operator with the attribute ``sub_block``.
        bind: binds an operator of the block.
        together: puts operators together that can run so; what it leaves stays in order.
    """

    def __init__(
        self,
        op: Operator,
        bind: Callable[[Operator], Call],
        together: Callable[[Sequence[Plain]], Sequence[Part]] = lambda parts: parts,
    ) -> None:
        block = op._block_attr("sub_block")
        drops = _drops(block, _kept(op, block))
        self._parts = together([Plain(inner, bind(inner), drops[inner]) for inner in block.ops])
        reads, self._outer = block._outer_names()
        self._first = _first_values(op, block, reads)
        counting = (inner for inner in block.ops if inner.definition.make_undo)
        self._counters = [n for inner in counting for n in inner.writes if n in self._outer]
        self._number = block.idx
        every = itertools.chain.from_iterable(inner.with_inner() for inner in block.ops)
        self._draws = any(inner.definition.is_random for inner in every)

    def inside(self, env: Env) -> Callable[..., Env]:
        """What a kernel calls to run the block once among the values of ``env``.

        Its arguments are, of gradients, what the same call of the forward body returned, and the
        values that variables of the block begin with; it returns what the block wrote, but for its
        own variables that nobody needs afterwards.
        """
        rounds = itertools.count()
        return lambda forward=None, given=_NOTHING: self._run(env, forward, given, next(rounds))

    def _run(self, env: Env, forward: Env | None, given: Mapping[str, Any], number: int) -> Env:
        if env.go_on is not None:
            env.go_on()
        inner = Env(self._shard(env.shard, number), env, forward)
        inner.update(given)
        inner.record, inner.go_on = env.record, env.go_on
        first = {name: env.find(name) for name in self._first}
        for part in self._parts:
            part.run(inner)
        for name in self._outer:
            if name in inner:
                env[name] = inner[name]
        inner.update(first)
        for name in self._counters:  # gradients count them down, around the body
            inner.pop(name, None)
        inner.around = inner.forward = None  # no cycle may keep arrays alive
        return inner

    def _shard(self, shard: Shard, number: int) -> Shard:
        """Random operators draw other numbers in every round of a loop."""
        if not (number and self._draws):
            return shard
        return replace(shard, run=(shard.run + 1) * 1_000_003 + number * 8191 + self._number)


def _kept(op: Operator, block: Block) -> set[str]:
    """Variables of a body that are needed after it: by its operator, or by its gradients."""
    readers = [b for b in block.program.blocks if b.forward_block_idx == block.idx]
    kept = {name for reader in readers for other in reader.ops for name in other.reads}
    if block.forward_block_idx < 0:
        return kept.union(op.output_arg_names, op.attrs.get("states", ()))
    return kept.union(map(grad_name, [*op.input_arg_names, *op.attrs.get("ex_states", ())]))


def _first_values(op: Operator, block: Block, reads: Iterable[str]) -> list[str]:
    """Variables around a body that it overwrites, whose values before that gradients read.

    What an operator works on in place has its new value for those after it.
    """
    readers = [b for b in block.program.blocks if b.forward_block_idx == block.idx]
    wanted = {name for reader in readers for other in reader.ops for name in other.reads}
    in_place = (set(o.input_arg_names) & set(o.output_arg_names) for o in block.ops)
    latest = {*op.inputs.get("Condition", []), *itertools.chain.from_iterable(in_place)}
    overwritten = set(block._outer_names()[1])
    return [name for name in reads if name in wanted & overwritten - latest]


def _drops(block: Block, kept: set[str]) -> dict[Operator, list[str]]:
    """Variables of the block itself after whose last use nobody needs them."""
    last: dict[str, Operator] = {}
    for op in block.ops:
        last.update(dict.fromkeys((*op.reads, *op.writes), op))
    drops: dict[Operator, list[str]] = {op: [] for op in block.ops}
    for name, op in last.items():
        if name in block.vars and name not in kept:
            drops[op].append(name)
    return drops
