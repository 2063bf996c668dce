"""``fusion_repeated_fc_relu``: several fully connected layers, each with ``relu``."""

from __future__ import annotations

import itertools
from typing import Any

from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._shapes import product
from dpexec.engine.ops.elementwise_add import elementwise_add
from dpexec.engine.ops.mul import mul
from dpexec.engine.ops.relu import relu


def _infer(x: Spec, weights: list[Spec], biases: list[Spec]) -> tuple[list[Spec], Spec]:
    require(x.rank == 2, f"X {x} must be a matrix")
    require(len(weights) > 1, f"W must be two matrices or more, but there are {len(weights)}")
    require(
        len(biases) == len(weights),
        f"Bias must be as many variables as W, but there are {len(biases)} of {len(weights)}",
    )
    assert mul.infer is not None
    layers = [x]
    for number, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        require(weight.rank == 2, f"W[{number}] {weight} must be a matrix")
        require(
            dims_match(product(bias.shape), weight.shape[1]),
            f"Bias[{number}] {bias} must have one number per column of W[{number}] {weight}",
        )
        layers.append(mul.infer(layers[-1], weight))
    return [layer.replace(lod_level=0) for layer in layers[1:-1]], layers[-1]


def _sample(r: SampleRng, rows: int, *widths: int, flat: bool = False) -> Sample:
    sides = list(itertools.pairwise(widths))
    return Sample(
        {
            "X": r.normal((rows, widths[0])),
            "W": [r.normal(side) for side in sides],
            "Bias": [r.normal((width,) if flat else (1, width)) for _, width in sides],
        }
    )


@op(
    "fusion_repeated_fc_relu",
    inputs="X W[] Bias[]",
    outputs="ReluOut[] Out",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        _sample(r, 3, 4, 5, 2),
        _sample(r, 1, 3, 3, 3, flat=True),
        _sample(r, 2, 8, 16, 1, 4),
    ],
    operand_ulps=2,
)
def fusion_repeated_fc_relu(
    xp: Any, x: Any, weights: list[Any], biases: list[Any]
) -> tuple[list[Any], Any]:
    """``relu(x @ W + Bias)``, layer after layer; ``ReluOut`` has all results but the last.

    Source: Paddle op ``fusion_repeated_fc_relu``.
    """
    layers = [x]
    for weight, bias in zip(weights, biases, strict=True):
        layers.append(relu(xp, elementwise_add(xp, mul(xp, layers[-1], weight), bias.reshape(-1))))
    return layers[1:-1], layers[-1]
