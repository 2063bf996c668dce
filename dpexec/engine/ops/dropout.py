"""``dropout``: random zeros."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.random import RandomStream
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ops._shapes import require_float

_BITS = 24
"""Precision of the probability: that of a uniform float32."""


def _infer(
    x: Spec,
    seed: Spec | None,
    *,
    dropout_prob: float = 0.5,
    is_test: bool = False,
    dropout_implementation: str = "downgrade_in_infer",
) -> tuple[Spec, Spec | None]:
    require_float(x)
    require(seed is None or seed.size in (1, -1), f"Seed {seed} must have one element")
    require(0 <= dropout_prob <= 1, f"dropout_prob {dropout_prob} must be between 0 and 1")
    require(
        dropout_implementation in ("downgrade_in_infer", "upscale_in_train"),
        "dropout_implementation must be downgrade_in_infer or upscale_in_train, but is "
        f"{dropout_implementation}",
    )
    return x, None if is_test else x.replace(dtype=VarType.UINT8, lod_level=0)


_DRAWN = dict.fromkeys(
    ("Out", "Mask"),
    (
        "draws the same mask in every step and on every device when there is a "
        "seed; dpexec draws a new one for every operator, step and device, as if one device had "
        "the whole batch"
    ),
)


def _draws_on_gpu(op: Operator) -> bool:
    """Whether the kernel for GPUs computes an operator; it then draws its own random numbers."""
    (name,) = op.inputs["X"]
    var = op.block._find_var_recursive(name)
    single = var is not None and var.dtype == VarType.FP32
    return single and not op.inputs.get("Seed") and bool(op.attrs["dropout_prob"] < 1)


@op(
    "dropout",
    inputs="X Seed?",
    outputs="Out Mask",
    infer=_infer,
    attrs={"fix_seed": False, "seed": 0},
    samples=lambda r: [
        Sample({"X": r.normal((3, 4))}, {"dropout_prob": 0.25}, deviates=_DRAWN),
        Sample(
            {"X": r.normal((3, 4))},
            {"dropout_implementation": "upscale_in_train"},
            deviates=_DRAWN,
        ),
        Sample({"X": r.normal((3, 4))}, {"seed": 5, "fix_seed": True}, deviates=_DRAWN),
        Sample({"X": r.normal((3, 4)), "Seed": np.array([7], np.int32)}, deviates=_DRAWN),
        Sample(
            {"X": np.array([[2.0, 4.0]])},
            {"dropout_prob": 0.25, "is_test": True},
            grad=(),
            expected={"Out": np.array([[1.5, 3.0]])},
        ),
    ],
    capturable=_draws_on_gpu,
    host_inputs="Seed",
    grad_lod="flow",
    precision="gray",
    flops=per_element("Out", 1),
)
def dropout(
    xp: Any,
    x: Any,
    seed: Any = None,
    *,
    rng: RandomStream,
    dropout_prob: float = 0.5,
    is_test: bool = False,
    dropout_implementation: str = "downgrade_in_infer",
) -> tuple[Any, Any]:
    """Set each element to 0 with a probability; ``Mask`` is 1 where it was kept.

    With ``upscale_in_train``, kept elements are divided by ``1 - dropout_prob``; else a test run
    multiplies all elements by that. The input ``Seed`` replaces the attribute.
    Source: Paddle op ``dropout``; Srivastava et al. 2014.
    """
    if is_test:
        upscaled = dropout_implementation == "upscale_in_train"
        return x * x.dtype.type(1 if upscaled else 1 - dropout_prob), None
    if seed is not None:
        rng = rng.with_seed(int(seed.reshape(())))
    if dropout_prob >= 1:
        mask = xp.zeros(x.shape, dtype=np.uint8)
    else:
        lowest = math.ceil(dropout_prob * 2**_BITS) << (64 - _BITS)
        mask = (rng.bits(xp, x.shape) >= np.uint64(lowest)).view(np.uint8)
    return _masked(x, mask, dropout_prob, dropout_implementation), mask


def _masked(x: Any, mask: Any, dropout_prob: float, dropout_implementation: str) -> Any:
    out = x * mask
    if dropout_implementation == "upscale_in_train" and dropout_prob < 1:
        out *= x.dtype.type(1 / (1 - dropout_prob))
    return out


def _infer_grad(mask: Spec, d_out: Spec, *, is_test: bool = False) -> Spec:
    require(not is_test, "the gradient needs is_test=False: a test keeps no mask")
    return d_out


@dropout.grad("Mask", "Out@GRAD", outputs="X@GRAD", infer=_infer_grad, capturable=True)
def dropout_grad(
    xp: Any,
    mask: Any,
    d_out: Any,
    *,
    dropout_prob: float = 0.5,
    dropout_implementation: str = "downgrade_in_infer",
) -> Any:
    """The same mask on the gradient."""
    return _masked(d_out, mask, dropout_prob, dropout_implementation)


@dropout_grad.double_grad(
    "Mask", "DDX", outputs="DDOut", infer=lambda mask, ddx: ddx, capturable=True
)
def dropout_grad_grad(
    xp: Any,
    mask: Any,
    ddx: Any,
    *,
    dropout_prob: float = 0.5,
    dropout_implementation: str = "downgrade_in_infer",
) -> Any:
    """The same mask again."""
    return _masked(ddx, mask, dropout_prob, dropout_implementation)
