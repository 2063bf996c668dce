"""``fused_batch_norm_act``: batch normalization and the activation after it."""

from __future__ import annotations

import inspect
from typing import Any

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import OpDef, Sample, SampleRng, Spec, op, require
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ops._costs import NORM
from dpexec.engine.ops.batch_norm import batch_norm, batch_norm_grad
from dpexec.engine.ops.relu import relu, relu_grad

_STATISTICS = "MeanOut VarianceOut SavedMean SavedVariance ReserveSpace?"


def _infer(
    x: Spec, scale: Spec, bias: Spec, mean: Spec, variance: Spec,
    *, data_layout: str = "NCHW", epsilon: float = 1e-5, act_type: str = "relu",
) -> tuple[Spec | None, ...]:  # fmt: skip
    require(act_type == "relu", f"act_type {act_type} is not supported, only relu")
    assert batch_norm.infer is not None
    found: tuple[Spec | None, ...] = batch_norm.infer(
        x, scale, bias, mean, variance, None, data_layout=data_layout, epsilon=epsilon
    )
    return found


def _samples(r: SampleRng) -> list[Sample]:
    def sample(*shape: int, **attrs: Any) -> Sample:
        channels = {slot: r.normal((shape[1],)) for slot in ("Bias", "Mean")}
        channels |= {slot: r.uniform(0.5, 1.5, (shape[1],)) for slot in ("Scale", "Variance")}
        return Sample({"X": r.normal(shape), **channels}, attrs, grad=("X", "Scale", "Bias"))

    return [sample(4, 3, 2, 3), sample(6, 3), sample(1, 3), sample(4, 2, 3, momentum=0.5)]


def _with_attributes_of(one: OpDef, kernel: Any) -> Any:
    """Give a kernel the attributes of another one, and ``act_type``."""
    signature = inspect.signature(one.kernel)
    keyword = inspect.Parameter("act_type", inspect.Parameter.KEYWORD_ONLY, default="relu")
    parameters = [*signature.parameters.values(), keyword]
    kernel.__signature__ = signature.replace(parameters=parameters)
    return kernel


def _kernel(xp: Any, *inputs: Any, act_type: str, **attrs: Any) -> tuple[Any, ...]:
    """``relu(batch_norm(x))``. Source: Paddle op ``fused_batch_norm_act``."""
    y, *statistics = batch_norm.kernel(xp, *inputs, None, **attrs)
    return relu(xp, y), *statistics


def _gradient(
    xp: Any, x: Any, y: Any, scale: Any, bias: Any, mean: Any, inverse: Any, d_y: Any,
    *, act_type: str, **attrs: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients of both operators."""
    d_normalized = relu_grad(xp, y, d_y)
    found: tuple[Any, ...] = batch_norm_grad.kernel(
        xp, x, scale, bias, mean, inverse, None, None, d_normalized, **attrs
    )
    return found


def _parts(op: Operator) -> list[str]:
    return [batch_norm.type, op.attrs["act_type"]]


def _parts_of_gradient(op: Operator) -> list[str]:
    return [f"{op.attrs['act_type']}_grad", batch_norm_grad.type]


fused_batch_norm_act = op(
    "fused_batch_norm_act",
    inputs="X Scale Bias Mean Variance",
    outputs="Y " + _STATISTICS,
    infer=_infer,
    samples=_samples,
    capturable=True,
    parts=_parts,
    flops=per_element("X", NORM + 1),
)(_with_attributes_of(batch_norm, _kernel))

fused_batch_norm_act_grad = fused_batch_norm_act.grad(
    "X", "Y", "Scale", "Bias", "SavedMean", "SavedVariance", "Y@GRAD",
    outputs="X@GRAD Scale@GRAD Bias@GRAD",
    infer=lambda x, y, scale, bias, *_: (x, scale, bias),
    parts=_parts_of_gradient,
)(_with_attributes_of(batch_norm_grad, _gradient))  # fmt: skip
