"""``fused_gemm_epilogue``: a matrix product, a bias and optionally an activation."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.cost import Call
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops.elementwise_add import elementwise_add_grad
from dpexec.engine.ops.mul import mul, mul_grad
from dpexec.engine.ops.relu import relu


def _macs(call: Call) -> int:
    return call.size("Out") * call.shape("Y")[0]


_ACTIVATIONS = ("none", "relu")


def _infer(
    x: Spec, y: Spec, bias: Spec, *, x_num_col_dims: int = 1, activation: str = "none"
) -> Spec:
    require(activation in _ACTIVATIONS, f"activation must be none or relu, but is {activation!r}")
    require(y.rank == 2, f"Y {y} must be a matrix")
    require(
        bias.rank == 1 and dims_match(bias.shape[0], y.shape[1]),
        f"Bias {bias} must have one element per column of Y {y}",
    )
    assert mul.infer is not None
    found: Spec = mul.infer(x, y, x_num_col_dims=x_num_col_dims)
    return found


def _samples_of(*slots: str) -> Any:
    def samples(r: SampleRng) -> list[Sample]:
        return [drawn(r, (3, 4)), drawn(r, (2, 3, 4), x_num_col_dims=2), drawn(r, (5, 2, 2))]

    def drawn(r: SampleRng, shape: tuple[int, ...], **attrs: Any) -> Sample:
        rows = shape[: attrs.get("x_num_col_dims", 1)]
        found = {"X": r.normal(shape), "Y": r.normal((4, 6)), "Bias": r.normal((6,))}
        found["Out@GRAD"] = r.normal((*rows, 6))
        if "Out@GRAD" not in slots and len(rows) == 1:
            attrs["activation"] = "relu"
        return Sample({slot: found[slot] for slot in slots}, attrs)

    return samples


@op(
    "fused_gemm_epilogue",
    inputs="X Y Bias",
    infer=_infer,
    no_grad=True,
    samples=_samples_of("X", "Y", "Bias"),
    capturable=True,
    macs=_macs,
)
def fused_gemm_epilogue(
    xp: Any, x: Any, y: Any, bias: Any, *, x_num_col_dims: int = 1, activation: str = "none"
) -> Any:
    """``activation(x @ y + bias)``, with ``x`` flattened to a matrix as by ``mul``.

    A pass makes it in programs that already have their gradients. Source: operator
    ``fused_gemm_epilogue`` of later versions of Paddle.
    """
    out = mul(xp, x, y, x_num_col_dims=x_num_col_dims)
    out += bias
    return relu(xp, out) if activation == "relu" else out


@op(
    "fused_gemm_epilogue_grad",
    inputs="X Y Bias Out@GRAD",
    outputs="X@GRAD? Y@GRAD? Bias@GRAD?",
    infer=lambda x, y, bias, d_out: tuple(spec.replace(lod_level=0) for spec in (x, y, bias)),
    no_grad=True,
    samples=_samples_of("X", "Y", "Bias", "Out@GRAD"),
    capturable=True,
    macs=lambda call: call.gradients * _macs(call),
)
def fused_gemm_epilogue_grad(
    xp: Any,
    x: Any,
    y: Any,
    bias: Any,
    d_out: Any,
    *,
    x_num_col_dims: int = 1,
    needs: tuple[bool, bool, bool] = (True, True, True),
) -> tuple[Any, Any, Any]:
    """The gradients of the product and of the bias; ``Out@GRAD`` includes the activation's slope.

    Source: operator ``fused_gemm_epilogue_grad`` of later versions of Paddle.
    """
    d_x, d_y = mul_grad(xp, x, y, d_out, x_num_col_dims=x_num_col_dims, needs=needs[:2])
    wanted = (False, needs[2])
    return d_x, d_y, elementwise_add_grad(xp, d_out, bias, d_out, needs=wanted)[1]
