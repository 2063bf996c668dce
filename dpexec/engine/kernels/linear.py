"""Linear functions of tensors: sums, constant factors, reductions and their gradients."""

from __future__ import annotations

from typing import Any

from dpexec.engine.kernels.elementwise import ADD, COPY, MULTIPLY, SCALE, TOTAL
from dpexec.engine.kernels.generate import Pointwise, Recorder, Reduction, single
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.shapes import clear, duplicate, move
from dpexec.engine.kernels.strides import regular, strides

__all__ = ["MAXIMA"]

_SCALE_SUM = Pointwise("scale_sum", "x", "(x + offset) * factor", "factor offset")
MAXIMA = Reduction("maxima", "F(-np.inf)", "max(total, value)", "largest(x, at, n)")
_MINIMA = Reduction("minima", "F(np.inf)", "min(total, value)", "smallest(x, at, n)")


@lowering("scale", layout="pointwise")
def scale(
    code: Code, x: Value, factor: Value | None, out: Value, *, scale: float, bias: float,
    bias_after_scale: bool,
) -> Any:  # fmt: skip
    """One pass, or none."""
    if factor is not None or not single(x):
        return False
    if scale == 1.0 and bias == 0.0 and code.alias(out, x):
        return None
    kernel = SCALE if bias_after_scale else _SCALE_SUM
    kernel.emit(code, out, x, factors=(scale, bias), reuse=True)


@lowering("scale_loss_grad")
def scale_loss_grad(code: Code, out: Value) -> Any:
    """The device's share of the batch, which is known when the run begins."""
    if not single(out):
        return False
    clear(code, out, lambda shard: shard.weight)


@lowering("sum", layout="pointwise")
def add_up(code: Code, parts: list[Value], out: Value) -> Any:
    """The first two values, then one after another."""
    if not single(*parts):
        return False
    if len(parts) == 1:
        return duplicate(code, parts[0], out)
    ADD.emit(code, out, *parts[:2], reuse=len(parts) == 2)
    for part in parts[2:]:
        ADD.add_to(code, out, part)


def _axes(x: Value, dim: Any, reduce_all: bool) -> list[bool]:
    """Whether each dimension is kept."""
    dims = [dim] if isinstance(dim, int) else list(dim)
    reduced = {axis % len(x.shape) for axis in dims}
    return [not (reduce_all or not dims or axis in reduced) for axis in range(len(x.shape))]


def _reduction(type: str, apply: Reduction, means: bool = False) -> None:
    @lowering(f"reduce_{type}")
    def lower(
        code: Code, x: Value, out: Value, *, dim: Any, reduce_all: bool, out_dtype: int
    ) -> Any:
        if not single(x, out):
            return False
        factor = out.size / x.size if means else 1.0
        return apply.emit(code, x, out, x.shape, _axes(x, dim, reduce_all), factor)


_reduction("sum", TOTAL)
_reduction("mean", TOTAL, means=True)
_reduction("max", MAXIMA)
_reduction("min", _MINIMA)


def _spread(code: Code, x: Value, grad: Value, dx: Value, kept: list[bool]) -> bool:
    """Repeat a gradient to the shape of an input."""
    shape = [size if keep else 1 for size, keep in zip(x.shape, kept, strict=True)]
    if isinstance(code, Recorder):
        simple = regular([shape], x.shape)
        if simple:
            code.each(COPY, dx, (grad,), (), (shape,), x.shape)
        return simple
    return move(code, grad, dx, x.shape, (0, strides(shape, x.shape)), (0, strides(x.shape)))


@lowering("reduce_sum_grad")
def reduce_sum_grad(
    code: Code, x: Value, d_out: Value, dx: Value, *, dim: Any, reduce_all: bool
) -> Any:
    """The gradient of a sum for each of its elements."""
    return single(x, d_out) and _spread(code, x, d_out, dx, _axes(x, dim, reduce_all))


@lowering("reduce_mean_grad")
def reduce_mean_grad(
    code: Code, x: Value, d_out: Value, dx: Value, *, dim: Any, reduce_all: bool
) -> Any:
    """An equal share for each element of a mean."""
    kept = _axes(x, dim, reduce_all)
    shape = [size if keep else 1 for size, keep in zip(x.shape, kept, strict=True)]
    if not single(x, d_out) or not regular([shape], x.shape):
        return False
    share = code.scratch(*d_out.shape)
    SCALE.emit(code, share, d_out, factors=(d_out.size / x.size, 0.0))
    return _spread(code, x, share, dx, kept)


_IS = Pointwise("is", "x y", "one if x == y else zero")


@lowering("reduce_max_grad", "reduce_min_grad")
def reduce_max_grad(
    code: Code, x: Value, out: Value, d_out: Value, dx: Value, *, dim: Any, reduce_all: bool
) -> Any:
    """The gradient of an extremum for each of the elements that are equal to it."""
    kept = _axes(x, dim, reduce_all)
    shape = [size if keep else 1 for size, keep in zip(x.shape, kept, strict=True)]
    if not single(x, d_out) or not regular([shape], x.shape):
        return False
    chosen = code.scratch(*x.shape)
    _IS.broadcast(code, chosen, x, out, (x.shape, shape), x.shape)
    MULTIPLY.broadcast(code, dx, chosen, d_out, (x.shape, shape), x.shape)
    return None


@lowering("expand_grad")
def expand_grad(
    code: Code, x: Value, tensor: Value | None, parts: list[Value], d_out: Value, dx: Value,
    *, expand_times: Any,
) -> Any:  # fmt: skip
    """The gradients of all repetitions, added up."""
    if tensor is not None or parts or not single(x, d_out):
        return False
    sizes = [size for pair in zip(expand_times, x.shape, strict=True) for size in pair]
    return TOTAL.emit(code, d_out, dx, sizes, [False, True] * len(x.shape))


# ---- bounds


_CLIP = Pointwise("clip", "x", "min(max(x, low), high)", "low high")
_CLIP_GRAD = Pointwise("clip_grad", "x dy", "dy if x > low and x < high else zero", "low high")


@lowering("clip", layout="pointwise")
def clip(
    code: Code, x: Value, low: Value | None, high: Value | None, out: Value, *, min: float,
    max: float,
) -> Any:  # fmt: skip
    """One pass."""
    if low is not None or high is not None or not single(x):
        return False
    _CLIP.emit(code, out, x, factors=(min, max), reuse=True)


@lowering("clip_grad", layout="pointwise")
def clip_grad(
    code: Code, x: Value, low: Value | None, high: Value | None, d_out: Value, dx: Value,
    *, min: float, max: float,
) -> Any:  # fmt: skip
    """One pass."""
    if low is not None or high is not None or not single(x, d_out):
        return False
    _CLIP_GRAD.emit(code, dx, x, d_out, factors=(min, max), reuse=True)


@lowering("label_smooth")
def label_smooth(code: Code, x: Value, prior: Value | None, out: Value, *, epsilon: float) -> Any:
    """One pass, if all labels are equally likely."""
    if prior is not None or not single(x):
        return False
    SCALE.emit(code, out, x, factors=(1 - epsilon, epsilon / x.shape[-1]), reuse=True)


@lowering("label_smooth_grad")
def label_smooth_grad(code: Code, d_out: Value, dx: Value, *, epsilon: float) -> Any:
    """One pass."""
    if not single(d_out):
        return False
    SCALE.emit(code, dx, d_out, factors=(1 - epsilon, 0.0), reuse=True)
