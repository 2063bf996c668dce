"""The gradient of ``while``: an operator that runs the rounds backwards, last one first."""

from __future__ import annotations

import dpexec.engine.ops  # noqa: F401 - declares the operators
from dpexec.engine.autodiff.bodies import append_gradient_block
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir import opdef
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.opdef import GradContext, GradOp
from dpexec.engine.ir.roles import grad_name
from dpexec.engine.ir.variable import Variable

__all__: list[str] = []


@opdef.get("while").grad_maker
def while_grad_maker(context: GradContext) -> list[GradOp]:
    """Make ``while_grad`` and append its block to the program.

    ``original_output_grad`` lists the names by which the block reads the gradients of the
    variables that a round wrote.
    """
    forward = context.op
    body = forward._block_attr("sub_block")
    given = _given(context, body)
    arrays = {grad for name, grad in given.items() if _is_array(body, name)}
    late = arrays - context.flowing
    block = append_gradient_block(body, given, context.no_grad, late)
    names = forward.inputs.get("X", [])
    read = {name for op in block.ops for name in op.reads}
    written = {name for op in block.ops for name in op.writes}
    used = [grad for grad in given.values() if grad in read]
    inputs = {
        "X": names,
        "Out": list(given),
        "Out@GRAD": used,
        "StepScopes": forward.outputs["StepScopes"],
    }
    grads = [
        grad if grad_name(name) in written else ""
        for name, grad in zip(names, context.input_grads.get("X", []), strict=True)
    ]
    attrs = {**forward.plain_attrs(), "original_output_grad": used, "sub_block": block}
    zeros = [
        GradOp("fill_zeros_like", {"X": [name]}, {"Out": [grad]})
        for name, grad in given.items()
        if grad in used and grad not in context.flowing | late
    ]
    return [*zeros, GradOp("while_grad", inputs, {"X@GRAD": grads}, attrs)]


def _given(context: GradContext, body: Block) -> dict[str, str]:
    """The outer gradients of the variables that a loop writes; "" for one without gradient.

    Tensor arrays that nothing outside reads get an empty array, to which rounds add gradients.
    """
    outputs = zip(context.op.outputs["Out"], context.output_grads["Out"], strict=True)
    given = {}
    around = body.program.current_block()
    for name, grad in outputs:
        var = body._var_recursive(name)
        given[name] = "" if name in context.no_grad or not _differentiable(var) else grad
        known = around._find_var_recursive(grad) is not None
        if given[name] and _is_array(body, name) and not known:
            around.create_var(name=grad, shape=var.shape, dtype=var.dtype, type=var.type)
    return given


def _differentiable(var: Variable) -> bool:
    return var.dtype in (VarType.FP16, VarType.FP32, VarType.FP64)


def _is_array(body: Block, name: str) -> bool:
    return body._var_recursive(name).type == VarType.LOD_TENSOR_ARRAY
