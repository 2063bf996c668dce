"""Fused operators, lowered to the kernel calls of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.ir import opdef
from dpexec.engine.kernels.batch_norm import batch_norm, batch_norm_grad
from dpexec.engine.kernels.groups import Group
from dpexec.engine.kernels.implementations import find
from dpexec.engine.kernels.lowering import Buffer, Code, Lowering, Value, lowering
from dpexec.engine.kernels.optimizers import adam, momentum, sgd
from dpexec.engine.ops.fused_optimizers import each

__all__ = ["between", "part"]


def _one_by_one(type: str, one: Lowering) -> None:
    """Lower an operator that updates a list of parameters of one element type."""

    @lowering(type, attrs=one.attrs)
    def lower(code: Code, *lists: list[Value], **attrs: Any) -> Any:
        made = [one.function(code, *values, **attrs) for values in each(lists)]
        return made[0]


_one_by_one("fused_adam", adam)
_one_by_one("fused_momentum", momentum)
_one_by_one("fused_sgd", sgd)


def part(code: Code, type: str, inputs: list[Any], outputs: list[Any], **attrs: Any) -> bool:
    """Emit the calls of an operator; False if it has none for such values."""
    lower = find(type, "code")
    if lower is None:
        return False
    defaults = opdef.get(type).attrs
    given = {name: attrs.get(name, defaults.get(name)) for name in lower.attrs}
    return lower(code, inputs, outputs, given) is not False


def between(like: Value) -> Value:
    """Memory for the result of the first of two operators, which the second reads."""
    return Value(like.shape, like.dtype, Buffer(like.nbytes))


@lowering("fused_elemwise_activation", layout="own")
def fused_elemwise_activation(
    code: Code,
    x: Value,
    y: Value,
    out: Value,
    total: Value | None,
    *,
    functor_list: Sequence[str],
    axis: int,
) -> Any:
    """One pass: sum and activation."""
    activation, last = functor_list
    if last != "elementwise_add" or activation == "scale" or out.dtype != "float32":
        return False
    if find(activation, "code") is None:
        return False
    group, middle = Group(code), total or between(out)
    if not part(group, "elementwise_add", [x, y], [middle], axis=axis):
        return False
    if not part(group, activation, [middle], [out]):
        return False
    return group.finish([value for value in (out, total) if value is not None])


@lowering("fused_elemwise_activation_grad", layout="own")
def fused_elemwise_activation_grad(
    code: Code,
    x: Value | None,
    y: Value,
    total: Value | None,
    out: Value,
    d_out: Value,
    dx: Value | None,
    dy: Value | None,
    d_total: Value | None,
    *,
    functor_list: Sequence[str],
    axis: int,
) -> Any:
    """One pass: the gradient of the activation, and its sum over broadcast dimensions."""
    activation, last = (name.removesuffix("_grad") for name in functor_list)
    if last != "elementwise_add" or activation == "scale" or out.dtype != "float32":
        return False
    activation += "_grad"
    if find(activation, "code") is None:
        return False
    group, middle = Group(code), d_total or between(out)
    if not part(group, activation, [out, d_out], [middle]):
        return False
    if not part(group, "elementwise_add_grad", [x or out, y, middle], [dx, dy], axis=axis):
        return False
    return group.finish([value for value in (dx, dy, d_total) if value is not None])


@lowering("fused_batch_norm_act", layout="own", attrs=batch_norm.attrs)
def fused_batch_norm_act(code: Code, *values: Value | None, **attrs: Any) -> Any:
    """The calls of the normalization, which also compute the activation."""
    *inputs, y, mean_out, variance_out, saved_mean, saved_inverse, _ = values
    if y is None or y.dtype != "float32":
        return False
    outputs = [y, mean_out, variance_out, saved_mean, saved_inverse, None]
    with code.along(relu=True):
        return part(code, "batch_norm", [*inputs, None], outputs, **attrs)


@lowering("fused_batch_norm_act_grad", layout="own", attrs=batch_norm_grad.attrs)
def fused_batch_norm_act_grad(
    code: Code,
    x: Value,
    y: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    inverse: Value,
    d_y: Value,
    *outputs: Value | None,
    **attrs: Any,
) -> Any:
    """The calls of the normalization's gradient, which also compute that of the activation."""
    if y.dtype != "float32":
        return False
    inputs = [x, scale, bias, mean, inverse, None, None, d_y]
    with code.along(clipped=y):
        return part(code, "batch_norm_grad", inputs, list(outputs), **attrs)
