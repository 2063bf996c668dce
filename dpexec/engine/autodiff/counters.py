"""Counters of loops, for another backward pass through the same operators.

A backward pass counts them down again, so that gradients find the values of each round. A pass that
comes after it needs them as the forward pass left them: a copy is made in front of the first pass,
and taken back in front of the later ones. Paddle goes on with the counters as they are, and gives
no gradients or wrong ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator

__all__ = ["bring_back"]


def bring_back(block: Block, path: Sequence[Operator]) -> None:
    """Give counters that an earlier backward pass counted down the values of the forward pass.

    Args:
        block: the block of the operators, and of the backward passes.
        path: the operators that are differentiated, in order.
    """
    counters = sorted(
        name for name in {name for op in path for name in _counted(op)} if name in block.vars
    )
    if not counters:
        return
    passes = [op for op in block.ops[path[-1].idx + 1 :] if _is_backward(op)]
    for name in counters:
        if any(name in inner.output_arg_names for op in passes for inner in op.with_inner()):
            _bring_back(block, name, passes[0])


def _counted(op: Operator) -> list[str]:
    counting = (inner for inner in op.with_inner() if inner.definition.make_undo)
    return [name for inner in counting for name in inner.output_arg_names]


def _is_backward(op: Operator) -> bool:
    return bool(int(op.attrs.get(roles.ROLE, 0)) & roles.BACKWARD)


def _bring_back(block: Block, name: str, first: Operator) -> None:
    """Copy a counter in front of the first pass, unless that was done, and take the copy back."""
    kept = f"{name}@FORWARD"
    if not block.has_var(kept):
        counter = block.var(name)
        block.create_var(name=kept, shape=counter.shape, dtype=counter.dtype, stop_gradient=True)
        block._insert_op(first.idx, "assign", {"X": name}, {"Out": kept})
    block.append_op("assign", {"X": kept}, {"Out": name})
