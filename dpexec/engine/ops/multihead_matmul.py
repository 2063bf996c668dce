"""``multihead_matmul``: self-attention with several heads in one operator."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.cost import Call
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._shapes import require_same_dtype
from dpexec.engine.ops.softmax import softmax


def _infer(
    x: Spec,
    w: Spec,
    bias: Spec,
    bias_qk: Spec,
    *,
    head_number: int = 1,
    transpose_Q: bool = False,
    transpose_K: bool = True,
    transpose_V: bool = False,
) -> Spec:
    require(
        (transpose_Q, transpose_K, transpose_V) == (False, True, False),
        f"transpose_Q={transpose_Q}, transpose_K={transpose_K}, transpose_V={transpose_V}: only "
        "keys are transposed, whatever these attributes say in Paddle; they must be False, True, "
        "False",
    )
    require(x.rank == 3, f"Input {x} must be [batch, length, width]")
    require(
        w.rank == 3 and w.shape[1] == 3 and dims_match(w.shape[0], x.shape[2]),
        f"W {w} must be [width of Input {x}, 3, width of the heads]",
    )
    require(
        bias.rank == 2 and bias.shape == w.shape[1:], f"Bias {bias} must be {list(w.shape[1:])}"
    )
    require(
        head_number > 0 and w.shape[2] % head_number == 0,
        f"head_number {head_number} must divide the {w.shape[2]} columns of W {w}",
    )
    batch, length, _ = x.shape
    wanted = (batch, head_number, length, length)
    require(
        bias_qk.rank == 4
        and all(dims_match(a, b) or a == 1 for a, b in zip(bias_qk.shape, wanted, strict=True)),
        f"BiasQK {bias_qk} must be {list(wanted)}, or have ones in its place",
    )
    for name, spec in (("W", w), ("Bias", bias), ("BiasQK", bias_qk)):
        require_same_dtype(x, spec, f"Input and {name}")
    return x.replace(shape=(batch, length, w.shape[2]))


def _samples(r: SampleRng) -> list[Sample]:
    def call(heads: int, qk: tuple[int, ...], **attrs: Any) -> Sample:
        inputs = {"Input": r.normal((2, 3, 8)), "W": r.normal((8, 3, 12)) / 3}
        inputs |= {"Bias": r.normal((3, 12)), "BiasQK": r.normal(qk)}
        return Sample(inputs, {"head_number": heads, **attrs})

    return [
        call(2, (2, 2, 3, 3), alpha=0.4),
        call(4, (2, 1, 1, 3), alpha=0.5),
        call(3, (1, 3, 3, 3)),
    ]


def _macs(call: Call) -> int:
    """Queries, keys and values; each query times all keys, and the weights times all values."""
    batch, length, _ = call.shape("Input")
    return batch * length * call.size("W") + 2 * length * call.size("Out")


@op(
    "multihead_matmul",
    inputs="Input W Bias BiasQK",
    infer=_infer,
    no_grad=True,
    samples=_samples,
    operand_ulps=2,
    macs=_macs,
)
def multihead_matmul(
    xp: Any,
    x: Any,
    w: Any,
    bias: Any,
    bias_qk: Any,
    *,
    alpha: float = 1.0,
    head_number: int = 1,
) -> Any:
    """``softmax(alpha * q @ k.T + BiasQK) @ v`` for each head, ``(batch, length, heads * size)``.

    ``Input @ W + Bias`` are queries, keys and values. It occurs in models that Paddle optimized for
    GPUs; Paddle has no kernel of it for CPUs. ``transpose_Q``, ``transpose_K`` and ``transpose_V``,
    which Paddle's kernel does not read, must have their defaults.
    Source: Paddle op ``multihead_matmul``.
    """
    batch, length, width = x.shape
    made = xp.matmul(x.reshape(-1, width), w.reshape(width, -1)) + bias.reshape(-1)
    q, k, v = made.reshape(batch, length, 3, head_number, -1).transpose(2, 0, 3, 1, 4)
    scores = xp.matmul(q, k.swapaxes(2, 3)) * x.dtype.type(alpha) + bias_qk
    mixed = xp.matmul(softmax(xp, scores), v)
    return xp.ascontiguousarray(mixed.transpose(0, 2, 1, 3)).reshape(batch, length, -1)
