"""``data_norm``: features normalised by sums that are collected over all batches."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import (
    GradContext,
    GradOp,
    Sample,
    SampleRng,
    Spec,
    dims_match,
    op,
    require,
)
from dpexec.engine.ops._shapes import require_same_dtype


def _infer(
    scale_w: Spec | None,
    bias: Spec | None,
    x: Spec,
    size: Spec,
    total: Spec,
    squares: Spec,
    *,
    epsilon: float = 1e-4,
    slot_dim: int = -1,
    enable_scale_and_shift: bool = False,
    data_layout: str = "NCHW",
) -> tuple[Spec, Spec, Spec]:
    require(0 <= epsilon <= 0.001, f"epsilon is {epsilon}, but must lie between 0 and 0.001")
    require(
        data_layout in ("NCHW", "NHWC", "AnyLayout"),
        f"data_layout must be NCHW or NHWC, but is {data_layout}",
    )
    require(x.rank == 2, f"X {x} must be a matrix (N, features)")
    parts = {"BatchSize": size, "BatchSum": total, "BatchSquareSum": squares}
    if enable_scale_and_shift:
        require(
            scale_w is not None and bias is not None,
            "enable_scale_and_shift needs the inputs scale_w and bias",
        )
        parts |= {"scale_w": scale_w, "bias": bias}  # type: ignore[dict-item]
    for name, spec in parts.items():
        require_same_dtype(x, spec, f"X and {name}")
        require(
            spec.rank == 1 and dims_match(spec.shape[0], x.shape[1]),
            f"{name} {spec} must have one element per feature of X {x}",
        )
    require(
        slot_dim <= 0 or x.shape[1] < 0 or x.shape[1] % slot_dim == 0,
        f"slot_dim is {slot_dim}, but X {x} must be made of such slots",
    )
    return x, size.replace(lod_level=0), size.replace(lod_level=0)


def _shown(xp: Any, x: Any, slot_dim: int) -> Any:
    """Whether each element belongs to a slot that was shown: its first element is not 0."""
    starts = xp.abs(x[:, ::slot_dim]) >= 1e-7
    return xp.repeat(starts, slot_dim, axis=1)


def _samples(r: SampleRng) -> list[Sample]:
    def inputs(scaled: bool = False) -> dict[str, Any]:
        made = {
            "X": r.uniform(0.5, 1.5, (5, 4)),
            "BatchSize": r.uniform(10.0, 20.0, (4,)),
            "BatchSum": r.uniform(1.0, 2.0, (4,)),
            "BatchSquareSum": r.uniform(10.0, 50.0, (4,)),
        }
        if scaled:
            made |= {"scale_w": r.normal((4,)), "bias": r.normal((4,))}
        return made

    scaled = {"enable_scale_and_shift": True}
    hidden = inputs()
    hidden["X"][[0, 2], [0, 2]] = 0.0
    return [
        Sample(inputs(), grad=("X",)),
        Sample(inputs(), {"slot_dim": 2, "epsilon": 1e-5}, grad=("X",)),
        Sample(inputs(True), scaled, grad=("X", "scale_w", "bias")),
        Sample(inputs(True), {"slot_dim": 2, **scaled}, grad=("X", "scale_w", "bias")),
        Sample(
            hidden,
            {"slot_dim": 2},
            grad=(),
            deviates={
                "X@GRAD": (
                    "gives a gradient to slots without shows, although they are 0 in the "
                    "result; dpexec gives 0"
                )
            },
        ),
    ]


@op(
    "data_norm",
    inputs="scale_w? bias? X BatchSize BatchSum BatchSquareSum",
    outputs="Y Means Scales",
    infer=_infer,
    attrs={
        "data_layout": "NCHW",
        "sync_stats": False,
        "summary_decay_rate": 0.9999999,
        "use_mkldnn": False,
    },
    samples=_samples,
    operand_ulps=2,
)
def data_norm(
    xp: Any,
    scale_w: Any,
    bias: Any,
    x: Any,
    size: Any,
    total: Any,
    squares: Any,
    *,
    slot_dim: int = -1,
    enable_scale_and_shift: bool = False,
) -> tuple[Any, Any, Any]:
    """``(x - BatchSum / BatchSize) * sqrt(BatchSize / BatchSquareSum)`` per feature.

    With ``enable_scale_and_shift``, the result is multiplied by ``scale_w``, and ``bias`` is added.
    A slot is a group of ``slot_dim`` features; if its first feature is 0, the slot was not shown,
    and becomes 0. The means and the factors are returned, too. Source: Paddle op ``data_norm``.
    """
    means = total / size
    scales = xp.sqrt(size / squares)
    y = (x - means) * scales
    if enable_scale_and_shift:
        y = y * scale_w + bias
    if slot_dim > 0:
        y = xp.where(_shown(xp, x, slot_dim), y, x.dtype.type(0))
    return y, means, scales


def _infer_grad(
    x: Spec, scale_w: Spec | None, bias: Spec | None, means: Spec, scales: Spec, d_y: Spec
) -> tuple[Spec | None, ...]:
    return (x, *(scales,) * 5, *(None,) * 3)


@op(
    "data_norm_grad",
    inputs="X scale_w? bias? Means Scales Y@GRAD",
    outputs="X@GRAD BatchSize@GRAD BatchSum@GRAD BatchSquareSum@GRAD scale_w@GRAD bias@GRAD "
    "BatchSize BatchSum BatchSquareSum",
    infer=_infer_grad,
    attrs=data_norm.attrs,
    no_grad=True,
    operand_ulps=2,
)
def data_norm_grad(
    xp: Any,
    x: Any,
    scale_w: Any,
    bias: Any,
    means: Any,
    scales: Any,
    d_y: Any,
    *,
    epsilon: float = 1e-4,
    slot_dim: int = -1,
    enable_scale_and_shift: bool = False,
) -> tuple[Any, ...]:
    """Gradients; for the three sums, instead of gradients, the amounts that the batch adds.

    These are its size, the sum of its values, and the sum of their squared distances from the
    means; with slots, averages over the samples that were shown. Slots that were not shown have no
    gradient (in Paddle only with ``enable_scale_and_shift``).
    """
    kind = x.dtype.type
    shown, none = xp.ones(x.shape, bool) if slot_dim <= 0 else _shown(xp, x, slot_dim), kind(0)
    centered, d_shown = xp.where(shown, x - means, none), xp.where(shown, d_y, none)
    counts = shown.sum(axis=0).astype(x.dtype)
    sums = xp.where(shown, x, none).sum(axis=0)
    squares = (centered * centered).sum(axis=0)
    if slot_dim > 0:
        divisor = xp.maximum(counts, 1)
        sums, squares = sums / divisor, squares / divisor
    squares += counts * kind(epsilon)
    sizes = counts if slot_dim <= 0 else (counts > 0).astype(x.dtype)
    factors = scales * scale_w if enable_scale_and_shift else scales
    d_scale_w = (d_shown * centered).sum(axis=0) * scales
    d_bias = d_shown.sum(axis=0)
    return d_shown * factors, sizes, sums, squares, d_scale_w, d_bias, None, None, None


@data_norm.grad_maker
def make_data_norm_grad(context: GradContext) -> list[GradOp]:
    """The sums themselves are outputs in Paddle, for its GPU kernel; nothing is written here."""
    forward, slots = context.op, ("X", "scale_w", "bias")
    inputs = {slot: forward.inputs[slot] for slot in slots if slot in forward.inputs}
    inputs |= {slot: forward.output(slot) for slot in ("Means", "Scales")}
    inputs["Y@GRAD"] = context.output_grads["Y"]
    outputs = {slot + "@GRAD": names for slot, names in context.input_grads.items()}
    return [GradOp("data_norm_grad", inputs, outputs, forward.plain_attrs())]
