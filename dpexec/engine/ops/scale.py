"""``scale``: a linear function with constant coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import GradContext, GradOp, Sample, Spec, op
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ops._integers import converted


def _infer(x: Spec, factor: Spec | None = None) -> Spec:
    return x


def _is_one(op: Operator) -> bool:
    return float(op.attrs.get("scale", 1.0)) == 1.0 and not op.attrs.get("bias", 0.0)


@op(
    "scale",
    inputs="X ScaleTensor?",
    infer=_infer,
    sparse=("X",),
    samples=lambda r: [
        Sample({"X": r.normal((3, 4))}, {"scale": 2.5, "bias": 0.5}),
        Sample({"X": r.normal((5,))}, {"scale": -1.0, "bias": 2.0, "bias_after_scale": False}),
        Sample({"X": r.integers(0, 9, (2, 2))}, {"scale": 3.0, "bias": 1.0}),
        Sample({"X": r.integers(0, 99, (2, 3)).astype(np.uint8)}, {"scale": -2.7, "bias": 300.5}),
        Sample({"X": r.normal((2, 3)), "ScaleTensor": np.array([0.5])}, {"bias": 1.0}, grad=("X",)),
        Sample(
            {"X": SelectedRows(np.array([3, 0]), 5, r.normal((2, 2)))},
            {"scale": -2.0},
            deviates={
                "*": "scales SelectedRows in place only; dpexec also scales into another output"
            },
        ),
    ],
    capturable=True,
    copies=_is_one,
    makes_numbers=True,
    grad_lod="flow",
    precision="gray",
    fuses=True,
    folds=True,
    quantized="outputs",
    flops=per_element("Out", 2),
)
def scale(
    xp: Any,
    x: Any,
    factor: Any = None,
    *,
    scale: float = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
) -> Any:
    """``scale * x + bias``, or ``scale * (x + bias)``. Source: Paddle op ``scale``."""
    if isinstance(x, SelectedRows):
        return SelectedRows(x.row_array, x.height_, x.value * x.value.dtype.type(scale))
    by = converted(x.dtype, scale) if factor is None else factor.reshape(()).astype(x.dtype)
    if not bias_after_scale:
        return (x + converted(x.dtype, bias)) * by
    out = x * by
    if bias:
        out += converted(x.dtype, bias)
    return out


@scale.grad_maker
def scale_grad(context: GradContext) -> list[GradOp]:
    """The gradient is the same op without bias, as Paddle's program dumps show."""
    attrs = {**context.op.plain_attrs(), "bias": 0.0, "bias_after_scale": True}
    inputs = {"X": context.output_grads["Out"]}
    if context.op.inputs.get("ScaleTensor"):
        inputs["ScaleTensor"] = context.op.inputs["ScaleTensor"]
    return [GradOp("scale", inputs, {"Out": context.input_grads["X"]}, attrs)]
