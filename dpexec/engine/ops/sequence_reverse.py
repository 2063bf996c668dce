"""``sequence_reverse``: every sequence backwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import GradContext, GradOp, Sample, Spec, op, require


def _infer(x: Spec, lod: Spec | None) -> Spec:
    require(x.rank >= 2, f"X {x} must have two dimensions or more")
    return x


@op(
    "sequence_reverse",
    inputs="X X@LOD",
    outputs="Y",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.normal((5, 2)), "X@LOD": Lod([[0, 2, 2, 5]])}),
        Sample({"X": r.normal((3, 1, 2)), "X@LOD": Lod([[0, 3]])}),
        Sample(
            {"X": np.arange(5).reshape(5, 1), "X@LOD": Lod([[0, 2, 5]])},
            expected={"Y": np.array([[1], [0], [4], [3], [2]])},
        ),
        Sample({"X": r.normal((4, 2)), "X@LOD": Lod([[0, 4]])}),
    ],
    grad_lod="own",
)
def sequence_reverse(xp: Any, x: Any, lod: Lod) -> Any:
    """The rows of every sequence in the opposite order. Source: Paddle op ``sequence_reverse``."""
    mirrors = np.repeat(lod.offsets[:-1] + lod.offsets[1:] - 1, lod.lengths)
    return xp.take(x, xp.asarray(mirrors - np.arange(len(x))), axis=0)


@sequence_reverse.grad_maker
def _grad_maker(context: GradContext) -> list[GradOp]:
    """The gradient is reversed, too."""
    inputs = {"X": context.output_grads["Y"], **context.offsets("X@LOD", "X")}
    return [GradOp("sequence_reverse", inputs, {"Y": context.input_grads["X"]})]
