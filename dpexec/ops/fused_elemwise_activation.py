"""``fused_elemwise_activation``: an addition and the activation after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.ops._elementwise import broadcast_shape
from dpexec.ops.elementwise_add import elementwise_add, elementwise_add_grad
from dpexec.ops.relu import relu, relu_grad
from dpexec.ops.sigmoid import sigmoid, sigmoid_grad
from dpexec.ops.tanh import tanh, tanh_grad

_ACTIVATIONS = {
    "relu": (relu, relu_grad),
    "sigmoid": (sigmoid, sigmoid_grad),
    "tanh": (tanh, tanh_grad),
}


def _infer(
    x: Spec,
    y: Spec,
    *,
    functor_list: Sequence[str] = (),
    axis: int = -1,
    save_intermediate_out: bool = False,
) -> tuple[Spec, Spec | None]:
    known = [[name, "elementwise_add"] for name in _ACTIVATIONS]
    require(
        list(functor_list) in known,
        f"functor_list {list(functor_list)} is not supported, only "
        + " and ".join(map(str, known)),
    )
    require(x.dtype == y.dtype, f"X and Y must have one data type, but they are {x} and {y}")
    out = x.replace(shape=broadcast_shape(x, y, axis))
    return out, out if save_intermediate_out else None


def _samples(r: SampleRng) -> list[Sample]:
    def inputs(*y_shape: int) -> dict[str, Any]:
        return {"X": r.away_from(0.0, (2, 3, 4)), "Y": r.uniform(-0.01, 0.01, y_shape)}

    add_relu, add_tanh, add_sigmoid = (
        [name, "elementwise_add"] for name in ("relu", "tanh", "sigmoid")
    )
    saved = {"save_intermediate_out": True}
    return [
        Sample(inputs(4), {"functor_list": add_relu, **saved}),
        Sample(inputs(3), {"functor_list": add_relu, "axis": 1, **saved}),
        Sample(inputs(2, 3, 4), {"functor_list": add_tanh, **saved}),
        Sample(inputs(4), {"functor_list": add_sigmoid, **saved}),
    ]


@op(
    "fused_elemwise_activation",
    inputs="X Y",
    outputs="Out IntermediateOut",
    infer=_infer,
    attrs={"scale": 0.0},
    samples=_samples,
)
def fused_elemwise_activation(
    xp: Any,
    x: Any,
    y: Any,
    *,
    functor_list: Sequence[str] = (),
    axis: int = -1,
    save_intermediate_out: bool = False,
) -> tuple[Any, Any]:
    """``activation(x + y)`` for ``functor_list = [activation, "elementwise_add"]``.

    Source: Paddle op ``fused_elemwise_activation``.
    """
    activate, _ = _ACTIVATIONS[functor_list[0]]
    total = elementwise_add(xp, x, y, axis=axis)
    return activate(xp, total), total if save_intermediate_out else None


@fused_elemwise_activation.grad(
    "X?", "Y", "IntermediateOut?", "Out", "Out@GRAD",
    outputs="X@GRAD Y@GRAD IntermediateOut@GRAD?",
    infer=lambda x, y, total, out, d_out: (x or d_out, y, d_out),
)  # fmt: skip
def fused_elemwise_activation_grad(
    xp: Any,
    x: Any,
    y: Any,
    total: Any,
    out: Any,
    d_out: Any,
    *,
    functor_list: Sequence[str] = (),
    axis: int = -1,
    needs: tuple[bool, bool, bool] = (True, True, False),
) -> tuple[Any, ...]:
    """The gradients of both operators; without ``X``, that has the shape of ``Out``."""
    _, activation_grad = _ACTIVATIONS[functor_list[0].removesuffix("_grad")]
    d_total = activation_grad(xp, out, d_out)
    shaped = out if x is None else x
    d_x, d_y = elementwise_add_grad(xp, shaped, y, d_total, axis=axis, needs=needs[:2])
    return d_x, d_y, d_total if needs[2] else None
