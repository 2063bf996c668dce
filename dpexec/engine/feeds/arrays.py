"""Feeds of users as arrays that fit the variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import as_var_type, dtype_name, to_numpy
from dpexec.engine.core.errors import EnforceNotMet, see
from dpexec.engine.core.lod import Lod, lod_name, rows_name
from dpexec.engine.core.places import CUDAPlace
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.dask.blocks import is_future
from dpexec.engine.dask.held import HeldRows
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.variable import Variable

__all__ = ["arrays_of", "check_array"]

_NO_NUMBERS = "a-feed-that-is-no-array-of-numbers"


def arrays_of(block: Block, feed: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a feed, by name, and the offsets of those that hold sequences.

    Args:
        block: the block with the variables that are fed.
        feed: a dict of arrays, tensors or numbers.

    Raises:
        TypeError: not a dict, or a value is no array.
        ValueError: an unknown name.
        EnforceNotMet: a value holds sequences that the variable cannot hold, or that do not fit.
        RuntimeError: a value is a list.
    """
    if not isinstance(feed, Mapping):
        problem = f"feed requires dict as its Parameter, but received {type(feed)}"
        raise see("a-feed-that-is-no-array-of-numbers", TypeError(problem))
    arrays = {}
    for name, value in feed.items():
        if name not in block.vars:
            raise see(
                "a-name-that-is-not-a-variable-of-the-program", ValueError(_unknown(block, name))
            )
        array = arrays[name] = _array(block.vars[name], value)
        if isinstance(value, LoDTensor) and value._lod:
            arrays[lod_name(name)] = _offsets(block.vars[name], value, len(array))
        if rows_name(name) in block.vars:
            arrays.update(_rows_of_lengths(name, array))
    return arrays


def _unknown(block: Block, name: Any) -> str:
    """The error message for a key of a feed that is not the name of a variable."""
    if isinstance(name, Variable):
        return f"the keys of a feed are names: {name.name!r}, not the Variable itself"
    fed = ", ".join(var.name for var in block.vars.values() if var.is_data and "@" not in var.name)
    hint = f"this program is fed {fed}" if fed else "the feed names it"
    return f"var {name} not in this block: {hint}"


