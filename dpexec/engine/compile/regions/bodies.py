"""Bodies: the blocks that operators such as ``while`` run; their operators are bound once."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

from dpexec.engine.compile.regions.env import Env, Shard
from dpexec.engine.core.errors import EOFException
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.roles import grad_name
from dpexec.engine.ops._iterations import Course, Ran
from dpexec.engine.ops._totals import Deferred, Total

__all__ = ["Body", "BodyError", "DeferredWork", "Iterations", "Plain", "Runnable", "Whole"]

Call = Callable[[Env], None]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class BodyError(Exception):
    """An operator in a body failed.

    Args:
        op: that operator.
        env: the values that it saw.
        reason: the error that it raised.
    """

    def __init__(self, op: Operator, env: Env, reason: Exception) -> None:
        super().__init__(str(reason))
        self.op, self.env, self.reason = op, env, reason


class Runnable(Protocol):
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
        call: runs its kernel.
        drops: names whose values nobody needs afterwards.
    """

    op: Operator
    call: Call
    drops: Sequence[str]

    def run(self, env: Env) -> None:
        """Run it, see :class:`Runnable`."""
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


class DeferredWork(Deferred, Protocol):
    """Work on arrays that is put off, and then done in order.

    Attributes:
        totals: by name, sums over rounds of values that are read nowhere else. Code that computes
            such a value may add it to the sum itself.
    """

    totals: dict[str, Total]

    def finish(self) -> None:
        """Do all that was put off.

        Raises:
            BodyError: an operator refused its values.
        """


class Whole(Protocol):
    """Runs all rounds of a block as one piece of machine code."""

    def run(self, env: Env, course: Course) -> Ran | None:
        """Run them; None, and nothing is done, if that takes Python.

        Args:
            env: the values around the block; gets new values of those that the rounds write.
            course: how the rounds follow each other.
        """


class _AtOnce:
    """Does all work at once."""

    def __init__(self) -> None:
        self.totals: dict[str, Total] = {}

    def copy(self, into: Any, array: Any) -> None:
        """``into[...] = array``."""
        into[...] = array

    def add(self, into: Any, array: Any) -> None:
        """``into += array``."""
        into += array

    def finish(self) -> None:
        """There is nothing to do."""


class Body:
    """The block of an operator with its kernels.

    Args:
        op: the operator with the attribute ``sub_block``.
        bind: binds an operator of the block.
        together: puts operators together to regions, and keeps the order. It also gets the names of
            the values that are looked at after every round.
        deferred: makes the :class:`DeferredWork` for the values around the block.
        whole: makes what runs all rounds as machine code, from the body.
    """

    def __init__(
        self,
        op: Operator,
        bind: Callable[[Operator], Call],
        together: Callable[[Sequence[Plain], Collection[str]], Sequence[Runnable]] = lambda p, _: p,
        deferred: Callable[[Env], DeferredWork] = lambda _: _AtOnce(),
        whole: Callable[[Body], Whole] | None = None,
    ) -> None:
        block = op._block_attr("sub_block")
        drops = _drops(block, _kept(op, block))
        parts = [Plain(inner, bind(inner), drops[inner]) for inner in block.ops]
        self.block, self.parts = block, together(parts, op.inputs.get("Condition", ()))
        self.deferred = deferred
        reads, self.outer = block._outer_names()
        self.first = _first_values(op, block, reads)
        always = {n for inner in block.ops if not inner.bodies for n in inner.writes}
        self._only_reads = [name for name in reads if name not in self.outer]
        self._goes_on = [name for name in reads if name in self.outer and name in always]
        self._reads = [*self._only_reads, *self._goes_on]
        counting = (inner for inner in block.ops if inner.definition.make_undo)
        self.counters = [n for inner in counting for n in inner.writes if n in self.outer]
        self._number = block.idx
        every = itertools.chain.from_iterable(inner.with_inner() for inner in block.ops)
        self.draws = any(inner.definition.is_random for inner in every)
        self.whole = None if whole is None else whole(self)

    def around(self, env: Env) -> dict[str, Any]:
        """The values around the block that every round reads.

        They are copied into each round's env: a dict finds its own values much faster than those
        of the envs around it.

        Args:
            env: the values around the block.
        """
        found = {name: env.find(name) for name in self._reads}
        return {name: value for name, value in found.items() if value is not None}

    def run(self, inner: Env, around: dict[str, Any], given: Mapping[str, Any]) -> None:
        """Run the operators once.

        Args:
            inner: gets the results, except variables of the block that nobody needs later.
            around: the result of :meth:`around`; gets the new values of what the round changes.
            given: initial values of variables of the block.
        """
        env, forward = inner.around, inner.forward
        assert env is not None
        inner.update(around)
        if forward is not None:
            for name in self._reads:
                if name in forward:
                    inner[name] = forward[name]
        inner.update(given)
        first = {name: env.find(name) for name in self.first}
        for part in self.parts:
            part.run(inner)
        for name in self.outer:
            if name in inner:
                env[name] = inner[name]
        for name in self._goes_on:
            if name in inner:
                around[name] = inner[name]
        for name in self._only_reads:
            if name not in given:
                inner.pop(name, None)
        inner.update(first)
        for name in self.counters:  # kept around the body only, where gradients count them down
            inner.pop(name, None)

    def shard(self, shard: Shard, number: int) -> Shard:
        """The shard of a round; its run differs, so that random operators draw other numbers."""
        if not (number and self.draws):
            return shard
        return replace(shard, run=(shard.run + 1) * 1_000_003 + number * 8191 + self._number)


