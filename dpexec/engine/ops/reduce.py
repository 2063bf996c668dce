"""``reduce_sum`` and similar operators, from ``reduce_mean`` to ``frobenius_norm``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type, to_numpy
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, passes_on, require
from dpexec.engine.ops._edges import GROWN, NUMBERS, smaller
from dpexec.engine.ops._shapes import as_ints, product, require_axis, spread

Dims = Sequence[int] | int
ATTRS = {"in_dtype": -1, "out_dtype": -1}


def _axes(rank: int, dim: Dims, reduce_all: bool) -> tuple[int, ...]:
    dims = as_ints(dim)
    if reduce_all or not dims:
        return tuple(range(rank))
    return tuple(sorted({axis % rank for axis in dims}))


def _reduced_shape(shape: Sequence[int], axes: Sequence[int], keep_dim: bool) -> tuple[int, ...]:
    if keep_dim:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes) or (1,)


def infer_reduced(
    x: Spec,
    *,
    dim: Dims = (0,),
    keep_dim: bool = False,
    reduce_all: bool = False,
    out_dtype: int = -1,
) -> Spec:
    """The spec of ``x`` after a reduction over the dimensions ``dim``, or over all."""
    require(x.rank, f"X {x} has no dimension to reduce")
    require(x.dtype != VarType.BOOL, f"X {x} must hold numbers")
    for axis in [] if reduce_all else as_ints(dim):
        require_axis(axis, x, attribute="dim")
    dtype = x.dtype if out_dtype < 0 else as_var_type(out_dtype)
    axes = _axes(x.rank, dim, reduce_all)
    lod_level = 0 if 0 in axes else x.lod_level
    return x.replace(
        shape=_reduced_shape(x.shape, axes, keep_dim), dtype=dtype, lod_level=lod_level
    )


def reduce(
    function: Callable[..., Any],
    x: Any,
    *,
    dim: Dims = (0,),
    keep_dim: bool = False,
    reduce_all: bool = False,
    out_dtype: int = -1,
) -> Any:
    """Apply an array function over the axes and give the result fluid's shape."""
    if out_dtype >= 0:
        x = x.astype(to_numpy(out_dtype), copy=False)
    axes = _axes(x.ndim, dim, reduce_all)
    return function(x, axis=axes).reshape(_reduced_shape(x.shape, axes, keep_dim))


def _or_none(xp: Any, function: Callable[..., Any], of_none: float) -> Callable[..., Any]:
    """The function, extended by a result for no elements, where NumPy fails or warns.

    Args:
        xp: the array library.
        function: reduces an array over axes.
        of_none: the result for no elements; the nearest integer for an array of integers.
    """

    def reduce(x: Any, axis: Sequence[int]) -> Any:
        if x.size:
            return function(x, axis=axis)
        shape = [size for i, size in enumerate(x.shape) if i not in axis]
        if x.dtype.kind in "iu":
            info = np.iinfo(x.dtype)
            return xp.full(shape, info.min if of_none < 0 else info.max, x.dtype)
        return xp.full(shape, of_none, x.dtype)

    return reduce


CASES: tuple[dict[str, Any], ...] = (
    {"dim": [1]},
    {"dim": [0, -1]},
    {"dim": [1], "keep_dim": True},
    {"reduce_all": True},
    {"reduce_all": True, "keep_dim": True},
    {"dim": [0, 1, 2]},
)


def deviation(attrs: dict[str, Any]) -> dict[str, str]:
    """Notes on how the results of the real Paddle differ."""
    if len(attrs.get("dim", ())) == 3:
        return {
            "*": (
                "gives old contents of memory if dim names all dimensions, such as dim=[0, 1] "
                "of a matrix; dpexec reduces them"
            )
        }
    if attrs.get("reduce_all") and attrs.get("keep_dim"):
        return {
            "X@GRAD": (
                "refuses the gradient, or gives a wrong one, of a reduction of all "
                "dimensions that keeps them; dpexec gives the derivative"
            )
        }
    return {}


def of_rank_5(x: Any, slots: Sequence[str]) -> Sample:
    """A reduction of more dimensions than Paddle's kernels are made for."""
    text = "gives wrong numbers for an X of five dimensions or more; dpexec gives the right ones"
    return Sample({"X": x}, {"dim": [2]}, deviates=dict.fromkeys(slots, text))


