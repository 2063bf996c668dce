"""``fused_elemwise_activation``: an addition or a product, and a function before or after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import GradContext, GradOp, Sample, SampleRng, Spec, op, require
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ops._edges import NUMBERS, edge
from dpexec.engine.ops._elementwise import broadcast_shape
from dpexec.engine.ops.elementwise_add import elementwise_add, elementwise_add_grad
from dpexec.engine.ops.elementwise_mul import elementwise_mul, elementwise_mul_grad
from dpexec.engine.ops.relu import relu, relu_grad
from dpexec.engine.ops.sigmoid import sigmoid, sigmoid_grad
from dpexec.engine.ops.tanh import tanh, tanh_grad

Gradient = Callable[[Any, Any, Any, float], Any]


def _of_result(gradient: Callable[..., Any]) -> Gradient:
    return lambda xp, out, d_out, scale: gradient(xp, out, d_out)


_UNARY: dict[str, tuple[Callable[..., Any], Gradient]] = {
    "relu": (lambda xp, x, scale: relu(xp, x), _of_result(relu_grad)),
    "sigmoid": (lambda xp, x, scale: sigmoid(xp, x), _of_result(sigmoid_grad)),
    "tanh": (lambda xp, x, scale: tanh(xp, x), _of_result(tanh_grad)),
    "scale": (
        lambda xp, x, scale: x * x.dtype.type(scale),
        lambda xp, out, d_out, scale: d_out * d_out.dtype.type(scale),
    ),
}
"""Functions of an array, and their gradients, computed from results."""

_BINARY = {
    "elementwise_add": (elementwise_add, elementwise_add_grad),
    "elementwise_mul": (elementwise_mul, elementwise_mul_grad),
}


def _names(functor_list: Sequence[str]) -> tuple[str, str, bool]:
    """The function of two arrays, that of one array, and whether the latter is computed last."""
    outer, inner = (name.removesuffix("_grad") for name in functor_list)
    return (inner, outer, True) if inner in _BINARY else (outer, inner, False)


def _infer(
    x: Spec,
    y: Spec,
    *,
    functor_list: Sequence[str],
    axis: int = -1,
    save_intermediate_out: bool = False,
) -> tuple[Spec, Spec | None]:
    names = [name.removesuffix("_grad") for name in functor_list]
    require(
        len(names) == 2 and len({*names} & {*_BINARY}) == len({*names} & {*_UNARY}) == 1,
        f"functor_list {list(functor_list)} is not supported, only one of {[*_BINARY]} and one of "
        f"{[*_UNARY]}, in any order",
    )
    require(x.dtype == y.dtype, f"X and Y must have one data type, but they are {x} and {y}")
    larger = x if x.rank >= y.rank else y
    out = larger.replace(shape=broadcast_shape(x, y, axis))
    middle = out if _names(functor_list)[2] else y
    return out, middle if save_intermediate_out else None


def _samples(r: SampleRng) -> list[Sample]:
    def inputs(*y_shape: int) -> dict[str, Any]:
        return {"X": r.away_from(0.0, (2, 3, 4)), "Y": r.uniform(-0.01, 0.01, y_shape)}

    add_relu, add_tanh, add_sigmoid = (
        [name, "elementwise_add"] for name in ("relu", "tanh", "sigmoid")
    )
    saved = {"save_intermediate_out": True}
    found = [
        Sample(inputs(4), {"functor_list": add_relu, **saved}),
        Sample(inputs(3), {"functor_list": add_relu, "axis": 1, **saved}),
        Sample(inputs(2, 3, 4), {"functor_list": add_tanh, **saved}),
        Sample(inputs(4), {"functor_list": add_sigmoid, **saved}, deviates={"*": _NO_SUCH}),
    ]
    for names in (
        ["scale", "elementwise_add"],
        ["elementwise_add", "relu"],
        ["elementwise_add", "scale"],
        ["elementwise_mul", "scale"],
        ["elementwise_mul", "sigmoid"],
        ["elementwise_mul", "tanh"],
    ):
        for axis, x_shape, y_shape in (
            (1, (2, 3, 4), (3,)),
            (-1, (2, 3, 4), (2, 3, 4)),
            (0, (2, 3, 4), (2, 3)),
            (-1, (4,), (2, 3, 4)),
        ):
            kept = {"save_intermediate_out": axis != 0}
            attrs = {"functor_list": names, "axis": axis, "scale": 0.7, **kept}
            values = {"X": r.away_from(0.0, x_shape), "Y": r.away_from(0.0, y_shape)}
            wrong = axis == 0 and names[1] in ("sigmoid", "tanh")
            deviates = {"Y@GRAD": _NOT_SAVED} if wrong else {}
            found.append(Sample(values, attrs, deviates=deviates))
    attrs = {"functor_list": add_tanh, **saved}
    found.append(edge({"X": NUMBERS * 50, "Y": NUMBERS}, "X@GRAD Y@GRAD", _BOUNDED, attrs))
    return found


_BOUNDED = "limits the arguments of sigmoid and tanh; dpexec does not"
_NO_SUCH = "has no kernel for some pairs of functions; dpexec has kernels for all pairs"
_NOT_SAVED = (
    "has wrong gradients of products with sigmoid(Y) and tanh(Y), unless these are kept; dpexec "
    "has the derivatives"
)


def _parts(op: Operator) -> list[str]:
    return [name.partition(",")[0] for name in op.attrs["functor_list"]]


def _formula(op: Operator) -> str:
    outer, inner = _parts(op)
    x, y = (next(iter(op.inputs.get(slot, ())), slot) for slot in ("X", "Y"))
    two = inner.startswith("elementwise")
    return f"{outer}({inner}({x}, {y}))" if two else f"{outer}({x}, {inner}({y}))"


@op(
    "fused_elemwise_activation",
    inputs="X Y",
    outputs="Out IntermediateOut",
    infer=_infer,
    samples=_samples,
    capturable=True,
    grad_lod="own",
    parts=_parts,
    formula=_formula,
    flops=per_element("Out", 2),
)
def fused_elemwise_activation(
    xp: Any,
    x: Any,
    y: Any,
    *,
    functor_list: Sequence[str],
    axis: int = -1,
    scale: float = 0.0,
    save_intermediate_out: bool = False,
) -> tuple[Any, Any]:
    """``unary(x + y)`` for ``functor_list = [unary, "elementwise_add"]``, else ``x + unary(y)``.

    With ``elementwise_mul``, the sum is a product. ``unary`` is relu, sigmoid, tanh, or scale,
    which multiplies by the attribute ``scale``. ``IntermediateOut`` is the result of the function
    that is computed first. Source: Paddle op ``fused_elemwise_activation``.
    """
    binary, unary, unary_last = _names(functor_list)
    combine, apply = _BINARY[binary][0], _UNARY[unary][0]
    if unary_last:
        middle = combine(xp, x, y, axis=axis)
        out = apply(xp, middle, scale)
    else:
        middle = apply(xp, y, scale)
        out = combine(xp, x, middle, axis=axis)
    return out, middle if save_intermediate_out else None


@fused_elemwise_activation.grad(
    "X?", "Y", "IntermediateOut?", "Out", "Out@GRAD",
    outputs="X@GRAD Y@GRAD IntermediateOut@GRAD?",
    infer=lambda x, y, total, out, d_out: (x or d_out, y, total or d_out),
    parts=_parts,
    formula=_formula,
)  # fmt: skip
def fused_elemwise_activation_grad(
    xp: Any,
    x: Any,
    y: Any,
    middle: Any,
    out: Any,
    d_out: Any,
    *,
    functor_list: Sequence[str] = (),
    axis: int = -1,
    scale: float = 0.0,
    needs: tuple[bool, bool, bool] = (True, True, False),
) -> tuple[Any, ...]:
    """The gradients of both operators; if ``X`` is missing, it has the shape of ``Out``."""
    binary, unary, unary_last = _names(functor_list)
    combine_grad, (apply, apply_grad) = _BINARY[binary][1], _UNARY[unary]
    shaped = out if x is None else x
    if unary_last:
        d_middle = apply_grad(xp, out, d_out, scale)
        d_x, d_y = combine_grad(xp, shaped, y, d_middle, axis=axis, needs=needs[:2])
    else:
        middle = apply(xp, y, scale) if middle is None else middle
        wanted = needs[0], needs[1] or needs[2]
        d_x, d_middle = combine_grad(xp, shaped, middle, d_out, axis=axis, needs=wanted)
        d_y = apply_grad(xp, middle, d_middle, scale) if needs[1] else None
    return d_x, d_y, d_middle if needs[2] else None


_with_all_slots = fused_elemwise_activation.make_grad


@fused_elemwise_activation.grad_maker
def _grad_ops(context: GradContext) -> list[GradOp]:
    """The gradient operator, without the first result if that is not kept, as in Paddle."""
    made = _with_all_slots(context) if _with_all_slots else []
    if context.op.plain_attrs().get("save_intermediate_out"):
        return made
    middle = "IntermediateOut"
    return [
        replace(
            one,
            inputs={slot: names for slot, names in one.inputs.items() if slot != middle},
            outputs={slot: names for slot, names in one.outputs.items() if middle not in slot},
        )
        for one in made
    ]
