"""Arrays of tensors: the values of ``LOD_TENSOR_ARRAY`` variables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dpexec.engine.core.lod import NO_SEQUENCES, Lod

__all__ = ["Entry", "LazyArray", "StepArray", "TensorArray"]

Entry = tuple[Any, Lod]
"""An array, and the offsets of its sequences."""


class TensorArray:
    """Tensors by number, with the offsets of their sequences; never changed.

    Writing makes a new array that shares the other entries, so the holder of an older one, such as
    an iteration of a loop that keeps it for gradients, still sees its entries. Users see it as a
    :class:`~dpexec.engine.core.tensors.LoDTensorArray`.

    Args:
        entries: in order; None where nothing was written.
    """

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[Entry | None] = ()) -> None:
        self.entries = tuple(entries)

    def written(self, index: int, array: Any, lod: Lod | None = None) -> TensorArray:
        """A copy with one entry replaced; it grows as far as necessary.

        Args:
            index: number of the entry.
            array: its tensor.
            lod: the offsets of its sequences; None for none.

        Raises:
            ValueError: the index is negative.
        """
        if index < 0:
            raise ValueError(f"an array of tensors has no entry {index}")
        entries = list(self.entries)
        entries.extend(itertools.repeat(None, index + 1 - len(entries)))
        entries[index] = array, lod or NO_SEQUENCES
        return TensorArray(entries)

    def entry(self, index: int) -> Entry | None:
        """An entry; None where nothing was written.

        Args:
            index: its number.
        """
        return self.entries[index] if 0 <= index < len(self.entries) else None

    def joined(self, rows: Sequence[int]) -> Any:
        """The tensors one after another, if that is cheaper than to look at each.

        Args:
            rows: the number of rows of each.

        Returns:
            An array that nobody may change; None if the array has other tensors, or sequences.
        """
        return None

    @property
    def nbytes(self) -> int:
        """Memory of the tensors."""
        return sum(entry[0].nbytes for entry in self.entries if entry is not None)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry | None]:
        return iter(self.entries)

    def __repr__(self) -> str:
        shown = (None if e is None else f"{e[0].dtype}{list(e[0].shape)}" for e in self.entries)
        return f"TensorArray({', '.join(map(str, shown))})"


class LazyArray(TensorArray):
    """An array of tensors that makes its entries when somebody looks at them."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: tuple[Entry | None, ...] | None = None

    def _made(self) -> Iterable[Entry | None]:
        """All entries."""
        raise NotImplementedError

    @property
    def entries(self) -> tuple[Entry | None, ...]:  # type: ignore[override]
        """In order; None where nothing was written."""
        if self._found is None:
            self._found = tuple(self._made())
        return self._found

    def __reduce__(self) -> Any:
        return TensorArray, (self.entries,)


class StepArray(LazyArray):
    """Parts of a tensor, one after another, that have no sequences.

    Args:
        whole: the tensor.
        rows: the number of rows of each part.
    """

    __slots__ = ("rows", "whole")

    def __init__(self, whole: Any, rows: Sequence[int]) -> None:
        super().__init__()
        self.whole, self.rows = whole, rows

    def _made(self) -> Iterable[Entry | None]:
        ends = itertools.accumulate(self.rows)
        pairs = zip(self.rows, ends, strict=True)
        return [(self.whole[end - count : end], NO_SEQUENCES) for count, end in pairs]

    def joined(self, rows: Sequence[int]) -> Any:
        """See :meth:`TensorArray.joined`."""
        return self.whole if rows == self.rows else None

    def __len__(self) -> int:
        return len(self.rows)
