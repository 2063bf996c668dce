"""Lookups in distributed tables, which only servers hold: a step is fed the rows it looks up.

In the trainer's program, a lookup reads a small table with the rows of the batch, and row numbers
in that small table. All devices get the same small table, so its gradient is summed over devices
like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import to_numpy
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.engine.parameter_server.client import Servers
from dpexec.engine.parameter_server.row_blocks import RowBlock, row_blocks

__all__ = ["Table", "fetch", "tables_in", "whole_tables"]

_LEAST = 8  # smallest capacity of a small table, in rows


@dataclass
class Table:
    """A distributed table, which only servers hold.

    Args:
        var: the table's variable.
        blocks: the rows of each server.
        padding: rows that some lookup reads as 0; they come first in every small table.
        ids: maps variables with row numbers to variables with row numbers of the small table.
    """

    var: Variable
    blocks: list[RowBlock]
    padding: list[int] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def small(self) -> str:
        """Name of the small table."""
        return f"{self.var.name}@ROWS"

    def numbers(self, feeds: Feeds) -> np.ndarray[Any, Any]:
        """The rows that a batch looks up: padding rows first, then the other ones in order.

        Raises:
            EnforceNotMet: row numbers are not fed, or a row does not exist.
        """
        fed = [values for values in feeds.values if values]
        for name in self.ids:
            if not all(name in values for values in fed):
                raise EnforceNotMet(
                    f"numbers of rows of {self.var.name} are in {name}, which is not fed: rows of "
                    "a table with is_distributed=True are fetched before the step"
                )
        found = np.unique(np.concatenate([v[name].reshape(-1) for v in fed for name in self.ids]))
        if found.size and not 0 <= found[0] <= found[-1] < self.var.shape[0]:
            raise EnforceNotMet(
                f"table {self.var.name} has {self.var.shape[0]} rows, but rows {found[0]} to "
                f"{found[-1]} are looked up in it"
            )
        others = found[~np.isin(found, self.padding)]
        return np.concatenate([np.array(self.padding, np.int64), others])

    def in_small(
        self, ids: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        """Convert row numbers to those of the small table with the rows ``numbers``."""
        first = len(self.padding)
        places = first + np.searchsorted(numbers[first:], ids)
        for place, padding in enumerate(self.padding):
            places[ids == padding] = place
        return places

    def room(self, rows: int) -> np.ndarray[Any, Any]:
        """A small table for a number of rows; sizes are rounded, as each size is compiled once."""
        count = max(_LEAST, 1 << (rows - 1).bit_length())
        return np.zeros((count, *self.var.shape[1:]), to_numpy(self.var.dtype))

    def whole(self, gradient: SelectedRows, numbers: np.ndarray[Any, Any]) -> SelectedRows:
        """The gradient of the table, from the gradient of a small table."""
        return SelectedRows(numbers[gradient.row_array], self.var.shape[0], gradient.value)


def tables_in(program: Program) -> list[Table]:
    """Find the distributed tables, and let lookups read small tables instead.

    Args:
        program: a copy of a trainer's program, rewritten in place.
    """
    block, found = program.global_block(), dict[str, Table]()
    for op in block.ops:
        if op.attrs.get("epmap") and "table_names" in op.attrs:
            blocks = row_blocks(
                op.attr("table_names"), op.attr("epmap"), op.attr("height_sections")
            )
            name = op.input("W")[0]
            found.setdefault(name, Table(block.var(name), blocks))
    for op in block.ops:
        read = op.inputs.get("W", [])
        if read and read[0] in found:
            _read_small(op, found[read[0]])
    for table in found.values():
        shape, dtype = (-1, *table.var.shape[1:]), table.var.dtype
        block.create_var(name=table.small, shape=shape, dtype=dtype, is_data=True)
        for name, local in table.ids.items():
            ids = block.var(name)
            block.create_var(name=local, shape=ids.shape, dtype=ids.dtype, is_data=True)
    return list(found.values())


def _read_small(op: Operator, table: Table) -> None:
    (ids,) = op.inputs["Ids"]
    op.inputs["W"] = [table.small]
    op.inputs["Ids"] = [table.ids.setdefault(ids, f"{ids}@IN@{table.small}")]
    padding = op.attrs.get("padding_idx", -1)
    if padding != -1:
        if padding not in table.padding:
            table.padding.append(padding)
        op._set_attr("padding_idx", table.padding.index(padding))


def fetch(
    tables: Sequence[Table], feeds: Feeds, servers: Servers
) -> tuple[Feeds, dict[str, np.ndarray[Any, Any]]]:
    """Fetch the rows that a batch looks up.

    Args:
        tables: the program's distributed tables.
        feeds: the batch.
        servers: the servers with the tables.

    Returns:
        The feeds with small tables added, and for each table the rows in its small table.

    Raises:
        EnforceNotMet: row numbers are not fed, or a row does not exist.
        GangError: a server did not answer.
    """
    numbers = {table.var.name: table.numbers(feeds) for table in tables}
    wanted: dict[str, dict[str, Any]] = {}
    for table, block, inside in _divided(tables, numbers):
        rows = numbers[table.var.name][inside] - block.begin
        wanted.setdefault(block.endpoint, {})[block.name] = rows
    answers = servers.exchange("rows", wanted)
    smalls = {table.small: table.room(len(numbers[table.var.name])) for table in tables}
    for table, block, inside in _divided(tables, numbers):
        smalls[table.small][: len(inside)][inside] = answers[block.endpoint][block.name]
    values = [dict(fed) for fed in feeds.values]
    for table in tables:
        for fed in filter(None, values):
            fed[table.small] = smalls[table.small]
            for name, local in table.ids.items():
                fed[local] = table.in_small(fed[name], numbers[table.var.name])
    return replace(feeds, values=values), numbers


def whole_tables(tables: Sequence[Table], servers: Servers) -> dict[str, np.ndarray[Any, Any]]:
    """All rows of tables, by name.

    Args:
        tables: a program's distributed tables.
        servers: the servers with the tables.

    Raises:
        GangError: a server did not answer.
    """
    blocks = [block for table in tables for block in table.blocks]
    wanted: dict[str, dict[str, Any]] = {}
    for block in blocks:
        assert block.rows is not None
        wanted.setdefault(block.endpoint, {})[block.name] = np.arange(block.rows)
    answers = servers.exchange("rows", wanted)
    return {
        table.var.name: np.concatenate([answers[p.endpoint][p.name] for p in table.blocks])
        for table in tables
    }


def _divided(
    tables: Sequence[Table], numbers: Mapping[str, np.ndarray[Any, Any]]
) -> Iterator[tuple[Table, RowBlock, np.ndarray[Any, Any]]]:
    """Assign the looked up rows to the blocks of their table."""
    for table in tables:
        for block in table.blocks:
            yield table, block, block.holds(numbers[table.var.name])
