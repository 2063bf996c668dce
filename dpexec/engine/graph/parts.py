"""The operators behind a node: the parts of a fused operator, and the operators of its bodies."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from dpexec.engine.graph.ssa import OpNode
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
    kernels: NotRequired[list[int]]  # listings of what did its work, as `kernels` of a node


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
    if op.definition.parts is not None:
        return op.definition.parts(op)
    if op.definition.merges:
        return [op.definition.merges] * len(op.inputs["Param"])
    return [node.name]


def expression_of(node: OpNode) -> str:
    """A formula of the computation of a fused node; "" for other nodes.

    Args:
        node: of a graph.
    """
    op = node.op
    if op is None or not node.does.computes or op.definition.formula is None:
        return ""
    return op.definition.formula(op)


def line_of(op: Operator | None) -> str | None:
    """The user's line without folders, so that graph files do not reveal paths of the machine.

    Args:
        op: the node's operator; None for a node that is no operator of the program.
    """
    return None if op is None or op.callsite is None else op.callsite.place


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
            output = next(iter(inner.writes), "")
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
