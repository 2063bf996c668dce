"""``spectral_norm``: a weight divided by its largest singular value."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._shapes import product, require_float


def _infer(weight: Spec, u: Spec, v: Spec, *, dim: int = 0, power_iters: int = 1) -> Spec:
    require_float(weight, "Weight")
    require(2 <= weight.rank <= 5, f"Weight {weight} must have 2 to 5 dimensions")
    require(dim in (0, 1), f"dim must be 0 or 1, but is {dim}")
    require(power_iters >= 0, f"power_iters must not be negative, but is {power_iters}")
    others = [n for i, n in enumerate(weight.shape) if i != dim]
    for name, spec, size in (("U", u, weight.shape[dim]), ("V", v, product(others))):
        require(
            spec.rank == 1 and dims_match(spec.shape[0], size),
            f"{name} {spec} must have {size} elements to fit Weight {weight}, dim={dim}",
        )
    return weight


def _samples(r: SampleRng) -> list[Sample]:
    def call(shape: tuple[int, ...], dim: int, iterations: int) -> Sample:
        weight = r.normal(shape)
        return Sample(
            {
                "Weight": weight,
                "U": r.normal((shape[dim],)),
                "V": r.normal((weight.size // shape[dim],)),
            },
            {"dim": dim, "power_iters": iterations},
            grad=("Weight",) if iterations == 0 else (),
            deviates={
                "Weight@GRAD": (
                    "gives a wrong gradient; dpexec gives the derivative for fixed U and V"
                )
            },
        )

    calls = [
        ((3, 4), 0, 0),
        ((2, 3, 4), 1, 0),
        ((4, 2), 1, 0),
        ((3, 4), 0, 1),
        ((2, 3, 2, 2), 1, 3),
    ]
    return [call(*settings) for settings in calls]


def _matrix(weight: Any, dim: int) -> Any:
    """The weight with ``dim`` as rows and all other dimensions as columns."""
    if dim:
        weight = weight.transpose(dim, *(i for i in range(weight.ndim) if i != dim))
    return weight.reshape(weight.shape[0], -1)


def _vectors(xp: Any, matrix: Any, u: Any, v: Any, power_iters: int, eps: float) -> tuple[Any, Any]:
    """Estimates of the first singular vectors by power iteration."""
    for _ in range(power_iters):
        v = matrix.T @ u
        v = v / (xp.sqrt((v * v).sum()) + eps)
        u = matrix @ v
        u = u / (xp.sqrt((u * u).sum()) + eps)
    return u, v


@op(
    "spectral_norm",
    inputs="Weight U V",
    infer=_infer,
    samples=_samples,
    operand_ulps=4,
)
def spectral_norm(
    xp: Any,
    weight: Any,
    u: Any,
    v: Any,
    *,
    dim: int = 0,
    power_iters: int = 1,
    eps: float = 1e-12,
) -> Any:
    """``weight / (u @ matrix @ v)``, with ``u`` and ``v`` refined by ``power_iters`` iterations.

    The matrix has the dimension ``dim`` of the weight as rows. Source: Paddle op
    ``spectral_norm``; Miyato et al. 2018.
    """
    matrix = _matrix(weight, dim)
    u, v = _vectors(xp, matrix, u, v, power_iters, eps)
    return weight / (u @ matrix @ v)


@spectral_norm.grad("Weight", "U", "V", "Out@GRAD", outputs="Weight@GRAD", operand_ulps=2)
def spectral_norm_grad(
    xp: Any,
    weight: Any,
    u: Any,
    v: Any,
    d_out: Any,
    *,
    dim: int = 0,
    power_iters: int = 1,
    eps: float = 1e-12,
) -> Any:
    """The derivative, in which the singular value depends on the weight, but not ``u`` and ``v``.

    Paddle gives ``d_out * (1 - outer(u, v) * sum(weight / sigma)) / sigma``, which is not the
    derivative.
    """
    matrix = _matrix(weight, dim)
    u, v = _vectors(xp, matrix, u, v, power_iters, eps)
    sigma = u @ matrix @ v
    slope = (d_out * weight).sum() / (sigma * sigma)
    others = [n for i, n in enumerate(weight.shape) if i != dim]
    outer = (u[:, None] * v).reshape(weight.shape[dim], *others)
    return d_out / sigma - slope * xp.moveaxis(outer, 0, dim)
