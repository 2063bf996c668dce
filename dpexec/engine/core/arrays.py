"""Arrays of tensors: the values of ``LOD_TENSOR_ARRAY`` variables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from dpexec.engine.core.lod import NO_SEQUENCES, Lod

__all__ = ["Entry", "TensorArray"]

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
