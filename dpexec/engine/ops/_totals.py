"""Gradients that blocks make several times, added up."""

from __future__ import annotations

from typing import Any, Protocol

from dpexec.engine.core.arrays import TensorArray
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ops.sum import sum as add

__all__ = ["Deferred", "Total", "dense"]


class Deferred(Protocol):
    """What puts work on arrays off as long as nobody needs to know what is in them."""

    def copy(self, into: Any, array: Any) -> None:
        """``into[...] = array``."""

    def add(self, into: Any, array: Any) -> None:
        """``into += array``."""


class Total:
    """The sum of the gradients of all rounds or steps, in the order in which they come.

    Args:
        xp: the array library.
    """

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._whole: Any = None
        self._room: Any = None
        self._sparse: list[SelectedRows] = []
        self._arrays: list[TensorArray] = []

    def add(self, gradient: Any, deferred: Deferred) -> None:
        """Add a gradient, which stays as it is.

        Args:
            gradient: an array, some of its rows, or a TensorArray.
            deferred: adds arrays.
        """
        if isinstance(gradient, SelectedRows):
            self._sparse.append(gradient)
        elif isinstance(gradient, TensorArray):
            self._arrays.append(gradient)
        elif self._whole is None:
            self._whole = self._xp.empty_like(gradient)
            deferred.copy(self._whole, gradient)
        else:
            deferred.add(self._whole, gradient)

    def room(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array for a gradient that nobody else needs, which :meth:`take` adds.

        Args:
            shape: of the gradient.
            dtype: its element type.
        """
        if self._whole is None:
            return self._xp.empty(shape, dtype)
        if self._room is None or self._room.shape != shape:
            self._room = self._xp.empty(shape, dtype)
        return self._room

    def take(self, gradient: Any) -> Any:
        """Take a gradient in its :meth:`room`.

        Args:
            gradient: the array.

        Returns:
            What it is to be added to; None if it is the first one.
        """
        if self._whole is None:
            self._whole = gradient
            return None
        return self._whole

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
