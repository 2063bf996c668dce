"""Which biases are added by the matrix products before them, while the results are at hand."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dpexec.graph.ssa import OpNode
from dpexec.runtime.steps import Step

__all__ = ["adds_bias"]

_PAIR = ("mul", "matmul"), ("elementwise_add",)
_READ_THE_SHAPE_OF_X = ("elementwise_add_grad", "fused_elemwise_activation_grad")


def adds_bias(steps: Sequence[Step], fetched: Collection[str]) -> bool:
    """Whether two steps are a product and the addition that alone reads it, as its X.

    The sums have the same bits then. Activations do not come along: the library's ``relu`` turns
    NaN to zero, and its other functions have other last bits; but what is fetched and how tasks
    are cut must not change results.

    Args:
        steps: one after another.
        fetched: names whose values are results of a run.
    """
    if [_type(step) in types for step, types in zip(steps, _PAIR, strict=False)] != [True, True]:
        return False
    product, add = (step.node for step in steps)
    (result,) = (var for var in product.outputs if var.kind == "var")
    readers = [node for node in result.readers if not _reads_shape(node, result.name)]
    return readers == [add] and _is_only_x(add, result.name) and result.name not in fetched


def _type(step: Step) -> str:
    return step.node.op.type if step.node.op and step.node.kind == "compute" else ""


def _reads_shape(node: OpNode, name: str) -> bool:
    return node.op is not None and node.op.type in _READ_THE_SHAPE_OF_X and _is_only_x(node, name)


def _is_only_x(node: OpNode, name: str) -> bool:
    assert node.op is not None
    return node.op.inputs["X"] == [name] and node.op.input_arg_names.count(name) == 1