class Iterations:
    """Runs the block of an operator, once per round; the operator's kernel gets it.

    Args:
        body: the block.
        env: the values around it.
    """

    def __init__(self, body: Body, env: Env) -> None:
        self._body, self._env = body, env
        self._numbers = itertools.count()

    @functools.cached_property
    def _around(self) -> dict[str, Any]:
        return self._body.around(self._env)

    @functools.cached_property
    def _deferred(self) -> DeferredWork:
        return self._body.deferred(self._env)

    def copy(self, into: Any, array: Any) -> None:
        """``into[...] = array``, no later than in :meth:`finish`."""
        self._deferred.copy(into, array)

    def add(self, into: Any, array: Any) -> None:
        """``into += array``, no later than in :meth:`finish`."""
        self._deferred.add(into, array)

    def finish(self) -> None:
        """Do all that was put off."""
        self._deferred.finish()

    def __call__(self, forward: Env | None = None, given: Mapping[str, Any] = _NOTHING) -> Env:
        """Run the block once.

        Args:
            forward: for the block of gradients, the result of the same round of the forward block.
            given: initial values of variables of the block.

        Returns:
            The values that it wrote, without variables of the block that nobody needs afterwards.
        """
        made = self.begin(forward, given)
        self.finish()
        return made

    def total(self, xp: Any, name: str) -> Total:
        """Add up a variable of the block over all rounds, which then do not return it.

        Args:
            xp: the array library.
            name: of the variable.
        """
        self._deferred.totals[name] = Total(xp)
        return self._deferred.totals[name]

    def whole(self, course: Course) -> Ran | None:
        """Run all rounds as one piece of machine code; None, and nothing is done, if they are none.

        Args:
            course: how they follow each other.
        """
        whole = self._body.whole
        return None if whole is None else whole.run(self._env, course)

    def begin(self, forward: Env | None = None, given: Mapping[str, Any] = _NOTHING) -> Env:
        """Like a call, but only conditions may look at numbers before :meth:`finish`."""
        env = self._env
        if env.go_on is not None:
            env.go_on()
        inner = Env(self._body.shard(env.shard, next(self._numbers)), env, forward)
        inner.record, inner.go_on, inner.deferred = env.record, env.go_on, self._deferred
        self._body.run(inner, self._around, given)
        for name, total in self._deferred.totals.items():
            if name in inner:
                total.add(inner.pop(name), self._deferred)
        inner.around = inner.forward = inner.deferred = None  # no cycle may keep arrays alive
        return inner


def _kept(op: Operator, block: Block) -> set[str]:
    """Variables of a body that are needed after it: by its operator, or by its gradients."""
    readers = [b for b in block.program.blocks if b.forward_block_idx == block.idx]
    kept = {name for reader in readers for other in reader.ops for name in other.reads}
    if block.forward_block_idx < 0:
        return kept.union(op.output_arg_names, op.attrs.get("states", ()))
    return kept.union(map(grad_name, [*op.input_arg_names, *op.attrs.get("ex_states", ())]))


def _first_values(op: Operator, block: Block, reads: Iterable[str]) -> list[str]:
    """Variables around a body that it overwrites, and whose earlier values gradients read.

    Variables that an operator updates in place are left out: gradients read their new values.
    """
    readers = [b for b in block.program.blocks if b.forward_block_idx == block.idx]
    wanted = {name for reader in readers for other in reader.ops for name in other.reads}
    in_place = (set(o.input_arg_names) & set(o.output_arg_names) for o in block.ops)
    latest = {*op.inputs.get("Condition", []), *itertools.chain.from_iterable(in_place)}
    overwritten = set(block._outer_names()[1])
    return [name for name in reads if name in wanted & overwritten - latest]


def _drops(block: Block, kept: set[str]) -> dict[Operator, list[str]]:
    """By operator, the block's own variables that it uses last and that nobody needs later."""
    last: dict[str, Operator] = {}
    for op in block.ops:
        last.update(dict.fromkeys((*op.reads, *op.writes), op))
    drops: dict[Operator, list[str]] = {op: [] for op in block.ops}
    for name, op in last.items():
        if name in block.vars and name not in kept:
            drops[op].append(name)
    return drops
