"""Passes over loaded models: a predictor applies them once, with the values of parameters.

They may change the last bits of results, for instance when a batch norm becomes part of the filters
before it. So only predictors apply them, and document it; passes of strategies change no bit. They
have the names of Paddle's passes, which ``AnalysisConfig.delete_pass`` takes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from dpexec.engine.core.scope import Scope
from dpexec.engine.graph.operators import Operators
from dpexec.engine.ir.program import Program
from dpexec.engine.passes.prediction.convolutions import (
    ConvActivation,
    ConvBatchNorm,
    ConvBias,
    ConvResidual,
)
from dpexec.engine.passes.prediction.eight_bits import IntegerProducts, RealProducts
from dpexec.engine.passes.prediction.layers import FullyConnected
from dpexec.engine.passes.prediction.parameters import Parameters

__all__ = ["OF_INTEGERS", "PASSES", "Parameters", "PredictionPass", "optimized"]


class PredictionPass(Protocol):
    """A rewriting step of a loaded model."""

    name: str

    def rewrite(self, parameters: Parameters) -> bool:
        """Rewrite ``parameters.operators``; tell whether anything changed."""
        ...


PASSES: tuple[type[PredictionPass], ...] = (
    RealProducts,
    ConvBias,
    ConvBatchNorm,
    ConvResidual,
    ConvActivation,
    FullyConnected,
    IntegerProducts,
)
"""The passes in the order in which they run."""

OF_INTEGERS = frozenset([RealProducts.name, IntegerProducts.name])
"""Names of the passes that make integers of frozen nets; applied where that is asked for."""


def optimized(
    program: Program, scope: Scope, kept: Collection[str], left_out: Collection[str] = ()
) -> Program:
    """A program that computes the same with fewer operators.

    Args:
        program: of a loaded model; it stays as it is.
        scope: the values of its parameters, which change with the program: what no operator reads
            any more is gone.
        kept: names of the variables that are fetched.
        left_out: names of passes that are not applied.

    Returns:
        The other program.
    """
    made = program.clone()
    parameters = Parameters(Operators(made, kept), scope)
    steps: Sequence[PredictionPass] = [step() for step in PASSES if step.name not in left_out]
    for step in steps:
        step.rewrite(parameters)
    made.global_block().ops = parameters.operators.ops
    parameters.drop_unused()
    made._changed()
    return made
