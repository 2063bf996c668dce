"""The operators behind a node: the parts of a fused operator, and the operators of its bodies."""

from __future__ import annotations

import os
from typing import TypedDict

from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir.group_ops import group_ops
from dpexec.engine.ir.operator import Operator

__all__ = ["InnerOp", "body_of", "expression_of", "line_of", "parts_of"]


class InnerOp(TypedDict):
    """An operator of a block that a node runs."""

    name: str
    output: str  # the first variable that it writes; "" for none
    depth: int  # how many blocks are around it, within the node
    reads: list[str]  # names of variables
    writes: list[str]
    shapes: list[list[int] | None]  # of what it writes, as declared; None if unknown
    line: str | None  # where the user made it, without folders


def parts_of(node: OpNode) -> list[str]:
    """The types of the operators that a node stands for: its own, or those of its fused parts.

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


def expression_of(node: OpNode) -> str:
    """A formula of the computation of a fused node; "" for other nodes.

    Args:
        node: of a graph.
    """
    op = node.op
    if op is None or not node.does.computes:
        return ""
    if "functor_list" in op.attrs:
        outer, inner = (name.partition(",")[0] for name in op.attrs["functor_list"])
        x, y = (next(iter(op.inputs.get(slot, ())), slot) for slot in ("X", "Y"))
        two = any(name.startswith("elementwise") for name in (inner,))
        return f"{outer}({inner}({x}, {y}))" if two else f"{outer}({x}, {inner}({y}))"
    if op.type != "fusion_group":
        return ""
    values = dict(enumerate(name for names in op.inputs.values() for name in names))
    lines = []
    for part in group_ops(op.attrs["parts"], op.attrs["results"]):
        reads = [values.get(k, f"v{k}") for numbers in part.inputs.values() for k in numbers]
        made = [k for numbers in part.outputs.values() for k in numbers if k >= 0]
        text = f"{part.type}({', '.join(reads)})"
        values.update((k, f"v{k}") for k in made)
        lines.append(f"{', '.join(f'v{k}' for k in made)} = {text}")
    return "; ".join(lines)


def line_of(op: Operator | None) -> str | None:
    """The user's line without folders, so that graph files do not reveal paths of the machine.

    Args:
        op: the node's operator; None for a node that is no operator of the program.
    """
    if op is None or op.callsite is None:
        return None
    return f"{os.path.basename(op.callsite.filename)}:{op.callsite.line}"


def body_of(op: Operator | None, depth: int = 0) -> list[InnerOp]:
    """The operators of the blocks that an operator runs, such as those of a loop, in their order.

    Args:
        op: the node's operator; None for a node that is no operator of the program.
        depth: how many blocks are around the operator itself.

    Returns:
        The operators; those of a nested block follow the operator that runs the block.
    """
    found: list[InnerOp] = []
    for block in op.bodies if op is not None else ():
        for inner in block.ops:
            output = next(iter(inner.output_arg_names), "")
            writes = list(dict.fromkeys(name for name in inner.output_arg_names if name))
            found.append(
                {
                    "name": inner.type,
                    "output": output,
                    "depth": depth,
                    "reads": list(dict.fromkeys(name for name in inner.input_arg_names if name)),
                    "writes": writes,
                    "shapes": [_shape(inner, name) for name in writes],
                    "line": line_of(inner),
                }
            )
            found += body_of(inner, depth + 1)
    return found


def _shape(op: Operator, name: str) -> list[int] | None:
    """The declared shape of a variable that an operator writes."""
    declared = op.block._find_var_recursive(name)
    spec = None if declared is None else declared.spec
    return None if spec is None else list(spec.shape)
