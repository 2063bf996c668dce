"""Sums of gradients over the rounds or steps of a block."""

from __future__ import annotations

from typing import Any, Protocol

from dpexec.engine.core.arrays import TensorArray
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ops.sum import sum as add

__all__ = ["Deferred", "Total", "dense"]


class Deferred(Protocol):
    """Defers work on arrays until their contents are needed."""

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
        """Add a gradient, which is not changed.

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
        """An array to write a gradient to, before :meth:`take` adds it.

        Args:
            shape: shape of the gradient.
            dtype: its data type.
        """
        if self._whole is None:
            return self._xp.empty(shape, dtype)
        if self._room is None or self._room.shape != shape:
            self._room = self._xp.empty(shape, dtype)
        return self._room

    def take(self, gradient: Any) -> Any:
        """Take a gradient that was written to :meth:`room`.

        Args:
            gradient: the array.

        Returns:
            The array to add it to; None if it is the first gradient.
        """
        if self._whole is None:
            self._whole = gradient
            return None
        return self._whole

    @property
    def whole(self) -> Any:
        """The sum as a dense array, from rows of tables, too; None without gradients."""
        if self._arrays:
            return add(self._xp, self._arrays)
        if not self._sparse:
            return self._whole
        return dense(self._xp, add(self._xp, self._sparse))


def dense(xp: Any, gradient: Any) -> Any:
    """A gradient in dense form, as blocks return it.

    Args:
        xp: the array library.
        gradient: SelectedRows are converted, other values returned unchanged.
    """
    return gradient.to_dense(xp) if isinstance(gradient, SelectedRows) else gradient
