"""The gradient of ``conditional_block``: an operator whose body has the gradients of its body."""

from __future__ import annotations

from collections.abc import Mapping

import dpexec.ops  # noqa: F401 - declares the operators
from dpexec.autodiff.backward import GradientNames, append_gradients
from dpexec.autodiff.chain import relevant_ops
from dpexec.core.dtypes import VarType
from dpexec.errors import MissingGradientError
from dpexec.ir import opdef
from dpexec.ir.block import Block
from dpexec.ir.opdef import GradContext, GradOp
from dpexec.ir.operator import Operator, op_error
from dpexec.ir.roles import grad_name

__all__: list[str] = []


@opdef.get("conditional_block").grad_maker
def conditional_block_grad_maker(context: GradContext) -> list[GradOp]:
    """``conditional_block_grad``, whose block is appended to the program here."""
    forward = context.op
    body = forward._block_attr("sub_block")
    outputs = dict(zip(forward.outputs["Out"], context.output_grads["Out"], strict=True))
    block = _gradient_block(body, outputs, context.no_grad)
    names = forward.inputs.get("Input", [])
    _refuse_sparse(forward, block, names)
    inputs = {
        "Cond": forward.inputs["Cond"],
        "Input": names,
        "Out": list(outputs),
        "Out@GRAD": list(outputs.values()),
        "Scope": forward.outputs["Scope"],
    }
    grads = [
        grad if grad_name(name) in block.vars else ""
        for name, grad in zip(names, context.input_grads.get("Input", []), strict=True)
    ]
    attrs = {"is_scalar_condition": forward.attrs["is_scalar_condition"], "sub_block": block}
    return [GradOp("conditional_block_grad", inputs, {"Input@GRAD": grads}, attrs)]


def _gradient_block(body: Block, outputs: Mapping[str, str], no_grad: frozenset[str]) -> Block:
    """Append the block that computes the gradients of ``body`` from those of its outputs."""
    program = body.program
    around = program.current_block()
    block = program._create_block()
    block.forward_block_idx = body.idx
    grad_of = GradientNames(block)
    targets = [name for name, grad in outputs.items() if grad and name not in no_grad]
    given = {grad_of(name): [outputs[name]] for name in targets}
    for name in targets:  # operators that compute these are not appended yet
        if not around.has_var(outputs[name]):
            var = body._var_recursive(name)
            around.create_var(name=outputs[name], shape=var.shape, dtype=var.dtype)
    path = relevant_ops(body, set(targets), set(), set(no_grad))
    try:
        append_gradients(block, path, [], given, set(no_grad), grad_of, [])
    finally:
        program._rollback()
    return block


def _refuse_sparse(op: Operator, block: Block, names: list[str]) -> None:
    for name in names:
        var = block.vars.get(grad_name(name))
        if var is not None and var.type == VarType.SELECTED_ROWS:
            problem = (
                f"the gradient of {name} would be sparse (SelectedRows), which does not leave a "
                "block; use is_sparse=False"
            )
            raise MissingGradientError(str(op_error(op, problem, {})))
