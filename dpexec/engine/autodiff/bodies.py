"""Gradients of the blocks that operators run."""

from __future__ import annotations

from collections.abc import Mapping, Set

from dpexec.engine.autodiff.backward import GradientNames, append_gradients
from dpexec.engine.autodiff.chain import relevant_ops
from dpexec.engine.ir.block import Block

__all__ = ["append_gradient_block"]


def append_gradient_block(
    body: Block,
    given: Mapping[str, str],
    no_grad: Set[str],
    inside: Set[str] = frozenset(),
) -> Block:
    """Append the block that computes the gradients of a body to the program.

    Args:
        body: the forward block; the program's current block must be the one for its gradient.
        given: maps outputs of the body to variables with their gradients. Missing ones are made in
            the outer block.
        no_grad: names of variables at which gradients stop.
        inside: gradients in ``given`` that belong to the new block, and that the operator running
            it sets.

    Returns:
        A block inside the current one; gradients are named after their variables, with ``@GRAD``.
    """
    program = body.program
    around = program.current_block()
    block = program._create_block()
    block.forward_block_idx = body.idx
    grad_of = GradientNames(block)
    targets = [name for name, grad in given.items() if grad and name not in no_grad]
    supplied = {grad_of(name): [given[name]] for name in targets}
    for name in targets:  # operators that compute these are not appended yet
        if given[name] not in inside and around._find_var_recursive(given[name]) is None:
            var = body._var_recursive(name)
            around.create_var(name=given[name], shape=var.shape, dtype=var.dtype, type=var.type)
    path = relevant_ops(body.ops, set(given), set(), set(no_grad))
    outside = set(given.values()) - inside
    try:
        append_gradients(block, path, [], supplied, set(no_grad), grad_of, [], outside=outside)
    finally:
        program._rollback()
    return block
