"""``fusion_gru``: a gated recurrent unit that includes the projection of its input."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, passes_on, require
from dpexec.engine.ops._costs import GRU_CELL, from_rows
from dpexec.engine.ops._edges import STATES, smaller
from dpexec.engine.ops._gru import ON_ARRAYS
from dpexec.engine.ops._recurrent import EMPTY, THREE, Loops
from dpexec.engine.ops.gru import gru, infer_gru
from dpexec.engine.ops.mul import mul


@passes_on(infer_gru)
def _infer(
    x: Spec, lod: Spec | None, h0: Spec | None, weight_x: Spec, weight_h: Spec,
    bias: Spec | None, **attrs: Any,
) -> tuple[Spec | None, ...]:  # fmt: skip
    require(x.rank == 2, f"X {x} must be a matrix")
    assert mul.infer is not None
    hidden = infer_gru(mul.infer(x, weight_x), lod, h0, weight_h, bias, **attrs)[-1]
    return None, None, None, None, hidden


def _sample(r: SampleRng, size: int, lod: Lod, *slots: str, **attrs: Any) -> Sample:
    inputs = {
        "X": r.normal((lod.rows, 5)),
        "X@LOD": lod,
        "WeightX": r.normal((5, 3 * size)),
        "WeightH": r.normal((size, 3 * size)),
        "H0": r.normal((lod.sequences, size)),
        "Bias": r.normal((1, 3 * size)),
    }
    left_out = {"H0", "Bias"} - set(slots)
    return Sample({slot: v for slot, v in inputs.items() if slot not in left_out}, attrs)


def _samples(r: SampleRng) -> list[Sample]:
    kinds = {"activation": "sigmoid", "gate_activation": "tanh"}
    return [
        _sample(r, 3, THREE, "Bias"),
        _sample(r, 2, THREE, "H0", "Bias", use_seq=False),
        _sample(r, 8, THREE, is_reverse=True),
        _sample(r, 16, THREE, "Bias", is_reverse=True, use_seq=False),
        _sample(r, 2, EMPTY, "H0", **kinds),
        _sample(r, 3, Lod([[0, 4]]), "H0", "Bias", use_seq=False, activation="relu"),
        smaller(_sample(r, 3, THREE, "Bias"), 1e-6, "Hidden", STATES),
        _origin(_sample(r, 3, THREE, "H0", "Bias", origin_mode=True)),
    ]


def _origin(sample: Sample) -> Sample:
    why = "ignores origin_mode; dpexec applies it"
    return Sample(sample.inputs, sample.attrs, deviates={"Hidden": why})


@op(
    "fusion_gru",
    inputs="X X@LOD H0? WeightX WeightH Bias?",
    outputs="ReorderedH0 XX BatchedInput BatchedOut Hidden",
    infer=_infer,
    attrs={"use_seq": True},
    no_grad=True,
    samples=_samples,
    operand_ulps=8,
    macs=from_rows("X", "WeightX", "WeightH"),
    flops=per_element("Hidden", GRU_CELL),
)
@passes_on(gru.kernel)
def fusion_gru(
    xp: Any, x: Any, lod: Lod, h0: Any, weight_x: Any, weight_h: Any, bias: Any,
    loops: Loops = ON_ARRAYS, **attrs: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """``gru`` of ``X @ WeightX``, with the attributes of ``gru``, including ``origin_mode``.

    All outputs except ``Hidden`` are buffers of Paddle, which stay empty here. Source: Paddle op
    ``fusion_gru``.
    """
    taken = mul(xp, x, weight_x)
    hidden = gru(xp, taken, lod, h0, weight_h, bias, loops, **attrs)[-1]
    return None, None, None, None, hidden
