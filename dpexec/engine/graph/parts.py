"""Which operators stand behind one node: those it was fused from, those of the blocks it runs."""

from __future__ import annotations

from typing import TypedDict

from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir.group_ops import group_ops
from dpexec.engine.ir.operator import Operator

__all__ = ["InnerOp", "body_of", "parts_of"]


class InnerOp(TypedDict):
    """An operator of a block that a node runs."""

    name: str
    output: str  # the first variable that it writes; "" for none
    depth: int  # how many blocks are around it, within the node


def parts_of(node: OpNode) -> list[str]:
    """The names of the operators that a node stands for: its own, or those that were fused.

    Args:
        node: of a graph.
    """
    op = node.op
    if node.is_collective and node.name.startswith("fused_"):
        names = dict.fromkeys(var.name for var in node.outputs if var.kind == "var")
        return [f"{node.kind} {name}" for name in names]
    if op is None or not node.does.computes:
        return [node.name]
    if "functor_list" in op.attrs:
        return [name.partition(",")[0] for name in op.attrs["functor_list"]]
    if op.type == "fusion_group":
        return [part.type for part in group_ops(op.attrs["parts"], op.attrs["results"])]
    if op.type.startswith("fused_batch_norm_act"):
        grad = "_grad" * op.type.endswith("_grad")
        fused = [f"batch_norm{grad}", f"{op.attrs['act_type']}{grad}"]
        return fused[::-1] if grad else fused
    if op.definition.merges:
        return [op.definition.merges] * len(op.inputs["Param"])
    return [node.name]


def body_of(op: Operator | None, depth: int = 0) -> list[InnerOp]:
    """The operators of the blocks that an operator runs, such as those of a loop, in their order.

    Args:
        op: of a node; None for a node that is no operator of the program.
        depth: how many blocks are around the operator itself.

    Returns:
        Operators of blocks inside follow the one that runs them.
    """
    found: list[InnerOp] = []
    for block in op.bodies if op is not None else ():
        for inner in block.ops:
            output = next(iter(inner.output_arg_names), "")
            found.append({"name": inner.type, "output": output, "depth": depth})
            found += body_of(inner, depth + 1)
    return found
