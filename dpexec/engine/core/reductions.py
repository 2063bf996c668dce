"""Reductions of values of several devices or trainers: sum, product, extrema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.core.light_dataclasses import dataclass

__all__ = ["LARGEST", "PRODUCT", "REDUCTIONS", "SMALLEST", "SUM", "Reduction"]


@dataclass(frozen=True)
class Reduction:
    """Combines values, one after another.

    Args:
        name: its name in types of operators, such as ``c_allreduce_sum``.
        text: the name of the result in messages.
        ufunc: its name in NumPy and CuPy.
        nccl: its name in NCCL.

    Example:
        >>> import numpy as np
        >>> from dpexec.extend import Reduction
        >>> longest = Reduction("max", "largest value", "maximum", "NCCL_MAX")
        >>> longest.of(np, [np.array([1, 5]), np.array([4, 2])])  # the values of two replicas
        array([4, 5])
    """

    name: str
    text: str
    ufunc: str
    nccl: str

    def of(self, xp: Any, values: Sequence[Any], out: Any = None) -> Any:
        """Combine arrays of one shape and type, in their order.

        Args:
            xp: ``numpy`` or ``cupy``.
            values: at least two.
            out: an array for the result; None makes one.
        """
        combine = getattr(xp, self.ufunc)
        total = combine(values[0], values[1], out=out)
        for value in values[2:]:
            total = combine(total, value, out=total)
        return total


SUM = Reduction("sum", "sum", "add", "NCCL_SUM")
PRODUCT = Reduction("prod", "product", "multiply", "NCCL_PROD")
LARGEST = Reduction("max", "largest value", "maximum", "NCCL_MAX")
SMALLEST = Reduction("min", "smallest value", "minimum", "NCCL_MIN")
REDUCTIONS = (SUM, PRODUCT, LARGEST, SMALLEST)
"""All of them, in the order of ``reduce_type`` of the operator ``allreduce``."""
