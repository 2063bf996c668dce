"""``fuse_gemm_epilogue``: the matrix product also adds the bias and applies relu."""

from __future__ import annotations

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.graph.operators import Operators, Uses
from dpexec.engine.ir.operator import Operator
from dpexec.engine.passes.pairs import fused, pairs

__all__ = ["FuseGemmEpilogue"]

Changes = dict[Operator, Operator | None]


class FuseGemmEpilogue:
    """Fuse ``mul``, the addition of a bias, and ``relu`` into one operator.

    The gradients of weight and bias become one operator as well; the gradient of relu is not
    fused. As in later versions of Paddle, the pass is for GPUs only, where cuBLASLt does everything
    in one launch. The fused operators compute the same as their parts.
    """

    name = "fuse_gemm_epilogue"

    def rewrite(self, operators: Operators) -> bool:
        """Rewrite ``operators``; tell whether anything changed."""
        changed = False
        # Gradients first: that of an addition reads its inputs, though for their shapes alone.
        for step in (_gradients, _products, _activations):
            changed |= operators.replace(step(operators.uses()))
        return changed


def _gradients(uses: Uses) -> Changes:
    changes: Changes = {}
    found = pairs(uses, "elementwise_add_grad", "X@GRAD", ("mul_grad",), at_second=True)
    for add, product in found:
        if _adds_bias(add, product):
            changes[add], changes[product] = None, _backward(add, product)
    return changes


def _products(uses: Uses) -> Changes:
    changes: Changes = {}
    for product, add in pairs(uses, "mul", "Out", ("elementwise_add",), at_second=True):
        if add.inputs["X"] == product.outputs["Out"] and _adds_bias(add, product):
            changes[product], changes[add] = None, _forward(product, add)
    return changes


def _activations(uses: Uses) -> Changes:
    changes: Changes = {}
    for product, act in pairs(uses, "fused_gemm_epilogue", "Out", ("relu",), at_second=True):
        attrs = {**product.plain_attrs(), "activation": act.type}
        one = fused(product, act, product.type, product.inputs, act.outputs, attrs)
        changes[product], changes[act] = None, one
    return changes


def _adds_bias(add: Operator, product: Operator) -> bool:
    """Whether ``add`` adds one number per column to a matrix product of the same data type."""
    (weight,), (bias,) = product.inputs["Y"], add.inputs["Y"]
    found = product.block._find_var_recursive(weight), add.block._find_var_recursive(bias)
    if any(var is None or var.type != VarType.LOD_TENSOR for var in found):
        return False
    kinds = {var.dtype for var in found if var is not None}
    shapes = [tuple(var.shape) for var in found if var is not None]
    rows = product.attrs.get("x_num_col_dims", 1)
    return (
        kinds in ({VarType.FP32}, {VarType.FP16})
        and len(shapes[0]) == 2
        and shapes[1] == shapes[0][1:]
        and add.attrs.get("axis", -1) in (-1, rows)
    )


def _forward(product: Operator, add: Operator) -> Operator:
    inputs = {"X": product.inputs["X"], "Y": product.inputs["Y"], "Bias": add.inputs["Y"]}
    attrs = {"x_num_col_dims": product.attrs.get("x_num_col_dims", 1)}
    return fused(product, add, "fused_gemm_epilogue", inputs, add.outputs, attrs)


def _backward(add: Operator, product: Operator) -> Operator:
    inputs = {slot: product.inputs[slot] for slot in ("X", "Y")}
    inputs |= {"Bias": add.inputs["Y"], "Out@GRAD": add.inputs["Out@GRAD"]}
    outputs = {**product.outputs, "Bias@GRAD": add.outputs.get("Y@GRAD", [])}
    attrs = {"x_num_col_dims": product.attrs.get("x_num_col_dims", 1)}
    return fused(add, product, "fused_gemm_epilogue_grad", inputs, outputs, attrs)
