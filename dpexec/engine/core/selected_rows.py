"""``SelectedRows``: some rows of a tall matrix; the type of sparse gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.places import Place
from dpexec.engine.core.ranges import require_between
from dpexec.engine.core.runs import add_at, add_runs, sums_of_runs
from dpexec.engine.core.tensors import LoDTensor

__all__ = ["SelectedRows"]


class SelectedRows:
    """Some rows of a tall matrix, such as the gradient of a large embedding table.

    Args:
        rows: row numbers, in any order, with repetitions.
        height: number of rows of the full matrix.
        value: array ``(len(rows), ...)``; repeated rows stand for the sum of their values.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> rows = fluid.core.SelectedRows([0, 2], 5)  # two of five rows
        >>> rows.get_tensor().set(np.array([[1.0], [2.0]]), fluid.CPUPlace())
        >>> rows.rows(), rows.height()
        ([0, 2], 5)
    """

    __slots__ = ("_height", "_numbers", "_tensor")

    def __init__(self, rows: Any = (), height: int = 0, value: Any = None) -> None:
        self._numbers = rows if hasattr(rows, "dtype") else np.asarray(rows, dtype=np.int64)
        self._height = int(height)
        self._tensor = LoDTensor()
        self._tensor.array = value

    @property
    def _rows(self) -> Any:
        self._tensor.bring()
        return self._numbers

    @property
    def height_(self) -> int:
        """Number of rows of the full matrix."""
        self._tensor.bring()
        return self._height

    @property
    def row_array(self) -> Any:
        """The row numbers as an int64 array ``(n,)``."""
        return self._rows

    @property
    def value(self) -> Any:
        """The array ``(n, ...)`` of the rows."""
        return self._tensor.array

    @property
    def dtype(self) -> Any:
        """Element type of the rows."""
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the full matrix."""
        return (self.height_, *self.value.shape[1:])

    def rows(self) -> list[int]:
        """The row numbers as a list."""
        return [int(row) for row in self._rows]

    def set_rows(self, rows: Sequence[int]) -> None:
        """Replace the row numbers."""
        self._tensor.bring()
        self._numbers = np.asarray(rows, dtype=np.int64)
        self.touch()

    def height(self) -> int:
        """Number of rows of the full matrix."""
        return self.height_

    def set_height(self, height: int) -> None:
        """Set the number of rows of the full matrix."""
        self._tensor.bring()
        self._height = int(height)
        self.touch()

    def get_tensor(self) -> LoDTensor:
        """The tensor of the rows' values."""
        self._tensor.bring()  # with the rows, whose values may be overwritten now
        return self._tensor

    def numel(self) -> int:
        """Number of elements that are stored."""
        return 0 if self.value is None else int(self.value.size)

    def sync_index(self) -> None:
        """Kept for fluid's sake: there is no separate index that could be out of step."""

    # ---- as the value of a variable of a scope, see LoDTensor

    @property
    def form(self) -> Any:
        """Type and shape for shape rules; None if nothing is stored or it is deferred."""
        return None if self._tensor.form is None else (type(self), self.shape, self.dtype)

    @property
    def place(self) -> Place:
        """Where row numbers and values lie."""
        return self._tensor.place

    @property
    def version(self) -> int:
        """Grows with every write from outside a run."""
        return self._tensor.version

    @version.setter
    def version(self, time: int) -> None:
        self._tensor.version = time

    @property
    def in_scope(self) -> bool:
        """Whether it is the value of a variable of a scope."""
        return self._tensor.in_scope

    @in_scope.setter
    def in_scope(self, whether: bool) -> None:
        self._tensor.in_scope = whether

    def touch(self) -> None:
        """Mark it as written from outside the runtime that replicates it."""
        self._tensor.touch()

    def _is_initialized(self) -> bool:
        return self._tensor._is_initialized()

    def view(self) -> SelectedRows:
        """The rows and values for a run, which do not change if this variable does."""
        return SelectedRows(self._rows, self.height_, self.value)

    def copy(self) -> SelectedRows:
        """The same rows and values in memory of their own."""
        return SelectedRows(self._rows.copy(), self.height_, self.value.copy())

    def hold(self, other: SelectedRows, place: Place) -> None:
        """Hold rows and values of another one, without a copy.

        Args:
            other: what a run computed.
            place: where that lies.
        """
        self._numbers, self._height = other._rows, other.height_
        self._tensor.array, self._tensor.place = other.value, place

    def defer(self, source: Callable[[], SelectedRows | None], place: Place) -> None:
        """Let ``source`` deliver rows and values when they are first read, see LoDTensor.

        Args:
            source: delivers them; None if there are none.
            place: where they will lie.
        """

        def bring() -> Any:
            found = source()
            if found is None:
                return None
            self._numbers, self._height = found._rows, found.height_
            return found.value

        self._tensor.defer(bring, place)

    @property
    def is_deferred(self) -> bool:
        """Whether rows and values are yet to be delivered."""
        return self._tensor.is_deferred

    # ---- as a matrix

    def to_dense(self, xp: Any = np) -> Any:
        """The full matrix, repeated rows added up in order."""
        dense = xp.zeros(self.shape, dtype=self.dtype)
        if xp is np:
            rows, value = self._sum_repeated()
            dense[rows] = value
        else:
            self.add_to(xp, dense)
        return dense

    def add_to(self, xp: Any, dense: Any, factor: Any = None) -> None:
        """Add the rows to a full matrix, repeated ones after they were added up in order.

        Args:
            xp: ``numpy`` or ``cupy``.
            dense: the matrix.
            factor: an array of one element; rows are multiplied by it, and added one after another.
        """
        if xp is np and factor is None:
            rows, value = self._sum_repeated()
            dense[rows] += value
        elif xp is np:
            add_at(np, dense, self._rows, factor * self.value)
        else:
            order, rows = self._sorted(xp)
            add_runs(xp, dense, rows, order, rows, self.value, factor)

    def merged(self, xp: Any = np) -> SelectedRows:
        """Equal content with sorted rows, each once; repetitions added in order of appearance.

        On a GPU there are as many rows as before, as the host does not know how many differ: the
        first of equal ones has their sum, the others are 0.
        """
        if xp is np:
            rows, value = self._sum_repeated()
        else:
            order, rows = self._sorted(xp)
            value = xp.zeros(self.value.shape, self.dtype)
            add_runs(xp, value, rows, order, xp.arange(rows.size), self.value)
        return SelectedRows(rows, self.height_, value)

    def joined(self, others: Sequence[SelectedRows], xp: Any = np) -> SelectedRows:
        """The rows of several, one after another; merged if a row is repeated.

        On a GPU they are never merged, as the host does not know whether a row is repeated.

        Args:
            others: of the same matrix.
            xp: ``numpy`` or ``cupy``.
        """
        parts = [self, *others]
        rows = xp.concatenate([part.row_array for part in parts])
        value = xp.concatenate([part.value for part in parts])
        found = SelectedRows(rows, self.height_, value)
        if xp is not np:
            return found
        merged = found.merged()
        return merged if len(merged.row_array) < len(rows) else found

    def positions(self, rows: Any, name: str, xp: Any = np) -> Any:
        """The positions of some row numbers among those that are stored.

        Args:
            rows: row numbers.
            name: what they are called in the error.
            xp: ``numpy`` or ``cupy``.

        Raises:
            ValueError: a row is not stored.
        """
        order, known = self._sorted(xp)
        if not len(known):
            order, known = xp.zeros(1, np.int64), xp.full(1, -1, np.int64)  # nobody asks for it
        place = xp.minimum(xp.searchsorted(known, rows), len(known) - 1)
        missing = xp.where(known[place] == rows, -1, rows)
        problem = f"{name}: row {{}} is not among the {len(self._rows)} of {self.shape}"
        require_between(xp, missing, -1, -1, problem)
        return order[place]

    def totals(self, xp: Any = np) -> tuple[Any, Any]:
        """Sorted rows, each with the sum of its values, for updates that overwrite rows.

        On a GPU, rows are there as often as before, each time with the same sum.
        """
        merged = self.merged(xp)
        rows, value = merged.row_array, merged.value
        return (rows, value) if xp is np else (rows, value[xp.searchsorted(rows, rows)])

    def _sorted(self, xp: Any) -> tuple[Any, Any]:
        """The stable order that sorts the rows, and the sorted rows."""
        order = xp.argsort(self._rows, kind="stable")
        return order, self._rows[order]

    def _sum_repeated(self) -> tuple[Any, Any]:
        """Sorted rows, each once, and the sums of their values."""
        order, rows = self._sorted(np)
        value = self.value[order]
        first = np.ones(len(rows), dtype=bool)
        first[1:] = rows[1:] != rows[:-1]
        starts = np.flatnonzero(first)
        if len(starts) == len(rows):
            return rows, value
        return rows[starts], sums_of_runs(value, starts)

    def __repr__(self) -> str:
        return f"SelectedRows(height={self.height_}, rows={self.rows()})"
