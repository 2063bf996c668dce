"""``matmul``: products of matrices, vectors and batches of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.cost import Call
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._eight_bits import (
    has_eight_bits,
    require_float_or_small,
    result_type,
    stored,
)
from dpexec.engine.ops._shapes import require_same_dtype, same_dims

ATTRS = {"fused_reshape_Out": [], "fused_transpose_Out": [], "use_quantizer": False}

Shape = tuple[int, ...]

_ONE_HEAD = "computes gradients as if there were one head; dpexec gives those of all heads"


def _as_matrices(x_shape: Shape, y_shape: Shape) -> tuple[Shape, Shape]:
    """Vectors become a row on the left and a column on the right."""
    x = (1, *x_shape) if len(x_shape) == 1 else x_shape
    y = (*y_shape, 1) if len(y_shape) == 1 else y_shape
    return x, y


def _swapped(shape: Shape, swap: bool) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if swap else shape


def _infer_heads(x: Spec, y: Spec, x_shape: Shape, y_shape: Shape, heads: int) -> int:
    """The number of columns of the products of all heads together."""
    width, rows, columns = x_shape[-1], y_shape[-2], y_shape[-1]
    require(
        width < 0 or width % heads == 0,
        f"the {width} columns of X {x} cannot be divided among head_number={heads}",
    )
    if dims_match(width, rows):
        return columns * heads if min(width, rows, columns) >= 0 else -1
    require(
        rows * heads == width and columns % heads == 0,
        f"Y {y} must have as many rows as X {x} has columns, or a part of them for each of "
        f"head_number={heads}, and then as many equal parts of columns",
    )
    return columns


def _infer(
    x: Spec,
    y: Spec,
    *,
    transpose_X: bool = False,
    transpose_Y: bool = False,
    head_number: int = 1,
    use_mkldnn: bool = False,
    force_fp32_output: bool = False,
) -> Spec:
    require_float_or_small(x, "X", use_mkldnn)
    require(x.rank and y.rank, f"X {x} and Y {y} must have dimensions")
    require_same_dtype(x, y)
    x_shape, y_shape = _as_matrices(x.shape, y.shape)
    x_shape, y_shape = _swapped(x_shape, transpose_X), _swapped(y_shape, transpose_Y)
    setting = f"transpose_X={transpose_X}, transpose_Y={transpose_Y}"
    columns = y_shape[-1]
    if head_number > 1:
        columns = _infer_heads(x, y, x_shape, y_shape, head_number)
    require(
        head_number > 1 or dims_match(x_shape[-1], y_shape[-2]),
        f"X {x} and Y {y} cannot be multiplied ({setting}): as matrices they are "
        f"{list(x_shape)} and {list(y_shape)}, but {x_shape[-1]} is not {y_shape[-2]}",
    )
    batch = x_shape[:-2] or y_shape[:-2]
    for name, dims in (("X", x_shape[:-2]), ("Y", y_shape[:-2])):
        require(
            not dims or same_dims(dims, batch),
            f"X {x} and Y {y} must have the same batch dimensions, or one of them none; "
            f"{name} has {list(dims)}",
        )
    out = (*batch, x_shape[-2], columns)
    if y.rank == 1 and not transpose_Y and head_number <= 1:
        out = out[:-1]
    if x.rank == 1 and not transpose_X:
        out = (*out[: len(batch)], *out[len(batch) + 1 :])
    kind = x.dtype
    if has_eight_bits(x):
        kind = result_type(unsigned=False, force_fp32_output=force_fp32_output, residual=None)
    return x.replace(shape=out or (1,), dtype=kind)


def scale_of(
    use_mkldnn: bool, force_fp32_output: bool, Scale_x: float, Scale_y: float, Scale_out: float
) -> float:
    """The factor of the result by the scale attributes, which only MKL-DNN uses."""
    if not use_mkldnn:
        return 1.0
    return (1.0 if force_fp32_output else Scale_out) / (Scale_x * Scale_y)


def _operands(x: Any, y: Any, transpose_x: bool, transpose_y: bool) -> tuple[Any, Any]:
    """Both inputs as (batches of) matrices that ``@`` takes, without copies."""
    x_shape, y_shape = _as_matrices(x.shape, y.shape)
    x, y = x.reshape(x_shape), y.reshape(y_shape)
    return x.swapaxes(-1, -2) if transpose_x else x, y.swapaxes(-1, -2) if transpose_y else y


def _divided(matrices: Any, heads: int, axis: int) -> Any:
    """Equal parts of the rows (-2) or columns (-1) of matrices, stacked in a new dimension."""
    *batch, rows, columns = matrices.shape
    if axis == -2:
        return matrices.reshape(*batch, heads, rows // heads, columns)
    return matrices.reshape(*batch, rows, heads, columns // heads).swapaxes(-3, -2)


def _joined(parts: Any, axis: int) -> Any:
    """The inverse of :func:`_divided`."""
    *batch, heads, rows, columns = parts.shape
    if axis == -2:
        return parts.reshape(*batch, heads * rows, columns)
    return parts.swapaxes(-3, -2).reshape(*batch, rows, heads * columns)


def _by_heads(left: Any, right: Any, heads: int) -> tuple[Any, Any, int]:
    """The parts that heads multiply, and the axis along which the right side is divided.

    It is the axis of rows if Y has a row for every column of X.
    """
    axis = -2 if left.shape[-1] == right.shape[-2] else -1
    return _divided(left, heads, -1), _divided(right, heads, axis), axis


def _samples(r: SampleRng) -> list[Sample]:
    cases: list[tuple[Shape, Shape, dict[str, Any]]] = [
        ((2, 3), (3, 4), {}),
        ((3, 2), (4, 3), {"transpose_X": True, "transpose_Y": True, "alpha": 0.5}),
        ((3,), (3,), {}),
        ((2, 3), (3,), {}),
        ((3,), (3, 2), {}),
        ((4, 2, 3), (3,), {}),
        ((3,), (4, 3, 2), {}),
        ((3,), (2,), {"transpose_X": True, "transpose_Y": True}),
        ((4, 2, 3), (3, 5), {}),
        ((4, 3, 2), (5, 3), {"transpose_X": True, "transpose_Y": True}),
        ((2, 3), (4, 3, 5), {}),
        ((4, 2, 3), (4, 5, 3), {"transpose_Y": True}),
        ((2, 2, 2, 3), (2, 2, 3, 2), {"alpha": 2.0}),
    ]
    found = [Sample({"X": r.normal(x), "Y": r.normal(y)}, attrs) for x, y, attrs in cases]
    for x, y, attrs in (
        ((2, 4), (4, 3), {"head_number": 2}),
        ((2, 4), (2, 6), {"head_number": 2}),
        (
            (4, 2),
            (3, 4),
            {"head_number": 2, "transpose_X": True, "transpose_Y": True, "alpha": 0.5},
        ),
        ((3, 2, 4), (3, 4, 5), {"head_number": 4}),
        ((3, 2, 4), (2, 6), {"head_number": 2}),
        ((2, 4), (3, 4, 5), {"head_number": 2}),
        ((4,), (4, 3), {"head_number": 2}),
        ((2, 4), (4,), {"head_number": 2}),
    ):
        deviates = dict.fromkeys(("X@GRAD", "Y@GRAD"), _ONE_HEAD)
        found.append(Sample({"X": r.normal(x), "Y": r.normal(y)}, attrs, deviates=deviates))
    six = np.arange(1.0, 7.0).reshape(2, 3)
    known = np.array([[7.0, 16.0], [16.0, 38.5]])
    attrs = {"transpose_Y": True, "alpha": 0.5}
    return [*found, *_scaled(r), Sample({"X": six, "Y": six}, attrs, expected={"Out": known})]


def _scaled(r: SampleRng) -> list[Sample]:
    """Calls with scales, as in quantized models."""

    def call(kind: type[np.generic], deviates: str = "", **attrs: Any) -> Sample:
        inputs = {"X": r.normal((2, 3, 4)), "Y": r.normal((2, 4, 5))}
        if issubclass(kind, np.integer):
            ends = np.iinfo(kind)
            inputs = {
                name: r.integers(ends.min, ends.max + 1, values.shape).astype(kind)
                for name, values in inputs.items()
            }
        given = {"use_mkldnn": True, "Scale_x": 20.0, "Scale_y": 30.0, "Scale_out": 3.0, **attrs}
        return Sample(inputs, given, grad=(), deviates={"*": deviates} if deviates else {})

    return [
        call(np.int8),
        call(np.int8, alpha=2.0, force_fp32_output=True),
        call(np.uint8, "refuses a product of two uint8; dpexec computes it"),
        call(np.float64, alpha=0.5),
        call(np.float64, force_fp32_output=True),
    ]


def _macs(call: Call) -> int:
    x, attrs = call.shape("X"), call.attrs
    terms = x[-2] if attrs["transpose_X"] and len(x) > 1 else x[-1]
    return call.size("Out") * terms // attrs["head_number"]


@op(
    "matmul",
    inputs="X Y",
    infer=_infer,
    attrs=ATTRS,
    fixed=dict.fromkeys(("fused_reshape_Out", "fused_transpose_Out"), "use_mkldnn"),
    samples=_samples,
    operand_ulps=2,
    capturable=True,
    precision="white",
    quantized="weights inputs outputs",
    macs=_macs,
)
def matmul(
    xp: Any,
    x: Any,
    y: Any,
    *,
    transpose_X: bool = False,
    transpose_Y: bool = False,
    alpha: float = 1.0,
    head_number: int = 1,
    use_mkldnn: bool = False,
    force_fp32_output: bool = False,
    Scale_x: float = 1.0,
    Scale_y: float = 1.0,
    Scale_out: float = 1.0,
) -> Any:
    """``alpha * op(x) @ op(y)``, where ``op`` transposes if ``transpose_X`` or ``transpose_Y``.

    Dimensions before the last two are batches: equal in both inputs, or absent from one of them.
    A vector is a row on the left, a column on the right, and this dimension is absent from the
    result; the product of two vectors has the shape (1,).

    If ``head_number`` is above 1, the columns of ``op(x)`` are divided into as many equal parts.
    Each part is multiplied by its part of the rows of ``op(y)``, or of the columns, if ``op(y)``
    has only as many rows as one part has columns. The results are concatenated along the columns.

    With ``use_mkldnn`` the result is multiplied by ``Scale_out / (Scale_x * Scale_y)``, with
    ``force_fp32_output`` by ``1 / (Scale_x * Scale_y)``. Quantized models have inputs of int8 or
    uint8; the result is then rounded to int8, unless ``force_fp32_output`` is set. Source: Paddle
    op ``matmul``.
    """
    small = x.dtype.kind != "f"
    if small:
        x, y = x.astype(np.float64), y.astype(np.float64)
    alpha *= scale_of(use_mkldnn, force_fp32_output, Scale_x, Scale_y, Scale_out)
    left, right = _operands(x, y, transpose_X, transpose_Y)
    batch = left.shape[:-2] or right.shape[:-2]
    if head_number > 1:
        parts = _by_heads(left, right, head_number)
        out = _joined(xp.matmul(parts[0], parts[1]), -1)
    elif left.ndim > 2 and right.ndim == 2:  # one large product, not one per batch
        out = xp.matmul(left.reshape(-1, left.shape[-1]), right)
    else:
        out = xp.matmul(left, right)
    if alpha != 1.0:
        out *= out.dtype.type(alpha)
    rows = () if x.ndim == 1 and not transpose_X else left.shape[-2:-1]
    columns = () if y.ndim == 1 and not transpose_Y and head_number <= 1 else out.shape[-1:]
    if small:
        out = stored(xp, out.astype(np.float32), np.float32 if force_fp32_output else np.int8)
    return out.reshape((batch + rows + columns) or (1,))


@matmul.grad("X", "Y", "Out@GRAD", dense=True, operand_ulps=2)
def matmul_grad(
    xp: Any,
    x: Any,
    y: Any,
    d_out: Any,
    *,
    transpose_X: bool = False,
    transpose_Y: bool = False,
    alpha: float = 1.0,
    head_number: int = 1,
    needs: tuple[bool, bool],
) -> tuple[Any, Any]:
    """``d_out @ y.T`` for X and ``x.T @ d_out`` for Y, transposed where the input was."""
    left, right = _operands(x, y, transpose_X, transpose_Y)
    batch = left.shape[:-2] or right.shape[:-2]
    grad = d_out.reshape((*batch, left.shape[-2], -1))
    if alpha != 1.0:
        grad = grad * grad.dtype.type(alpha)
    if head_number > 1:
        d_left, d_right = _grads_by_heads(xp, left, right, grad, head_number)
        d_x = d_left.swapaxes(-1, -2) if transpose_X else d_left
        d_y = d_right.swapaxes(-1, -2) if transpose_Y else d_right
        return d_x.reshape(x.shape), d_y.reshape(y.shape)
    d_x = _product(xp, grad, right.swapaxes(-1, -2), transpose_X, left.ndim) if needs[0] else None
    d_y = _product(xp, left.swapaxes(-1, -2), grad, transpose_Y, right.ndim) if needs[1] else None
    return (
        d_x.reshape(x.shape) if d_x is not None else None,
        d_y.reshape(y.shape) if d_y is not None else None,
    )


def _grads_by_heads(xp: Any, left: Any, right: Any, grad: Any, heads: int) -> tuple[Any, Any]:
    """The gradients of both sides, summed over the batch for a side without one."""
    grads = _divided(grad, heads, -1)
    left_parts, right_parts, axis = _by_heads(left, right, heads)
    d_left = _joined(xp.matmul(grads, right_parts.swapaxes(-1, -2)), -1)
    d_right = _joined(xp.matmul(left_parts.swapaxes(-1, -2), grads), axis)
    return _over_batch(d_left, left.ndim), _over_batch(d_right, right.ndim)


def _over_batch(grad: Any, ndim: int) -> Any:
    return grad if grad.ndim == ndim else grad.reshape(-1, *grad.shape[-2:]).sum(axis=0)


def _product(xp: Any, a: Any, b: Any, swap: bool, ndim: int) -> Any:
    """``a @ b``, transposed if ``swap``, summed over the batch if the input has none."""
    if ndim > 2 or max(a.ndim, b.ndim) == 2:
        return xp.matmul(*((b.swapaxes(-1, -2), a.swapaxes(-1, -2)) if swap else (a, b)))
    if a.ndim == b.ndim:
        # All batches side by side: one product that adds them up on the way.
        a = a.swapaxes(-1, -2).reshape(-1, a.shape[-2]).T
        b = b.reshape(-1, b.shape[-1])
        return xp.matmul(b.T, a.T) if swap else xp.matmul(a, b)
    total = xp.matmul(a, b).reshape(-1, a.shape[-2], b.shape[-1]).sum(axis=0)
    return total.T if swap else total


@matmul_grad.double_grad(
    "X Y DOut DDX? DDY?",
    outputs="DX DY DDOut",
    infer=lambda x, y, d_out, ddx, ddy: (x, y, d_out),
)
def matmul_grad_grad(
    xp: Any,
    x: Any,
    y: Any,
    d_out: Any,
    ddx: Any,
    ddy: Any,
    *,
    transpose_X: bool = False,
    transpose_Y: bool = False,
    alpha: float = 1.0,
    head_number: int = 1,
    needs: tuple[bool, bool, bool],
) -> tuple[Any, Any, Any]:
    """``d_out @ ddy.T`` for X, ``ddx.T @ d_out`` for Y and ``ddx @ y + x @ ddy`` for ``d_out``."""
    given = {"transpose_X": transpose_X, "transpose_Y": transpose_Y, "alpha": alpha}
    given["head_number"] = head_number
    dx = dy = None
    if needs[0]:
        dx = xp.zeros_like(x)
        if ddy is not None:
            dx = matmul_grad(xp, x, ddy, d_out, **given, needs=(True, False))[0]
    if needs[1]:
        dy = xp.zeros_like(y)
        if ddx is not None:
            dy = matmul_grad(xp, ddx, y, d_out, **given, needs=(False, True))[1]
    pairs = [(a, b) for a, b in ((ddx, y), (x, ddy)) if a is not None and b is not None]
    ddout = sum(matmul(xp, *pair, **given) for pair in pairs) if needs[2] else None
    return dx, dy, ddout
