"""The gradient of ``recurrent``: an operator whose body is the gradient of one time step."""

from __future__ import annotations

import dpexec.engine.ops  # noqa: F401 - declares the operators
from dpexec.engine.autodiff.bodies import append_gradient_block
from dpexec.engine.ir import opdef
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.opdef import GradContext, GradOp
from dpexec.engine.ir.roles import grad_name

__all__: list[str] = []


@opdef.get("recurrent").grad_maker
def recurrent_grad_maker(context: GradContext) -> list[GradOp]:
    """Make ``recurrent_grad`` and append its block to the program."""
    forward = context.op
    body = forward._block_attr("sub_block")
    outputs, scopes = forward.outputs["outputs"], forward.outputs["step_scopes"]
    given = {name: grad_name(name) for name in [*outputs, *forward.attrs["states"]]}
    block = append_gradient_block(body, given, _stopping(body), set(given.values()))
    inputs = {
        **forward.inputs,
        "outputs": outputs,
        "outputs@GRAD": context.output_grads["outputs"],
        "step_scopes": scopes,
        "step_scopes@GRAD": scopes,
    }
    grads = {
        f"{slot}@GRAD": [
            grad if slot == "initial_states" or grad_name(name) in block.vars else ""
            for name, grad in zip(names, context.input_grads[slot], strict=True)
        ]
        for slot, names in forward.inputs.items()
    }
    return [GradOp("recurrent_grad", inputs, grads, {**forward.plain_attrs(), "sub_block": block})]


def _stopping(body: Block) -> set[str]:
    """Variables of the body at which gradients stop; inputs have the same name outside."""
    return {name for name, var in body.vars.items() if var.stop_gradient}
