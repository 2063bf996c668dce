"""``concat``: tensors one after another."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import (
    GradContext,
    GradOp,
    Sample,
    Spec,
    dims_match,
    merge_dim,
    op,
    require,
)
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ops._joins import takes_few
from dpexec.engine.ops._shapes import integer, product, require_axis, require_same_dtype


def _infer(parts: list[Spec], axis_tensor: Spec | None, *, axis: int = 0) -> Spec:
    first = parts[0]
    if axis_tensor is not None:
        return first.replace(shape=(-1,) * first.rank)
    at = require_axis(axis, first)
    shape = list(first.shape)
    for part in parts[1:]:
        require_same_dtype(first, part, "all inputs")
        fits = part.rank == first.rank and all(
            dims_match(a, b)
            for i, (a, b) in enumerate(zip(shape, part.shape, strict=False))
            if i != at
        )
        require(
            fits,
            f"X {first} and {part} cannot be concatenated along axis {axis}: they must have "
            "equally many dimensions, equal but for that one",
        )
        shape = [merge_dim(a, b) for a, b in zip(shape, part.shape, strict=True)]
    lengths = [part.shape[at] for part in parts]
    shape[at] = -1 if product(lengths) < 0 else sum(lengths)
    told = [part.numbers for part in parts if part.numbers is not None]
    numbers = tuple(itertools.chain(*told)) if len(told) == len(parts) else None
    return first.replace(shape=tuple(shape), numbers=numbers)


def _joins_rows(op: Operator, rank: int) -> bool | None:
    """Whether rows are joined; None if the axis is a variable that only a run knows."""
    axis = op.attr("axis")
    for tensor in op.inputs.get("AxisTensor", ()):
        (*others, maker) = [one for one in op.block.ops if tensor in one.output_arg_names] or [op]
        if others or maker.type != "fill_constant" or maker.inputs.get("ValueTensor"):
            return None
        axis = int(maker.attr("value"))
    return axis in (0, -rank)


@op(
    "concat",
    inputs="X[] AxisTensor?",
    infer=_infer,
    attrs={"use_mkldnn": False, "use_quantizer": False},
    samples=lambda r: [
        Sample({"X": [r.normal((2, 3)), r.normal((2, 1)), r.normal((2, 2))]}, {"axis": 1}),
        Sample({"X": [r.normal((1, 3)), r.normal((2, 3))]}, {"axis": -2}),
        Sample({"X": [r.normal((2, 3))] * 2, "AxisTensor": np.array([1])}),
    ],
    capturable=takes_few,
    host_inputs="AxisTensor",
    makes_numbers=True,
    tells_numbers=True,
    grad_lod="flow",
    joins=_joins_rows,
    quantized="inputs outputs",
    flops=0,
)
def concat(xp: Any, parts: list[Any], axis_tensor: Any, *, axis: int = 0) -> Any:
    """All inputs concatenated along ``axis``. Source: Paddle op ``concat``."""
    return xp.concatenate(parts, axis=integer(axis, axis_tensor))


@concat.grad("X[]", "Out@GRAD", "AxisTensor?", outputs="X@GRAD[]", capturable=True, grad_lod="own")
def concat_grad(
    xp: Any,
    parts: list[Any],
    d_out: Any,
    axis_tensor: Any,
    *,
    axis: int = 0,
    needs: tuple[list[bool]] = ([],),
) -> Any:
    """Every input gets its section of the gradient, as a view."""
    at = integer(axis, axis_tensor) % d_out.ndim
    grads: list[Any] = []
    start = 0
    for part, wanted in zip(parts, needs[0], strict=True):
        stop = start + part.shape[at]
        section = (slice(None),) * at + (slice(start, stop),)
        grads.append(d_out[section] if wanted else None)
        start = stop
    return (grads,)


@concat_grad.grad_maker
def concat_grad_grad(context: GradContext) -> list[GradOp]:
    """The gradients of the inputs' gradients, concatenated; zeros for missing ones."""
    (flow,) = context.input_grads["Out@GRAD"]
    made, parts = [], []
    flows = zip(context.op.inputs["X"], context.output_grads["X@GRAD"], strict=True)
    for number, (name, grad) in enumerate(flows):
        parts.append(grad if grad in context.flowing else f"{flow}@ZEROS@{number}")
        if parts[-1] != grad:
            made.append(GradOp("fill_zeros_like", {"X": [name]}, {"Out": [parts[-1]]}))
    inputs = {"X": parts, "AxisTensor": context.op.inputs.get("AxisTensor", [])}
    return [*made, GradOp("concat", inputs, {"Out": [flow]}, context.op.plain_attrs())]
