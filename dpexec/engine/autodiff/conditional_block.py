"""The gradient of ``conditional_block``: an operator whose body is the gradient of the branch."""

from __future__ import annotations

import dpexec.engine.ops  # noqa: F401 - declares the operators
from dpexec.engine.autodiff.bodies import append_gradient_block
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import GradContext, GradOp
from dpexec.engine.ir.roles import grad_name

__all__: list[str] = []


@opdef.get("conditional_block").grad_maker
def conditional_block_grad_maker(context: GradContext) -> list[GradOp]:
    """Make ``conditional_block_grad`` and append its block to the program."""
    forward = context.op
    body = forward._block_attr("sub_block")
    outputs = dict(zip(forward.outputs["Out"], context.output_grads["Out"], strict=True))
    block = append_gradient_block(body, outputs, context.no_grad)
    names = forward.inputs.get("Input", [])
    inputs = {
        "Cond": forward.inputs["Cond"],
        "Input": names,
        "Out": list(outputs),
        "Out@GRAD": list(outputs.values()),
        "Scope": forward.outputs["Scope"],
    }
    written = {name for op in block.ops for name in op.writes}
    grads = [
        grad if grad_name(name) in written else ""
        for name, grad in zip(names, context.input_grads.get("Input", []), strict=True)
    ]
    attrs = {"is_scalar_condition": forward.attrs["is_scalar_condition"], "sub_block": block}
    flowing = {name: grad for name, grad in outputs.items() if grad}
    zeros = [
        GradOp("fill_zeros_like", {"X": [name]}, {"Out": [grad]}, {})
        for name, grad in flowing.items()
        if grad not in context.flowing
    ]
    return [*zeros, GradOp("conditional_block_grad", inputs, {"Input@GRAD": grads}, attrs)]
