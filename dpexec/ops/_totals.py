"""Gradients that blocks make several times, added up."""

from __future__ import annotations

from typing import Any

from dpexec.core.arrays import TensorArray
from dpexec.core.tensors import SelectedRows
from dpexec.ops.sum import sum as add

__all__ = ["Total", "dense"]


class Total:
    """The sum of the gradients of all rounds or steps, in the order in which they come.

    Args:
        xp: the array library.
    """

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._whole: Any = None
        self._sparse: list[SelectedRows] = []
        self._arrays: list[TensorArray] = []

    def add(self, gradient: Any) -> None:
        """Add a gradient, which stays as it is: an array, some of its rows, or a TensorArray."""
        if isinstance(gradient, SelectedRows):
            self._sparse.append(gradient)
        elif isinstance(gradient, TensorArray):
            self._arrays.append(gradient)
        elif self._whole is None:
            self._whole = gradient.copy()
        else:
            self._whole += gradient

    @property
    def whole(self) -> Any:
        """The sum, which is dense: rows of tables become whole tables; None if nothing came."""
        if self._arrays:
            return add(self._xp, self._arrays)
        if not self._sparse:
            return self._whole
        return dense(self._xp, add(self._xp, self._sparse))


def dense(xp: Any, gradient: Any) -> Any:
    """A gradient as it leaves a block: rows of a table become a whole table.

    Args:
        xp: the array library.
        gradient: SelectedRows; all else stays what it is.
    """
    return gradient.to_dense(xp) if isinstance(gradient, SelectedRows) else gradient
