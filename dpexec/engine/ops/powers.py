"""``square``, ``sqrt``, ``rsqrt``, ``reciprocal`` and ``pow``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._edges import INFINITE, among
from dpexec.engine.ops._unary import LIBRARIES, bends, unary


@unary(
    "square",
    lambda r: r.normal((3, 4)),
    (np.array([3, -4]), np.array([9, 16])),
    attrs=LIBRARIES,
    integers=True,
    sparse=True,
    ulps=1,
    capturable=True,
    precision="black",
    fuses=True,
)
def square(xp: Any, x: Any) -> Any:
    """``x ** 2``. Source: Paddle op ``square``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.square(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([4., 0., 1.], dtype=float32)]
    """
    return x * x


@square.grad("X", "Out@GRAD", ulps=1)
def square_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``2 * x * d_out``."""
    grad = x * d_out
    grad += grad
    return grad


@square_grad.double_grad(
    "X", "DOut", "DDX", outputs="DX DDOut", infer=lambda x, d_out, ddx: (x, d_out)
)
def square_grad_grad(xp: Any, x: Any, d_out: Any, ddx: Any) -> tuple[Any, Any]:
    """``2 * d_out * ddx`` for X and ``2 * x * ddx`` for ``d_out``."""
    return square_grad(xp, d_out, ddx), square_grad(xp, x, ddx)


@unary(
    "sqrt",
    lambda r: r.uniform(0.5, 2.0, (3, 4)),
    (np.array([0.0, 0.25, 9.0]), np.array([0.0, 0.5, 3.0])),
    attrs=LIBRARIES,
    sparse=True,
    ulps=1,
    edges=((abs(among(np.inf)), "Out X@GRAD", INFINITE),),
    capturable=True,
    fuses=True,
)
def sqrt(xp: Any, x: Any) -> Any:
    """The square root. Source: Paddle op ``sqrt``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 4.0], "float32"))
        ...     out = fluid.layers.sqrt(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([1., 2.], dtype=float32)]
    """
    return xp.sqrt(x)


@sqrt.grad("Out", "Out@GRAD", ulps=1)
def sqrt_grad(xp: Any, out: Any, d_out: Any) -> Any:
    """``d_out / (2 * out)``."""
    return d_out * 0.5 / out


@sqrt_grad.double_grad(
    "Out", "DX", "DDX", outputs="DOut DDOut", infer=lambda out, dx, ddx: (out, out)
)
def sqrt_grad_grad(xp: Any, out: Any, dx: Any, ddx: Any) -> tuple[Any, Any]:
    """``-dx * ddx / out`` for Out and ``ddx / (2 * out)`` for ``d_out``."""
    slope = ddx / out
    return -dx * slope, slope * 0.5


@unary(
    "rsqrt",
    lambda r: r.uniform(0.5, 2.0, (3, 4)),
    (np.array([0.25, 9.0]), np.array([2.0, 1 / 3])),
    attrs=LIBRARIES,
    ulps=3,
    edges=((abs(among(np.inf)), "Out X@GRAD", INFINITE),),
    capturable=True,
    fuses=True,
)
def rsqrt(xp: Any, x: Any) -> Any:
    """``1 / sqrt(x)``. Source: Paddle op ``rsqrt``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 4.0], "float32"))
        ...     out = fluid.layers.rsqrt(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([1. , 0.5], dtype=float32)]
    """
    return 1 / xp.sqrt(x)


@rsqrt.grad("Out", "Out@GRAD", ulps=3)
def rsqrt_grad(xp: Any, out: Any, d_out: Any) -> Any:
    """``-d_out * out**3 / 2``."""
    return d_out * -0.5 * out * out * out


@bends(rsqrt_grad, "Out")
def rsqrt_grad_grad(xp: Any, out: Any) -> Any:
    """``-1.5 * d_out * ddx * out**2`` for Out and ``-ddx * out**3 / 2`` for ``d_out``."""
    return -1.5 * out * out


