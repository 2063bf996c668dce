"""Rows of a variable that are on one server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.selected_rows import SelectedRows

__all__ = ["RowBlock", "row_blocks"]


@dataclass(frozen=True)
class RowBlock:
    """Rows of a variable that are on one server.

    Args:
        name: the block's name on the server.
        endpoint: the server.
        begin: first row.
        rows: number of rows; None: all of them.
    """

    name: str
    endpoint: str
    begin: int = 0
    rows: int | None = None

    def of(self, value: Any) -> Any:
        """The block's rows of an array or of a sparse gradient."""
        if self.rows is None:
            return value
        if not isinstance(value, SelectedRows):
            return value[self.begin : self.begin + self.rows]
        inside = self.holds(value.row_array)
        return SelectedRows(value.row_array[inside] - self.begin, self.rows, value.value[inside])

    def holds(self, rows: Any) -> Any:
        """A mask of the row numbers that are in this block."""
        assert self.rows is not None
        return (rows >= self.begin) & (rows < self.begin + self.rows)


def row_blocks(
    names: Sequence[str], endpoints: Sequence[str], rows: Sequence[int]
) -> list[RowBlock]:
    """The blocks of a variable that is cut into blocks of rows.

    Args:
        names: the blocks' names on the servers.
        endpoints: the servers.
        rows: number of rows of each block.
    """
    blocks, begin = [], 0
    for name, endpoint, count in zip(names, endpoints, rows, strict=True):
        blocks.append(RowBlock(name, endpoint, begin, count))
        begin += count
    return blocks