def _samples(
    known: float, wrong: Sequence[str] = ("Out", "X@GRAD")
) -> Callable[[SampleRng], list[Sample]]:
    """Every way of naming dimensions, and a full reduction whose result is known.

    Args:
        known: the result.
        wrong: slots that Paddle computes wrongly for an array of five dimensions.
    """

    def call(r: SampleRng) -> list[Sample]:
        x = r.distinct((2, 3, 4)) + 0.5
        numbers = np.array([[1.0, 2.0], [3.0, 6.0]])
        return [
            *(Sample({"X": x}, attrs, deviates=deviation(attrs)) for attrs in CASES),
            Sample({"X": numbers}, {"reduce_all": True}, expected={"Out": np.array([known])}),
            Sample({"X": np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 4.0]])}, {"dim": [1]}, smooth=False),
            of_rank_5(r.distinct((2, 3, 2, 3, 2)) + 0.5, wrong),
        ]

    return call


_reduction = partial(op, inputs="X", infer=infer_reduced, attrs=ATTRS, grad_lod="own")


@_reduction(
    "reduce_sum",
    samples=_samples(12.0, ("Out",)),
    operand_ulps=2,
    capturable=True,
    makes_numbers=True,
    fuses=True,
    flops=per_element("X", 1),
)
@passes_on(reduce)
def reduce_sum(xp: Any, x: Any, **attrs: Any) -> Any:
    """Sums over the dimensions ``dim``, or all: then of shape (1,) unless ``keep_dim``.

    Source: Paddle op ``reduce_sum``.

    See Also:
        :func:`~dpexec.layers.reduce_mean`: means.
        :func:`~dpexec.layers.mean`: the mean of all elements.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 5.0]], "float32"))
        ...     out = fluid.layers.reduce_sum(x, dim=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([3., 8.], dtype=float32)]
    """
    return reduce(_typed(xp.sum), x, **attrs)