@unary(
    "reciprocal",
    lambda r: r.away_from(0.0, (3, 4), 0.5),
    (np.array([-2.5, 3.0]), np.array([-0.4, 1 / 3])),
    attrs=LIBRARIES,
    ulps=1,
    capturable=True,
    fuses=True,
)
def reciprocal(xp: Any, x: Any) -> Any:
    """``1 / x``. Source: Paddle op ``reciprocal``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 4.0], "float32"))
        ...     out = fluid.layers.reciprocal(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([1.  , 0.25], dtype=float32)]
    """
    return 1 / x


@reciprocal.grad("Out", "Out@GRAD", ulps=3)
def reciprocal_grad(xp: Any, out: Any, d_out: Any) -> Any:
    """``-d_out * out**2``."""
    return -d_out * out * out


@bends(reciprocal_grad, "Out")
def reciprocal_grad_grad(xp: Any, out: Any) -> Any:
    """``-2 * d_out * ddx * out`` for Out and ``-ddx * out**2`` for ``d_out``."""
    return -2 * out


def _infer_pow(x: Spec, exponent: Spec | None) -> Spec:
    if exponent is not None:
        require(exponent.size in (1, -1), f"FactorTensor {exponent} must have one element")
    return x


def _pow_samples(r: SampleRng) -> list[Sample]:
    x = r.uniform(0.5, 2.0, (3, 4))
    numbers = np.array([-2.0, 0.0, 3.0])
    return [
        Sample({"X": x}, {"factor": 2.5}),
        Sample({"X": x}),
        Sample({"X": x, "FactorTensor": np.array([3.0])}, grad=("X",)),
        Sample({"X": numbers}, {"factor": 2.0}, expected={"Out": numbers * numbers}),
        Sample(
            {"X": numbers},
            {"factor": 0.0},
            expected={"Out": np.ones(3)},
            deviates={"X@GRAD": "gives NaN for 0 to the power of 0, by 0 * 0**-1; dpexec gives 0"},
        ),
        Sample({"X": np.array([2, -3])}, {"factor": 3.0}, expected={"Out": np.array([8, -27])}),
        Sample({"X": np.array([2, -3])}, {"factor": 2.5}, expected={"Out": np.array([4, 9])}),
    ]


@op(
    "pow",
    inputs="X FactorTensor?",
    infer=_infer_pow,
    samples=_pow_samples,
    capturable=True,
    grad_lod="flow",
    flops=per_element("Out", 1),
)
def pow(xp: Any, x: Any, exponent: Any = None, *, factor: float = 1.0) -> Any:
    """``x ** factor``; ``FactorTensor`` replaces ``factor``.

    Integers are raised to the whole part of the factor. Source: Paddle op ``pow``.
    """
    power = factor if exponent is None else exponent.reshape(())
    if x.dtype.kind in "iu":
        power = xp.trunc(power)
    return (x**power).astype(x.dtype, copy=False)


@pow.grad("X", "FactorTensor?", "Out@GRAD", outputs="X@GRAD")
def pow_grad(xp: Any, x: Any, exponent: Any, d_out: Any, *, factor: float = 1.0) -> Any:
    """``d_out * factor * x**(factor - 1)``; 0 for ``factor`` 0, also where x is 0."""
    if exponent is not None:
        power = exponent.reshape(())
        return d_out * xp.where(power == 0, 0, power * x ** (power - 1))
    if factor == 0:
        return xp.zeros_like(x)
    return d_out * (factor * x ** (factor - 1))


@pow_grad.double_grad(
    "X", "FactorTensor?", "DOut", "DDX", outputs="X@GRAD DDOut",
    infer=lambda x, exponent, d_out, ddx: (x, d_out),
)  # fmt: skip
def pow_grad_grad(
    xp: Any, x: Any, exponent: Any, d_out: Any, ddx: Any, *, factor: float = 1.0
) -> tuple[Any, Any]:
    """``d_out * ddx * factor * (factor - 1) * x**(factor - 2)`` for X; ``pow_grad`` for d_out."""
    if exponent is None and factor == 0:
        return xp.zeros_like(x), xp.zeros_like(x)
    power = factor if exponent is None else exponent.reshape(())
    less = None if exponent is None else exponent - 1
    bend = power * pow_grad(xp, x, less, ddx, factor=factor - 1)
    return d_out * bend, pow_grad(xp, x, exponent, ddx, factor=factor)
