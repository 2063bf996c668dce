"""Bodies: the blocks that operators run, bound once like everything else of a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpexec.errors import EOFException
from dpexec.ir.block import Block
from dpexec.ir.operator import Operator
from dpexec.runtime.env import Env

__all__ = ["Body", "BodyError"]

Call = Callable[[Env], None]


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


class Body:
    """The block of an operator with its kernels.

    Args:
        op: the operator with the attribute ``sub_block``.
        bind: binds an operator of the block.
    """

    def __init__(self, op: Operator, bind: Callable[[Operator], Call]) -> None:
        block = op._block_attr("sub_block")
        drops = _drops(block)
        self._steps = [(inner, bind(inner), drops[inner]) for inner in block.ops]
        self._outer = block._outer_names()[1]

    def inside(self, env: Env) -> Callable[[], None]:
        """What a kernel calls to run the block once among the values of ``env``.

        Variables of the block itself are gone afterwards.
        """
        return lambda: self._run(env)

    def _run(self, env: Env) -> None:
        inner = Env(env.shard, around=env)
        for op, call, drops in self._steps:
            try:
                call(inner)
            except (EOFException, BodyError):
                raise
            except Exception as error:
                raise BodyError(op, inner, error) from error
            for name in drops:
                inner.pop(name, None)
        for name in self._outer:
            if name in inner:
                env[name] = inner[name]


def _drops(block: Block) -> dict[Operator, list[Any]]:
    """Variables of the block itself after whose last use nobody needs them."""
    last: dict[str, Operator] = {}
    for op in block.ops:
        last.update(dict.fromkeys((*op.reads, *op.writes), op))
    drops: dict[Operator, list[Any]] = {op: [] for op in block.ops}
    for name, op in last.items():
        if name in block.vars:
            drops[op].append(name)
    return drops
