"""``fuse_all_optimizer_ops``: one operator updates all parameters of one optimizer."""

from __future__ import annotations

from collections.abc import Hashable

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.graph.kinds import COMPUTE
from dpexec.engine.graph.ssa import OpNode, SSAGraph
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator
from dpexec.engine.passes.merging import merge, mergeable

__all__ = ["FuseOptimizer"]


class FuseOptimizer:
    """Merge updates of a device (``adam``, ``momentum``, ``sgd``) that differ in variables alone.

    The updates of a group have the same attributes, learning rate and data type. As in Paddle,
    updates with sparse gradients are not merged. In Reduce mode every owner gets its own fused
    operator. The kernel of each parameter is the same as before, so the bits do not change.
    """

    name = "fuse_all_optimizer_ops"

    def apply(self, graph: SSAGraph) -> bool:
        """Rewrite ``graph``; tell whether anything changed."""
        groups = mergeable((_kind(node), node) for node in graph.ops)
        return merge(graph, ((group, _fused(group)) for group in groups))


def _kind(node: OpNode) -> Hashable:
    op = node.op
    if op is None or not node.does.computes or not op.definition.merged_by:
        return None
    variables = op._variables([*op.inputs["Param"], *op.inputs["Grad"]])
    param, grad = (variables[op.inputs[slot][0]] for slot in ("Param", "Grad"))
    if grad.type == VarType.SELECTED_ROWS:
        return None
    filled = tuple(slot for slot, names in op.inputs.items() if names)
    rate = op.inputs["LearningRate"][0]
    attrs = repr(sorted(op.plain_attrs().items()))
    return node.device, node.body, op.role, op.type, rate, param.dtype, filled, attrs


def _fused(group: list[OpNode]) -> OpNode:
    last = group[-1]
    ops = [node.op for node in group if node.op is not None]
    first = ops[0]
    inputs = {slot: [n for op in ops for n in op.inputs[slot]] for slot in first.inputs}
    outputs = {slot: [n for op in ops for n in op.outputs[slot]] for slot in first.outputs}
    attrs = {**first.attrs, roles.ROLE_VAR: [name for op in ops for name in op.role_var]}
    type = first.definition.merged_by
    op = Operator(first.block, type, inputs, outputs, attrs, first.callsite, False)
    return OpNode(last.id, COMPUTE, op.type, last.device, last.role, op, last.body)