def _rows_of_lengths(name: str, lengths: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Sequences with fed lengths; their rows are never read."""
    if lengths.size and lengths.min() < 0:
        raise EnforceNotMet(
            f"fed Variable {name!r} has the lengths of sequences, which cannot be negative, but "
            f"received {lengths.ravel().tolist()}"
        )
    lod, rows = Lod.of_lengths([lengths.ravel()]), rows_name(name)
    return {rows: np.zeros((lod.rows, 1), np.int64), lod_name(rows): lod}


def _offsets(var: Variable, value: LoDTensor, rows: int) -> Any:
    lod = Lod(value._lod)
    if lod_name(var.name) not in var.block.vars:
        raise EnforceNotMet(
            f"fed Variable {var.name!r} holds sequences ({lod}), but it is declared without: "
            f"declare it with lod_level={len(lod.levels)}"
        )
    if len(lod.levels) != var.lod_level:
        raise EnforceNotMet(
            f"fed Variable {var.name!r} should have sequences of {var.lod_level} levels, but "
            f"received {lod}"
        )
    try:
        lod.check(rows)
    except EnforceNotMet as error:
        raise EnforceNotMet(f"fed Variable {var.name!r}: {error}") from None
    return lod


def _array(var: Variable, value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, LoDTensor):
        return value.array if isinstance(value.place, CUDAPlace) else value.on_host()
    if isinstance(value, HeldRows):
        return value  # type: ignore[return-value]  # what an array is to those who split feeds
    if isinstance(value, list):
        wrong = (
            f"fed Variable {var.name!r} is a list; feed a numpy.ndarray or a "
            "LoDTensor (lists would hold sequences, whose LoD is unknown)"
        )
        raise see(_NO_NUMBERS, RuntimeError(wrong))
    if isinstance(value, (bool, int, float, np.number)):
        return np.array([value], dtype=to_numpy(var.dtype))
    try:
        array = np.asarray(value)  # of a subclass (matrix, masked array) the plain array
    except ValueError as error:  # tuples whose parts differ in length
        wrong = f"fed Variable {var.name!r} is a {type(value).__name__} and no array: {error}"
        raise see(_NO_NUMBERS, TypeError(wrong)) from None
    if array.dtype.kind not in "biuf":
        wrong = f"fed Variable {var.name!r}: cannot make a tensor of {_kind(value)}"
        raise see(_NO_NUMBERS, TypeError(wrong))
    return array


def _kind(value: Any) -> str:
    if is_future(value):
        return "a Future: feed dask.delayed(future), which is a Dask collection"
    return f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__


def check_array(
    var: Variable, array: np.ndarray[Any, Any], where: str = "", sequences: bool = False
) -> None:
    """Compare an array with the declaration of the variable that is fed with it.

    Args:
        var: the variable; shapes and types count if its ``need_check_feed`` is set, as in fluid.
            Others take the type that is fed; but what is persistable keeps its own.
        array: the array that is fed.
        where: the array of which this is a share, for messages.
        sequences: whether it holds sequences: then any number of rows is allowed, as in fluid.

    Raises:
        TypeError: a type that variables cannot have.
        ValueError: a checked variable got another shape or type.
        EnforceNotMet: only the number of dimensions is another, or the type of one that is not
            checked.
    """
    shape, declared = tuple(array.shape), var.shape
    if sequences:
        declared = (-1, *declared[1:])
    strict = var.need_check_feed
    try:
        dtype = as_var_type(array.dtype)
    except TypeError as error:
        raise TypeError(f"fed Variable {var.name!r}: {error}") from None
    differs = False
    for want, got in zip(declared, shape, strict=False):  # a loop, as every batch comes here
        differs = differs or want not in (-1, got)
    if strict and len(shape) != len(declared):
        wrong = (
            f"fed Variable {var.name!r} should have {len(declared)} dimensions, shape = "
            f"{declared}, but received fed shape {list(shape)}{where}{_reshaping(declared, shape)}"
        )
        kind = ValueError if differs else EnforceNotMet  # Paddle compares as many
        raise see("a-wrong-shape", kind(wrong))
    if strict and differs:
        wrong = (
            f"The fed Variable {var.name!r} should have dimensions = {len(declared)}, shape = "
            f"{declared}, but received fed shape {list(shape)}{where}: {_other(declared, shape)}"
        )
        raise see("a-wrong-shape", ValueError(wrong))
    if var.dtype != dtype and (strict or var.persistable):
        wrong = (
            f"The data type of fed Variable {var.name!r} must be {dtype_name(var.dtype)!r}, but "
            f"received {dtype_name(dtype)!r}: convert it, as with "
            f"array.astype({dtype_name(var.dtype)!r})"
        )
        raise see("a-wrong-type", (ValueError if strict else EnforceNotMet)(wrong))


def _other(declared: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """The first dimension whose size is another."""
    sizes = enumerate(zip(declared, shape, strict=True))
    at, want, got = next((at, want, got) for at, (want, got) in sizes if want not in (-1, got))
    return f"dimension {at} is {got}, not {want}"


def _reshaping(declared: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """The hint for an array that lacks dimensions of size 1: usually labels, or grey images."""
    whole = tuple(size for size in declared if size != 1)
    fits = len(whole) == len(shape) and all(
        want in (-1, got) for want, got in zip(whole, shape, strict=True)
    )
    if not fits:
        return ""
    rest = iter((-1, *shape[1:]))  # the batch has any size
    wanted = [1 if size == 1 else next(rest) for size in declared]
    return f": give it the dimensions of one, as with array.reshape({wanted})"
