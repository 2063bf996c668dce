"""Recomputation: the backward pass computes activations again instead of keeping them.

The checkpoints cut the forward operators into segments. Only checkpoints and variables that other
segments read stay in memory. Before the gradients of a segment its operators run once more, with
``.subprog_<n>`` in the names of their results. For ``n`` equal layers and ``sqrt(n)`` checkpoints,
memory falls from ``n`` to ``sqrt(n)`` layers, at the cost of a second forward pass.

Source: checkpoints of Paddle 1.8's ``append_backward``; Chen, Xu, Zhang, Guestrin 2016.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from dpexec.engine.autodiff.chain import PendingOp, chain_rule
from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.callsite import warn
from dpexec.engine.ir.operator import Operator

__all__ = ["chain_rule_with_checkpoints", "seed_dropouts"]

Piece = tuple[int, int]
"""A half-open range of positions in the path: first operator, and one behind the last."""


def seed_dropouts(block: Block, path: Sequence[Operator]) -> None:
    """Give dropouts their seeds as variables, so that recomputation draws the same masks.

    This holds for every random operator that takes a seed as a variable.

    Args:
        block: the block of the operators.
        path: operators of the block.
    """
    for op in path:
        seeds = any(slot.name == "Seed" for slot in op.definition.inputs)
        if not (seeds and op.definition.is_random) or op.inputs.get("Seed"):
            continue
        name = unique_name.generate(f"{unique_name.generate('seed')}.tmp")
        block.create_var(name=name, dtype=VarType.INT32, shape=[1])
        fixed = int(op.attrs["seed"]) if op.attrs.get("fix_seed") else 0
        block._add_op(op.idx, "seed", {}, {"Out": name}, {"seed": fixed}, callsite=op.callsite)
        op.inputs["Seed"] = [name]
        for attr in ("fix_seed", "seed"):
            op.attrs.pop(attr, None)


def chain_rule_with_checkpoints(
    path: list[Operator],
    checkpoints: Sequence[str],
    have: set[str],
    no_grad: set[str],
    grad_of: Callable[[str], str],
) -> list[PendingOp]:
    """The gradient operators of ``path``, last first, each segment after its recomputation.

    Args:
        path: operators in program order.
        checkpoints: names of the variables that cut it.
        have: initial gradients; new gradients are added to it.
        no_grad: names of variables at which gradients stop.
        grad_of: returns the name of a variable's gradient.

    Raises:
        NotImplementedError: an operator of ``path`` has a sub-block.
        MissingGradientError: an operator of ``path`` has no gradient.
    """
    for op in path:
        if op.bodies:
            raise NotImplementedError(
                f"recomputation: operator {op.type} has a block of its own; only operators without "
                "one are supported between the parameters and the loss"
            )
    readers, writers = _positions(path)
    pieces = _segments(_in_order(checkpoints, readers, writers), readers, writers)
    kept = set(checkpoints) | _shared(path, pieces, readers, writers)
    renamed: dict[str, str] = {}
    steps: list[PendingOp] = []
    end = len(path)
    for number, (start, stop) in enumerate(reversed(pieces)):
        steps += chain_rule(path[stop:end], have, no_grad, grad_of)
        segment = path[start : min(stop, end)]
        for name in _temporaries(segment, kept):
            renamed.setdefault(name, f"{name}{roles.RECOMPUTED}{number}")
        steps += [
            _again(op, renamed, number) for op in segment if _temporaries([op], kept, written=True)
        ]
        gradients = chain_rule(segment, have, no_grad, grad_of)
        for step in gradients:
            for names in (*step.inputs.values(), *step.outputs.values()):
                names[:] = [renamed.get(name, name) for name in names]
        steps += gradients
        end = start
    return steps + chain_rule(path[:end], have, no_grad, grad_of)


def _positions(path: Sequence[Operator]) -> tuple[Mapping[str, list[int]], Mapping[str, list[int]]]:
    """Per variable, the positions of the operators that read and that write it."""
    readers: defaultdict[str, list[int]] = defaultdict(list)
    writers: defaultdict[str, list[int]] = defaultdict(list)
    for position, op in enumerate(path):
        for name in op.input_arg_names:
            readers[name].append(position)
        for name in op.output_arg_names:
            writers[name].append(position)
    return dict(readers), dict(writers)


def _in_order(
    checkpoints: Sequence[str],
    readers: Mapping[str, list[int]],
    writers: Mapping[str, list[int]],
) -> list[str]:
    """The checkpoints in the order in which they are computed, fed ones first."""
    unused = [name for name in checkpoints if name not in readers and name not in writers]
    if unused:
        warn(f"checkpoints {unused} have no effect: the loss does not depend on them")
    found = (name for name in dict.fromkeys(checkpoints) if name not in unused)
    return sorted(found, key=lambda name: max(writers.get(name, [-1])))


def _segments(
    checkpoints: list[str],
    readers: Mapping[str, list[int]],
    writers: Mapping[str, list[int]],
) -> list[Piece]:
    """The segments between checkpoints, and the operators before the first segment."""
    if len(checkpoints) == 1:
        last = max(writers.get(checkpoints[0], [-1]))
        return [(0, last + 1)] if last > 0 else []
    found = []
    for first, second in itertools.pairwise(checkpoints):
        start, last = min(readers.get(first, [0])), max(writers.get(second, [-1]))
        if first in readers and start < last:
            found.append((start, last + 1))
    return [(0, found[0][0]), *found] if found and found[0][0] else found


def _shared(
    path: Sequence[Operator],
    pieces: Sequence[Piece],
    readers: Mapping[str, list[int]],
    writers: Mapping[str, list[int]],
) -> set[str]:
    """Variables that stay in memory: inputs from outside, and those used in several segments."""
    found = {name for name in readers if name not in writers}
    for start, stop in pieces:
        for op in path[start:stop]:
            found.update(n for n in op.output_arg_names if max(readers.get(n, [-1])) >= stop)
            found.update(n for n in op.input_arg_names if min(writers.get(n, [stop])) < start)
    return found


def _temporaries(ops: Sequence[Operator], kept: set[str], written: bool = False) -> list[str]:
    """Variables of the operators, or those they write, that are neither kept nor persistable."""
    names = (
        n for op in ops for n in (*(() if written else op.input_arg_names), *op.output_arg_names)
    )
    return [
        name
        for name in dict.fromkeys(roles.present(names))
        if name not in kept and not _is_persistable(ops[0].block, name)
    ]


def _is_persistable(block: Block, name: str) -> bool:
    var = block._find_var_recursive(name)
    return var is not None and var.persistable


def _again(op: Operator, renamed: Mapping[str, str], number: int) -> PendingOp:
    """A copy of an operator for the recomputation.

    Persistable results, such as the statistics of batch_norm, are renamed, too: they must be
    updated once per step. The real Paddle updates them twice.
    """
    suffix = f"{roles.RECOMPUTED}{number}"
    stored = {n: n + suffix for n in op.output_arg_names if _is_persistable(op.block, n)}
    return PendingOp(
        op.type,
        {slot: [renamed.get(n, n) for n in names] for slot, names in op.inputs.items()},
        {
            slot: [stored.get(n, renamed.get(n, n)) for n in names]
            for slot, names in op.outputs.items()
        },
        {name: value for name, value in op.attrs.items() if name != roles.ROLE},
        op.callsite,
    )