def _typed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with results in the type of its argument: int32 stays int32."""
    return lambda x, axis: function(x, axis=axis, dtype=x.dtype)


@reduce_sum.grad("X", "Out@GRAD", operand_ulps=1)
def reduce_sum_grad(
    xp: Any, x: Any, d_out: Any, *, dim: Dims = (0,), reduce_all: bool = False
) -> Any:
    """The gradient of a sum for each of its elements; a read-only view."""
    return spread(xp, d_out.astype(x.dtype, copy=False), x.shape, _axes(x.ndim, dim, reduce_all))


reduce_sum_grad.grad_is(reduce_sum)


@_reduction(
    "reduce_mean",
    samples=_samples(3.0, ("Out",)),
    operand_ulps=4,
    capturable=True,
    fuses=True,
    flops=per_element("X", 1),
)
@passes_on(reduce)
def reduce_mean(xp: Any, x: Any, **attrs: Any) -> Any:
    """Means over the dimensions ``dim``, or all: then of shape (1,) unless ``keep_dim``.

    Means of integers are truncated. Source: Paddle op ``reduce_mean``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 5.0]], "float32"))
        ...     out = fluid.layers.reduce_mean(x, dim=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([1.5, 4. ], dtype=float32)]
    """
    return reduce(_or_none(xp, _mean, math.nan), x, **attrs)


def _mean(x: Any, axis: Sequence[int]) -> Any:
    return x.mean(axis=axis).astype(x.dtype, copy=False)


@reduce_mean.grad("X", "Out@GRAD", operand_ulps=1)
def reduce_mean_grad(
    xp: Any, x: Any, d_out: Any, *, dim: Dims = (0,), reduce_all: bool = False
) -> Any:
    """An equal share for each element of a mean; a read-only view."""
    axes = _axes(x.ndim, dim, reduce_all)
    count = product([x.shape[axis] for axis in axes])
    share = (d_out / d_out.dtype.type(max(count, 1))).astype(x.dtype, copy=False)
    return spread(xp, share, x.shape, axes)


reduce_mean_grad.grad_is(reduce_mean)


@_reduction(
    "reduce_max",
    samples=_samples(6.0),
    operand_ulps=1,
    capturable=True,
    makes_numbers=True,
    fuses=True,
    flops=per_element("X", 1),
)
@passes_on(reduce)
def reduce_max(xp: Any, x: Any, **attrs: Any) -> Any:
    """Maxima over the dimensions ``dim``, or all: then of shape (1,) unless ``keep_dim``.

    The maximum of no elements is -inf, or the smallest integer. Source: Paddle op ``reduce_max``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 5.0]], "float32"))
        ...     out = fluid.layers.reduce_max(x, dim=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([2., 5.], dtype=float32)]
    """
    return reduce(_or_none(xp, xp.max, -math.inf), x, **attrs)


@_reduction(
    "reduce_min",
    samples=_samples(1.0),
    operand_ulps=1,
    capturable=True,
    makes_numbers=True,
    fuses=True,
    flops=per_element("X", 1),
)
@passes_on(reduce)
def reduce_min(xp: Any, x: Any, **attrs: Any) -> Any:
    """Minima over the dimensions ``dim``, or all: then of shape (1,) unless ``keep_dim``.

    The minimum of no elements is inf, or the largest integer. Source: Paddle op ``reduce_min``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 5.0]], "float32"))
        ...     out = fluid.layers.reduce_min(x, dim=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([1., 3.], dtype=float32)]
    """
    return reduce(_or_none(xp, xp.min, math.inf), x, **attrs)


def _chosen_grad(
    xp: Any, x: Any, out: Any, d_out: Any, *, dim: Dims = (0,), reduce_all: bool = False
) -> Any:
    """The gradient goes to the chosen element; equal ones all receive it, as in Paddle."""
    axes = _axes(x.ndim, dim, reduce_all)
    chosen = x == spread(xp, out.astype(x.dtype, copy=False), x.shape, axes)
    return spread(xp, d_out.astype(x.dtype, copy=False), x.shape, axes) * chosen


for _extreme in (reduce_max, reduce_min):
    _extreme.grad("X", "Out", "Out@GRAD", outputs="X@GRAD", operand_ulps=1, fuses=False)(
        _chosen_grad
    )


def _prod_samples(r: SampleRng) -> list[Sample]:
    zeros = np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0], [2.0, 3.0, 4.0]])
    return [
        *_samples(36.0)(r),
        Sample(
            {"X": zeros},
            {"dim": [1]},
            deviates={"X@GRAD": "gives NaN where X is 0; dpexec gives the product of the others"},
        ),
    ]


@_reduction(
    "reduce_prod",
    samples=_prod_samples,
    operand_ulps=1,
    makes_numbers=True,
    flops=per_element("X", 1),
)
@passes_on(reduce)
def reduce_prod(xp: Any, x: Any, **attrs: Any) -> Any:
    """Products over the dimensions ``dim``, or all: then of shape (1,) unless ``keep_dim``.

    Source: Paddle op ``reduce_prod``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 5.0]], "float32"))
        ...     out = fluid.layers.reduce_prod(x, dim=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([ 2., 15.], dtype=float32)]
    """
    return reduce(_typed(xp.prod), x, **attrs)


@reduce_prod.grad("X", "Out", "Out@GRAD", outputs="X@GRAD", operand_ulps=2)
def reduce_prod_grad(
    xp: Any, x: Any, out: Any, d_out: Any, *, dim: Dims = (0,), reduce_all: bool = False
) -> Any:
    """The product of the other elements, also if there are zeros (Paddle gives nan)."""
    axes = _axes(x.ndim, dim, reduce_all)
    grad = spread(xp, d_out.astype(x.dtype, copy=False), x.shape, axes)
    zero = x == 0
    if xp is np and not zero.any():  # the host would have to wait for a GPU
        return grad * spread(xp, out.astype(x.dtype, copy=False), x.shape, axes) / x
    count = zero.sum(axis=axes, keepdims=True)
    others = xp.where(zero, 1, x)
    product = xp.prod(others, axis=axes, keepdims=True)
    reaches = (count == 0) | ((count == 1) & zero)
    return grad * xp.where(reaches, product / others, 0)


@_reduction(
    "frobenius_norm",
    samples=lambda r: [
        *(Sample({"X": r.distinct((2, 3, 4)) + 0.5}, attrs) for attrs in CASES[:4]),
        Sample(
            {"X": r.distinct((2, 3, 4)) + 0.5},
            {"dim": [0, 1, 2]},
            deviates=dict.fromkeys(
                ("Out", "X@GRAD"), "gives 0 for a norm over three dimensions; dpexec gives the norm"
            ),
        ),
        Sample({"X": np.array([[3.0, 4.0]])}, {"dim": [1]}, expected={"Out": np.array([5.0])}),
        smaller(
            Sample({"X": NUMBERS}, {"dim": [1]}),
            1e-12,
            "X@GRAD",
            GROWN,
        ),
    ],
    operand_ulps=2,
)
@passes_on(reduce)
def frobenius_norm(xp: Any, x: Any, **attrs: Any) -> Any:
    """The root of the sum of squares over the dimensions ``dim``, or all.

    Right also where ``dim`` names three dimensions (Paddle gives 0 then). Source: Paddle op
    ``frobenius_norm``.
    """
    return reduce(lambda x, axis: xp.sqrt((x * x).sum(axis=axis)), x, **attrs)


@frobenius_norm.grad("X", "Out", "Out@GRAD", outputs="X@GRAD", operand_ulps=2)
def frobenius_norm_grad(
    xp: Any, x: Any, out: Any, d_out: Any, *, dim: Dims = (0,), reduce_all: bool = False
) -> Any:
    """``x / out`` times the gradient; 0 if all elements are 0."""
    share = (d_out / xp.where(out == 0, 1, out)).astype(x.dtype, copy=False)
    return x * spread(xp, share, x.shape, _axes(x.ndim, dim, reduce_all))
