"""Counters and powers, so that learning rate schedules become machine code, too."""

from __future__ import annotations

from typing import Any

from dpexec.engine.kernels.generate import Pointwise, compiled, single
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.shapes import clear, known

_FEW = 4096
"""The most elements for which scalar code is faster than NumPy's vectorized powers and sines."""

_INCREMENT = """\
def increment_{kind}(x: {kind}, out: {kind}, step: {step}):
    out[0] = x[0] + step
    return 0
"""
_INCREMENTS = {
    dtype: compiled(f"increment_{kind}", _INCREMENT.format(kind=kind, step=step))
    for dtype, kind, step in (("float32", "Floats", "Number"), ("int64", "Integers", "Count"))
}
_POWER = Pointwise("power", "x exponent", "x ** exponent")
_POWER_OF = Pointwise("power_of", "x", "x ** exponent", "exponent")
_POWER_OF_GRAD = Pointwise(
    "power_of_grad", "x dy", "dy * (exponent * x ** (exponent - one))", "exponent"
)
_COSINE = Pointwise("cosine", "x", "np.cos(x)")
_SINE = Pointwise("sine", "x", "np.sin(x)")


@lowering("increment")
def increment(code: Code, x: Value, out: Value, *, step: float) -> Any:
    """One addition."""
    kernel = _INCREMENTS.get(x.dtype.name)
    if kernel is None:
        return False
    code.emit(kernel, x, out, int(step) if x.dtype == "int64" else float(step))


@lowering("elementwise_pow")
def elementwise_pow(code: Code, x: Value, y: Value, out: Value, *, axis: int) -> Any:
    """One power for each of a few elements."""
    if not single(x, y) or not x.size == y.size == out.size <= _FEW:
        return False
    _POWER.emit(code, out, x, y)


@lowering("pow")
def pow_(code: Code, x: Value, exponent: Value | None, out: Value, *, factor: float) -> Any:
    """One power for each of a few elements."""
    if exponent is not None or not single(x) or x.size > _FEW:
        return False
    _POWER_OF.emit(code, out, x, factors=[factor])


@lowering("pow_grad")
def pow_grad(
    code: Code, x: Value, exponent: Value | None, d_out: Value, dx: Value, *, factor: float
) -> Any:
    """One power for each of a few elements."""
    if exponent is not None or not single(x, d_out) or x.size > _FEW or factor == 0:
        return False
    _POWER_OF_GRAD.emit(code, dx, x, d_out, factors=[factor])


def _of_few(type: str, apply: Pointwise) -> None:
    @lowering(type)
    def lower(code: Code, x: Value, out: Value) -> Any:
        if not single(x) or x.size > _FEW:
            return False
        apply.emit(code, out, x)


_of_few("cos", _COSINE)
_of_few("sin", _SINE)


@lowering("fill_constant_batch_size_like")
def fill_constant_batch_size_like(
    code: Code, like: Value, lod: None, out: Value, *, value: float, str_value: str
) -> Any:
    """One pass."""
    if not known(out):
        return False
    clear(code, out, str_value or value)
