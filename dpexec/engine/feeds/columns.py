"""Columns of dataframes as feeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpexec.engine.ir.block import Block

__all__ = ["with_columns"]


def with_columns(block: Block, feed: Any) -> Any:
    """Give columns of dataframes the shape (rows, 1) where variables declare it.

    A column (a Series of pandas or dask) has the shape (rows,). Labels are usually declared as
    [-1, 1], so there it becomes a dataframe of one column; nothing is computed for that.

    Args:
        block: the block with the variables that are fed.
        feed: a dict; anything else is returned as it is.
    """
    if not isinstance(feed, Mapping):
        return feed
    columns = {}
    for name, value in feed.items():
        is_column = hasattr(type(value), "to_frame") and value.ndim == 1  # pandas may be missing
        if is_column and name in block.vars and _takes_a_column(block.vars[name].shape):
            columns[name] = value.to_frame()
    return {**feed, **columns} if columns else feed


def _takes_a_column(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[1] == 1
