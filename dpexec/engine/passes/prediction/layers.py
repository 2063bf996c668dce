"""``fc_fuse_pass``: a product with weights, its bias and ``relu`` become one operator."""

from __future__ import annotations

from dpexec.engine.graph.operators import Uses
from dpexec.engine.ir.operator import Operator
from dpexec.engine.passes.pairs import fused, pairs
from dpexec.engine.passes.prediction.parameters import Array, Parameters

__all__ = ["FullyConnected", "row_axes"]

Changes = dict[Operator, Operator | None]


class FullyConnected:
    """Products of ``mul`` and ``matmul`` with a parameter, bias and ``relu`` become ``fc``.

    Its weights are brought into the layout of the library once.
    """

    name = "fc_fuse_pass"

    def rewrite(self, parameters: Parameters) -> bool:
        """Rewrite the operators; tell whether anything changed."""
        operators = parameters.operators
        changed = operators.replace(_products(parameters))
        changed |= operators.replace(_biases(parameters))
        return operators.replace(_activations(operators.uses())) or changed


def _products(parameters: Parameters) -> Changes:
    changes: Changes = {}
    for op in parameters.operators.uses().ops:
        if op.type in ("mul", "matmul"):
            weights = parameters.value(op.inputs["Y"][0])
            columns = 0 if weights is None else row_axes(op, weights)
            if columns and not op.attrs.get("use_mkldnn"):
                inputs = {"Input": op.inputs["X"], "W": op.inputs["Y"]}
                attrs = {"in_num_col_dims": columns}
                changes[op] = fused(op, op, "fc", inputs, {"Out": op.outputs["Out"]}, attrs)
    return changes


def row_axes(op: Operator, weights: Array) -> int:
    """How many axes of the input of ``mul`` or ``matmul`` count rows; 0: they are no rows.

    Args:
        op: the operator.
        weights: its right operand.
    """
    var = op.block._find_var_recursive(op.inputs["X"][0])
    if weights.ndim != 2 or var is None or min(weights.shape) == 0:
        return 0
    if op.type == "mul":
        return (
            int(op.attrs.get("x_num_col_dims", 1)) if op.attrs.get("y_num_col_dims", 1) == 1 else 0
        )
    turned = op.attrs.get("transpose_X") or op.attrs.get("transpose_Y")
    scaled = op.attrs.get("alpha", 1.0) != 1.0 or op.attrs.get("head_number", 1) > 1
    return 0 if turned or scaled else max(len(var.shape) - 1, 0)


def _biases(parameters: Parameters) -> Changes:
    changes: Changes = {}
    uses = parameters.operators.uses()
    for op, add in pairs(uses, "fc", "Out", ("elementwise_add",), at_second=True):
        (name,) = add.inputs["Y"]
        bias, rows = parameters.value(name), op.attrs["in_num_col_dims"]
        weights = parameters.value(op.inputs["W"][0])
        fits = weights is not None and bias is not None and bias.shape == weights.shape[1:]
        if not fits or op.inputs.get("Bias") or add.attrs.get("axis", -1) not in (-1, rows):
            continue
        if add.inputs["X"] == op.outputs["Out"] and not op.attrs.get("activation_type"):
            inputs = {**op.inputs, "Bias": [name]}
            changes[op], changes[add] = None, _with(op, add, inputs)
    return changes


def _activations(uses: Uses) -> Changes:
    changes: Changes = {}
    for op, relu in pairs(uses, "fc", "Out", ("relu",), at_second=True):
        if not op.attrs.get("activation_type"):
            changes[op], changes[relu] = None, _with(op, relu, op.inputs, activation_type="relu")
    return changes


def _with(op: Operator, behind: Operator, inputs: dict[str, list[str]], **attrs: str) -> Operator:
    plain = {**op.plain_attrs(), **attrs}
    return fused(op, behind, op.type, inputs, {"Out": behind.outputs["Out"]}, plain)
