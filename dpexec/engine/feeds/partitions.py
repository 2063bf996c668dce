"""Dask collections as partitions of arrays, one array for each variable that is fed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dask.base import is_dask_collection
from dask.delayed import Delayed, delayed

from dpexec.engine.core.dtypes import to_numpy
from dpexec.engine.core.errors import see
from dpexec.engine.dask.blocks import holds_futures, is_array, is_bag, is_frame, is_future
from dpexec.engine.feeds.partition_arrays import (
    FedRows,
    check_kind,
    is_pandas,
    partition_arrays,
)
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.variable import Variable

__all__ = ["partitions_of"]


def partitions_of(block: Block, collection: Any, feed: Any) -> list[Delayed]:
    """The partitions of a collection; each computes arrays by name of variable.

    Args:
        block: the block with the variables that are fed.
        collection: a Dask dataframe, array, bag or Delayed; a list of Delayed, a partition each; or
            several collections with the same partitions, by the names of variables.
        feed: variables or their names; None: all data variables of the program. For a dataframe: a
            dict of columns by variable (also if Delayed give dataframes), or variables: each gets
            the column of its name; variables without such a column share the remaining columns in
            order, one for each element of a row.

    Raises:
        TypeError: the value is no collection, or a column holds no numbers.
        ValueError: variables, columns or partitions do not fit together.
    """
    if isinstance(collection, Mapping):
        return _aligned(block, collection, feed)
    if is_pandas(collection):
        problem = (
            f"collection is a {type(collection).__name__} of this process: make it a Dask one, as "
            "with dask.dataframe.from_pandas(frame, npartitions=8)"
        )
        raise see("columns-that-cannot-be-fed", TypeError(problem))
    variables = _variables(block, feed)
    if isinstance(feed, Mapping) and not is_frame(collection):
        if is_array(collection) or is_bag(collection):
            raise TypeError(
                "feed says which columns of a dataframe variables get; of another collection, say "
                f"feed={[_name(key) for key in feed]}"
            )
        chosen = {_name(key): _as_columns(value) for key, value in feed.items()}
        return _converted([_with_width(v, chosen[v.name]) for v in variables], [_parts(collection)])
    if is_frame(collection):
        frame = collection.to_frame() if collection.ndim == 1 else collection
        fed = _with_columns(variables, frame, feed)
        return _converted(fed, [_of_frame(frame[_needed(fed)])])
    return _converted([_fed(var) for var in variables], [_parts(collection)])


def _aligned(block: Block, collections: Mapping[str, Any], feed: Any) -> list[Delayed]:
    """Several collections, one for each variable."""
    named = {_name(key): value for key, value in collections.items()}
    variables = _variables(block, list(named) if feed is None else feed)
    if {var.name for var in variables} != named.keys():
        raise ValueError(
            f"the collections are for {', '.join(named)}, but feed is of "
            f"{', '.join(var.name for var in variables)}"
        )
    found = dict(zip(named, _rows_together(list(named.values())), strict=True))
    fed: list[FedRows] = []
    parts: list[Sequence[Any]] = []
    for var in variables:
        value = found[var.name]
        if is_frame(value):
            frame = value.to_frame() if value.ndim == 1 else value
            columns = tuple(frame.columns)
            fed.append(_fed(var, columns))
            _check_columns(fed[-1], frame)
            parts.append(_of_frame(frame))
        else:
            fed.append(_fed(var))
            parts.append(_parts(value))
    counts = {var.name: len(found) for var, found in zip(variables, parts, strict=True)}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{count} of {name!r}" for name, count in counts.items())
        raise ValueError(f"the collections have different numbers of partitions: {shown}")
    return _converted(fed, parts)


def _converted(fed: Sequence[FedRows], parts: Sequence[Sequence[Any]]) -> list[Delayed]:
    """The delayed arrays of each partition."""
    convert = delayed(partition_arrays, pure=False)
    return [convert(fed, number, *each) for number, each in enumerate(zip(*parts, strict=True))]


# ---- variables


def _variables(block: Block, feed: Any) -> list[Variable]:
    """The variables that are fed."""
    if feed is None:
        found = [var for var in block.vars.values() if var.is_data and "@" not in var.name]
    else:
        items = [feed] if isinstance(feed, (str, Variable)) else feed
        names = [_name(item) for item in items]
        unknown = [name for name in names if name not in block.vars]
        if unknown:
            raise ValueError(f"var {', '.join(unknown)} not in this block")
        found = [block.vars[name] for name in names]
    if not found:
        raise ValueError("no variable is fed: say which ones, as with feed=[x, y]")
    for var in found:
        if var.lod_level:
            raise ValueError(
                f"Variable {var.name!r} holds sequences, which rows of collections are not: pad "
                "them, or feed batches to Executor.run"
            )
        if var.persistable:
            raise ValueError(f"Variable {var.name!r} is persistable: it does not get rows")
    return found


def _name(item: Any) -> str:
    if not isinstance(item, (str, Variable)):
        raise TypeError(f"feed names Variables, but received {type(item)}")
    return item if isinstance(item, str) else item.name


def _fed(var: Variable, columns: tuple[Any, ...] = ()) -> FedRows:
    return FedRows(var.name, to_numpy(var.dtype), tuple(var.shape[1:]), columns)


# ---- collections


def _parts(value: Any) -> Sequence[Any]:
    """The partitions of a collection that is no dataframe."""
    if isinstance(value, (list, tuple)):
        wrong = [part for part in value if not is_dask_collection(part)]
        if not wrong and value:
            return list(value)
    elif is_array(value) and value.ndim:
        whole_rows = value.rechunk(dict.fromkeys(range(1, value.ndim), -1))
        return list(whole_rows.to_delayed(optimize_graph=not holds_futures(value)).ravel())
    elif is_bag(value):
        return list(value.to_delayed(optimize_graph=not holds_futures(value)))
    elif is_dask_collection(value):
        return [value]
    few = value if isinstance(value, (list, tuple)) else [value]
    hint = "; make Delayed of futures by dask.delayed(future)" if any(map(is_future, few)) else ""
    raise TypeError(
        "collection must be a Dask dataframe, array, bag or Delayed, a list of Delayed, or a dict "
        f"of these by the names of variables, but received {type(value)}{hint}"
    )


def _rows_together(values: Sequence[Any]) -> list[Any]:
    """The same collections; all arrays get the blocks of rows of the first one."""
    arrays = [value for value in values if is_array(value) and value.ndim]
    rows = arrays[0].chunks[0] if arrays else ()
    made = []
    for value in values:
        is_array_of_rows = any(value is array for array in arrays)
        if is_array_of_rows and sum(value.chunks[0]) == sum(rows):  # both are known
            value = value.rechunk({0: rows})
        made.append(value)
    return made


def _of_frame(frame: Any) -> list[Any]:
    return list(frame.to_delayed())


def _with_columns(variables: Sequence[Variable], frame: Any, feed: Any) -> list[FedRows]:
    """The variables with the columns that they get."""
    if isinstance(feed, Mapping):
        chosen = {_name(key): _as_columns(value) for key, value in feed.items()}
    else:
        chosen = _dealt(variables, frame)
    fed = []
    for var in variables:
        missing = [column for column in chosen[var.name] if column not in frame.columns]
        if missing:
            problem = (
                f"the dataframe has no column {missing[0]!r} for Variable {var.name!r}: it has "
                f"{', '.join(map(repr, frame.columns))}"
            )
            raise see("columns-that-cannot-be-fed", ValueError(problem))
        fed.append(_with_width(var, chosen[var.name]))
        _check_columns(fed[-1], frame)
    return fed


def _with_width(var: Variable, columns: tuple[Any, ...]) -> FedRows:
    """A variable with its columns, if these are as many as a row has elements."""
    if all(size > 0 for size in var.shape[1:]) and len(columns) != _width(var):
        problem = (
            f"Variable {var.name!r} takes {_width(var)} columns, one for each element of a row, "
            f"but feed has {len(columns)}: {', '.join(map(repr, columns))}"
        )
        raise see("columns-that-cannot-be-fed", ValueError(problem))
    return _fed(var, columns)


def _as_columns(value: Any) -> tuple[Any, ...]:
    if hasattr(value, "tolist"):  # an index of pandas, an array of names
        value = value.tolist()
    return tuple(value) if isinstance(value, list) else (value,)


def _dealt(variables: Sequence[Variable], frame: Any) -> dict[str, tuple[Any, ...]]:
    """Columns by their names, and the rest in order."""
    named = {var.name: (var.name,) for var in variables if var.name in frame.columns}
    rest = [column for column in frame.columns if column not in named]
    others = [var for var in variables if var.name not in named]
    widths = [_width(var) for var in others]
    if others and (len(rest) != sum(widths)):
        wanted = ", ".join(f"{w} for {v.name!r}" for v, w in zip(others, widths, strict=True))
        raise ValueError(
            f"the dataframe has {len(rest)} columns ({', '.join(map(repr, rest))}) for {wanted}: "
            "say which, as with feed={'x': ['a', 'b'], 'y': 'label'}"
        )
    columns = iter(rest)
    taken = {
        var.name: tuple(next(columns) for _ in range(width))
        for var, width in zip(others, widths, strict=True)
    }
    return {**named, **taken}


def _width(var: Variable) -> int:
    """How many elements a row of a variable has; 1 if that is open."""
    width = 1
    for size in var.shape[1:]:
        width *= max(size, 1)
    return width


def _check_columns(fed: FedRows, frame: Any) -> None:
    """Refuse columns that hold no numbers, as far as that is known before they are computed."""
    dtypes = frame.dtypes
    for column in fed.columns:
        check_kind(fed, dtypes[column], f"column {column!r}")


def _needed(fed: Sequence[FedRows]) -> list[Any]:
    """The columns that are used, each once."""
    return list(dict.fromkeys(column for var in fed for column in var.columns))
