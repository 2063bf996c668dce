"""``fusion_seqexpand_concat_fc``: a dense layer on rows, each next to a row of its sequence."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._recurrent import EMPTY, THREE, activate, require_activations
from dpexec.engine.ops._sequences import per_row
from dpexec.engine.ops._shapes import product, require_same_dtype
from dpexec.engine.ops.mul import mul


def _infer(
    xs: list[Spec], lods: list[Spec], weight: Spec, bias: Spec | None,
    *, fc_activation: str = "identity",
) -> tuple[Spec, Spec]:  # fmt: skip
    require(len(xs) > 1, f"X must be two variables or more, but there are {len(xs)}")
    for x in xs:
        require_same_dtype(x, weight, "X and FCWeight")
        require(x.rank == 2, f"all of X must be matrices, but one is {x}")
    for lod in lods:
        require(lod.rank == 1, "all of X must have one level of sequences")
    widths = [x.shape[1] for x in xs]
    require(
        weight.rank == 2 and (min(widths) < 0 or dims_match(weight.shape[0], sum(widths))),
        f"FCWeight {weight} must have as many rows as all of X together have columns, {widths}",
    )
    require(
        bias is None or dims_match(product(bias.shape), weight.shape[1]),
        f"FCBias {bias} must have one number per column of FCWeight {weight}",
    )
    require_activations(fc_activation=fc_activation)
    out = xs[0].replace(shape=(xs[0].shape[0], weight.shape[1]))
    return out, out.replace(shape=(xs[1].shape[0], weight.shape[1]), lod_level=0)


def _sample(r: SampleRng, lod: Lod, *widths: int, bias: tuple[int, ...] = (), **attrs: Any) -> Any:
    count = lod.sequences
    inputs = {
        "X": [r.normal((lod.rows if not i else count, n)) for i, n in enumerate(widths)],
        "X@LOD": [lod, *[Lod([range(count + 1)])] * (len(widths) - 1)],
        "FCWeight": r.normal((sum(widths), 4)),
    }
    return Sample(inputs | ({"FCBias": r.normal(bias)} if bias else {}), attrs)


@op(
    "fusion_seqexpand_concat_fc",
    inputs="X[] X@LOD[] FCWeight FCBias?",
    outputs="Out FCOut",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=lambda r: [
        _sample(r, THREE, 3, 2),
        _sample(r, THREE, 2, 1, 3, bias=(1, 4), fc_activation="tanh"),
        _sample(r, EMPTY, 2, 8, bias=(4,), fc_activation="sigmoid"),
        _sample(r, EMPTY, 1, 1, 1, bias=(4,), fc_activation="relu"),
    ],
)
def fusion_seqexpand_concat_fc(
    xp: Any, xs: list[Any], lods: list[Lod], weight: Any, bias: Any,
    *, fc_activation: str = "identity",
) -> tuple[Any, Any]:  # fmt: skip
    """The activation of ``concat(x[0], the others repeated for its rows) @ FCWeight + FCBias``.

    The others have one row for each sequence of the first. Their contribution is returned, too.
    Source: Paddle op ``fusion_seqexpand_concat_fc``.

    Raises:
        ValueError: one of the others does not have one row for each sequence.
    """
    (first, *others), count = xs, lods[0].sequences
    for number, (x, lod) in enumerate(zip(others, lods[1:], strict=True), 1):
        if len(x) != count or lod.sequences != count:
            raise ValueError(
                f"X[{number}] must have a row for each of {count} sequences of X[0], but has "
                f"{len(x)} rows in {lod.sequences} sequences"
            )
    width = first.shape[1]
    shared = mul(xp, xp.concatenate(others, axis=1), weight[width:])
    out = mul(xp, first, weight[:width]) + per_row(xp, shared, lods[0])
    if bias is not None:
        out += bias.reshape(-1)
    return activate(xp, out, fc_activation), shared
