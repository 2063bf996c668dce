"""Which operators a fused node stands for."""

from __future__ import annotations

from dpexec.graph.ssa import OpNode
from dpexec.ir.parts import parts_of as group_parts

__all__ = ["parts_of"]


def parts_of(node: OpNode) -> list[str]:
    """The names of the operators that a node stands for: its own, or those that were fused.

    Args:
        node: of a graph.
    """
    op = node.op
    if node.is_collective and node.name.startswith("fused_"):
        kind = node.name.removeprefix("fused_")
        names = dict.fromkeys(var.name for var in node.outputs if var.kind == "var")
        return [f"{kind} {name}" for name in names]
    if op is None or node.kind != "compute":
        return [node.name]
    if "functor_list" in op.attrs:
        return [name.partition(",")[0] for name in op.attrs["functor_list"]]
    if op.type == "fusion_group":
        return [part.type for part in group_parts(op.attrs["parts"], op.attrs["results"])]
    if op.type.startswith("fused_batch_norm_act"):
        grad = "_grad" * op.type.endswith("_grad")
        fused = [f"batch_norm{grad}", f"{op.attrs['act_type']}{grad}"]
        return fused[::-1] if grad else fused
    if op.type.startswith("fused_") and "Param" in op.inputs:
        return [op.type.removeprefix("fused_")] * len(op.inputs["Param"])
    return [node.name]
