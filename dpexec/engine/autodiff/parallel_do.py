"""The gradient of ``parallel_do``: one operator, whose body is the backward pass of the body."""

from __future__ import annotations

import dpexec.engine.ops  # noqa: F401 - declares the operators
from dpexec.engine.autodiff.bodies import append_gradient_block
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir import opdef
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.opdef import GradContext, GradOp
from dpexec.engine.ir.roles import grad_name, part_of_grad

__all__: list[str] = []


@opdef.get("parallel_do").grad_maker
def parallel_do_grad_maker(context: GradContext) -> list[GradOp]:
    """Make ``parallel_do_grad`` and append its block to the program.

    Raises:
        NotImplementedError: a variable of the body has an error clip.
    """
    forward = context.op
    body: Block = forward.attrs["sub_block"]
    outputs = forward.outputs["outputs"]
    _refuse_error_clip(body)
    flowing = zip(outputs, context.output_grads["outputs"], strict=True)
    given = {name: part_of_grad(name) for name, grad in flowing if grad in context.flowing}
    block = append_gradient_block(body, given, context.no_grad)
    read = {name for op in block.ops for name in op.reads}

    def made(slot: str) -> list[str]:
        names, grads = forward.inputs.get(slot, []), context.input_grads.get(slot, [])
        return [
            grad if grad_name(name) in block.vars else ""
            for name, grad in zip(names, grads, strict=True)
        ]

    found = [block.vars.get(grad_name(name)) for name in forward.inputs.get("parameters", [])]
    sparse = [n for n, var in enumerate(found) if var and var.type == VarType.SELECTED_ROWS]
    inputs = {
        **forward.inputs,
        "outputs": outputs,
        "outputs@GRAD": [
            grad if part_of_grad(name) in read else ""
            for name, grad in zip(outputs, context.output_grads["outputs"], strict=True)
        ],
        "parallel_scopes": forward.outputs.get("parallel_scopes", []),
    }
    grads = {f"{slot}@GRAD": made(slot) for slot in ("inputs", "parameters")}
    attrs = {**forward.plain_attrs(), "sub_block": block, "sparse": sparse or None}
    return [GradOp("parallel_do_grad", inputs, grads, attrs)]


def _refuse_error_clip(body: Block) -> None:
    for var in body.vars.values():
        if var.error_clip is not None:
            raise NotImplementedError(
                f"ParallelDo: {var.name}.error_clip inside of the block is not supported; set it "
                "on a variable outside, or clip the gradients of the parameters"
            )
