"""``bilinear_tensor_product`` and ``fsp``: products of two batches, pair by pair."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._shapes import product, require_same_dtype


def _infer_bilinear(x: Spec, y: Spec, weight: Spec, bias: Spec | None) -> Spec:
    require_same_dtype(x, y)
    require(x.rank == y.rank == 2, f"X {x} and Y {y} must be matrices")
    require(dims_match(x.shape[0], y.shape[0]), f"X {x} and Y {y} must have one batch size")
    require(
        weight.rank == 3
        and dims_match(weight.shape[1], x.shape[1])
        and dims_match(weight.shape[2], y.shape[1]),
        f"Weight {weight} must be (outputs, width of X {x}, width of Y {y})",
    )
    if bias is not None:
        require(
            bias.rank == 2 and bias.shape[0] == 1 and dims_match(bias.shape[1], weight.shape[0]),
            f"Bias {bias} must have one row with an element per output of Weight {weight}",
        )
    return x.replace(shape=(x.shape[0], weight.shape[0]))


@op(
    "bilinear_tensor_product",
    inputs="X Y Weight Bias?",
    infer=_infer_bilinear,
    samples=lambda r: [
        Sample(
            {
                "X": r.normal((3, 4)),
                "Y": r.normal((3, 5)),
                "Weight": r.normal((2, 4, 5)),
                "Bias": r.normal((1, 2)),
            }
        ),
        Sample({"X": r.normal((3, 2)), "Y": r.normal((3, 2)), "Weight": r.normal((4, 2, 2))}),
        Sample(
            {
                "X": r.normal((1, 3)),
                "Y": r.normal((1, 1)),
                "Weight": r.normal((1, 3, 1)),
                "Bias": r.normal((1, 1)),
            }
        ),
    ],
    operand_ulps=1,
    macs=lambda call: call.size("Out") * product(call.shape("Weight")[1:]),
)
def bilinear_tensor_product(xp: Any, x: Any, y: Any, weight: Any, bias: Any = None) -> Any:
    """``out[n, k] = x[n] @ weight[k] @ y[n] + bias[k]``.

    Source: Paddle op ``bilinear_tensor_product``.
    """
    left = xp.tensordot(x, weight, axes=(1, 1))
    out = xp.matmul(left, y[:, :, None])[:, :, 0]
    return out if bias is None else out + bias


@bilinear_tensor_product.grad(
    "X", "Y", "Weight", "Out@GRAD", outputs="X@GRAD Y@GRAD Weight@GRAD Bias@GRAD",
    infer=lambda x, y, weight, d_out: (x, y, weight, d_out.replace(shape=(1, weight.shape[0]))),
    operand_ulps=2,
)  # fmt: skip
def bilinear_tensor_product_grad(
    xp: Any,
    x: Any,
    y: Any,
    weight: Any,
    d_out: Any,
    *,
    needs: tuple[bool, bool, bool, bool],
) -> tuple[Any, ...]:
    """The same product, with the gradient in place of one factor."""
    d_x = d_y = d_weight = None
    if needs[0] or needs[1]:
        middle = xp.tensordot(d_out, weight, axes=(1, 0))
        d_x = xp.matmul(middle, y[:, :, None])[:, :, 0] if needs[0] else None
        d_y = xp.matmul(x[:, None], middle)[:, 0] if needs[1] else None
    if needs[2]:
        weighted = d_out[:, :, None] * x[:, None]
        d_weight = xp.tensordot(weighted, y, axes=(0, 0))
    return d_x, d_y, d_weight, d_out.sum(axis=0, keepdims=True) if needs[3] else None


def _infer_fsp(x: Spec, y: Spec) -> Spec:
    require_same_dtype(x, y)
    require(x.rank == y.rank == 4, f"X {x} and Y {y} must be images (N, C, H, W)")
    require(
        all(dims_match(x.shape[axis], y.shape[axis]) for axis in (0, 2, 3)),
        f"X {x} and Y {y} may differ in their channels only",
    )
    return x.replace(shape=(x.shape[0], x.shape[1], y.shape[1]))


def _flat(images: Any) -> Any:
    return images.reshape(*images.shape[:2], -1)


@op(
    "fsp",
    inputs="X Y",
    infer=_infer_fsp,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3, 2, 4)), "Y": r.normal((2, 5, 2, 4))}),
        Sample({"X": r.normal((1, 2, 3, 3)), "Y": r.normal((1, 2, 3, 3))}),
        Sample({"X": r.normal((3, 1, 1, 2)), "Y": r.normal((3, 2, 1, 2))}),
    ],
    operand_ulps=2,
)
def fsp(xp: Any, x: Any, y: Any) -> Any:
    """Products of every channel of ``x`` with every channel of ``y``, averaged over positions.

    ``(N, Cx, H, W)`` and ``(N, Cy, H, W)`` give ``(N, Cx, Cy)``. Source: Paddle op ``fsp``;
    Yim and others, 2017.
    """
    product = xp.matmul(_flat(x), _flat(y).swapaxes(1, 2))
    return product / x.dtype.type(x.shape[2] * x.shape[3])


@fsp.grad("X", "Y", "Out@GRAD", dense=True, operand_ulps=2)
def fsp_grad(xp: Any, x: Any, y: Any, d_out: Any, *, needs: tuple[bool, bool]) -> tuple[Any, Any]:
    """The other images, multiplied by the gradient along the channels."""
    share = d_out / d_out.dtype.type(x.shape[2] * x.shape[3])
    return (
        xp.matmul(share, _flat(y)).reshape(x.shape) if needs[0] else None,
        xp.matmul(share.swapaxes(1, 2), _flat(x)).reshape(y.shape) if needs[1] else None,
    )
