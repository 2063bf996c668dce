"""``fusion_seqconv_eltadd_relu``: a convolution along every sequence, a bias and ``relu``."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._contexts import ON_ARRAYS, Contexts
from dpexec.engine.ops._shapes import product
from dpexec.engine.ops.elementwise_add import elementwise_add
from dpexec.engine.ops.relu import relu
from dpexec.engine.ops.sequence_conv import sequence_conv

_LOD = Lod([[0, 3, 3, 4, 9]])


def _infer(
    x: Spec, lod: Spec | None, weight: Spec, bias: Spec,
    *, contextLength: int, contextStart: int = 0, contextStride: int = 1,
) -> tuple[Spec, Spec]:  # fmt: skip
    assert sequence_conv.infer is not None
    out = sequence_conv.infer(
        x, lod, None, weight, contextLength=contextLength, contextStart=contextStart,
        contextStride=contextStride,
    )  # fmt: skip
    require(lod is None or lod.rank == 1, "X must have one level of sequences")
    require(
        -contextLength < contextStart <= 0,
        f"contextStart must be above -{contextLength} and not above 0, but is {contextStart}",
    )
    require(
        dims_match(product(bias.shape), weight.shape[1]),
        f"Bias {bias} must have one number per column of Filter {weight}",
    )
    return out, out.replace(shape=(x.shape[0], weight.shape[0]), lod_level=0)


def _sample(r: SampleRng, start: int, length: int, width: int = 2) -> Sample:
    return Sample(
        {
            "X": r.normal((_LOD.rows, width)),
            "X@LOD": _LOD,
            "Filter": r.normal((length * width, 3)),
            "Bias": r.normal((1, 3)),
        },
        {"contextLength": length, "contextStart": start},
    )


@op(
    "fusion_seqconv_eltadd_relu",
    inputs="X X@LOD Filter Bias",
    outputs="Out ColMat",
    infer=_infer,
    attrs={"contextStride": 1},
    no_grad=True,
    samples=lambda r: [
        _sample(r, -1, 3),
        _sample(r, 0, 1, 4),
        _sample(r, 0, 3),
        _sample(r, -3, 4),
        _sample(r, -2, 5, 1),
    ],
    macs=lambda call: call.size("Out") * call.shape("Filter")[0],
    flops=per_element("Out", 2),
)
def fusion_seqconv_eltadd_relu(
    xp: Any, x: Any, lod: Lod, weight: Any, bias: Any, neighbours: Contexts = ON_ARRAYS,
    *, contextLength: int, contextStart: int = 0,
) -> tuple[Any, Any]:  # fmt: skip
    """``relu(sequence_conv(x) + Bias)``, and the context of every row.

    Source: Paddle op ``fusion_seqconv_eltadd_relu``.
    """
    around = {"contextLength": contextLength, "contextStart": contextStart}
    out = sequence_conv(xp, x, lod, None, weight, neighbours, **around)
    contexts = neighbours.of_rows(xp, x, lod, contextStart, contextLength)
    shifted = elementwise_add(xp, out, bias.reshape(-1))
    return relu(xp, shifted), contexts.reshape(len(x), len(weight))
