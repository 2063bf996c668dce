"""The text format of data sets: each line is a sample, with a count and values for every slot.

``3 7 1 4 1 0.5`` has two slots: three ids, then one number. Source: ``MultiSlotDataFeed`` of
Paddle 1.8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.core.dtypes import VarType, dtype_name
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.ir.variable import Variable

__all__ = ["Sample", "Slot", "feed_of", "parse", "without_zeros"]

Sample = tuple[np.ndarray[Any, Any], ...]
"""The values of one line, an array for each slot."""

_UINT64 = 2**64


class Slot(NamedTuple):
    """A slot: one part of a line, and the variable that it feeds.

    Attributes:
        name: name of the variable.
        dtype: INT64 (in files: unsigned ids) or FP32.
        shape: shape of the variable; the first dimension counts rows.
        dense: True if a sample is one row; False if it is a sequence of numbers, each one row.
        sequences: True if each row of a dense slot is fed as a sequence of its own.
    """

    name: str
    dtype: VarType
    shape: tuple[int, ...]
    dense: bool
    sequences: bool = False

    @classmethod
    def of(cls, var: Variable) -> Slot:
        """The slot that feeds a variable.

        Raises:
            ValueError: the variable is neither float32 nor int64, holds sequences of sequences, or
                has an unsupported shape.
        """
        slot = cls(var.name, var.dtype, tuple(var.shape), var.lod_level == 0)
        if var.dtype not in (VarType.FP32, VarType.INT64):
            raise ValueError(
                "Currently, fluid.dataset only supports dtype=float32 and dtype=int64, but "
                f"{var.name!r} is {dtype_name(var.dtype)}"
            )
        if var.lod_level > 1:
            raise ValueError(
                f"{var.name!r} has lod_level {var.lod_level}, but lines hold sequences of numbers: "
                "lod_level 0 or 1"
            )
        if slot.shape.count(-1) > 1 or not (slot.dense or math.prod(slot.row) == 1):
            rows = "known" if slot.dense else "1, for lines hold sequences of numbers"
            raise ValueError(
                f"{var.name!r} has shape {slot.shape}: all dimensions but one must be {rows}"
            )
        return slot

    @property
    def row(self) -> tuple[int, ...]:
        """The shape of a row."""
        return self.shape[1:]


def parse(line: str, slots: Sequence[Slot]) -> Sample:
    """Parse the values of a line; text after the last slot is ignored, as in the original.

    Raises:
        EnforceNotMet: a count is missing or zero, values are missing or not numbers, or the number
            of a dense slot's values does not match its shape.
    """
    tokens, at = line.split(), 0
    sample: list[np.ndarray[Any, Any]] = []
    for slot in slots:
        count = _count(tokens[at : at + 1], slot)
        values = tokens[at + 1 : at + 1 + count]
        if len(values) < count:
            raise EnforceNotMet(
                f"slot {slot.name!r} shall have {count} values, but the line ends after "
                f"{len(values)}"
            )
        try:
            sample.append(_array(values, slot.dtype))
        except ValueError as error:
            raise EnforceNotMet(f"slot {slot.name!r}: {error}") from None
        at += 1 + count
    return tuple(sample)


def _count(token: list[str], slot: Slot) -> int:
    """The number of values of a slot in a line."""
    if not token or not token[0].isdecimal():
        found = f"is {token[0]!r}" if token else "is missing: the line ends"
        raise EnforceNotMet(f"slot {slot.name!r}: the number of its values {found}")
    count = int(token[0])
    if count == 0:
        raise EnforceNotMet(
            f"slot {slot.name!r}: the number of ids can not be zero; pad it in the data generator"
        )
    if slot.dense and -1 not in slot.row and count != math.prod(slot.row):
        raise EnforceNotMet(
            f"slot {slot.name!r} is dense and of shape {slot.shape}: a sample has "
            f"{math.prod(slot.row)} values, but the line says {count}"
        )
    return count


def _array(values: list[str], dtype: VarType) -> np.ndarray[Any, Any]:
    if dtype == VarType.FP32:
        return np.array([float(value) for value in values], np.float32)
    ids = [int(value) for value in values]
    try:
        return np.array(ids, np.int64)
    except OverflowError:  # files have uint64, tensors the same bits as int64
        return np.array([number % _UINT64 for number in ids], np.uint64).view(np.int64)


def without_zeros(sample: Sample, slots: Sequence[Slot]) -> Sample:
    """A sample without the zeros of sequences, as in-memory data sets store it.

    A sequence of zeros only keeps one. Source: ``MultiSlotInMemoryDataFeed``, which treats zeros as
    padding, and floats below 1e-6 as zeros.
    """
    return tuple(
        values if slot.dense else _significant(values)
        for values, slot in zip(sample, slots, strict=True)
    )


def _significant(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    least = 1e-6 if values.dtype == np.float32 else 1
    kept = values[(values >= least) | (values <= -least)]
    return kept if kept.size else np.zeros(1, values.dtype)


def feed_of(samples: Sequence[Sample], slots: Sequence[Slot]) -> dict[str, LoDTensor]:
    """A batch of samples as a feed: dense slots by their shape, the others as sequences."""
    columns = zip(*samples, strict=True)
    return {slot.name: _tensor(slot, column) for slot, column in zip(slots, columns, strict=True)}


def _tensor(slot: Slot, column: Sequence[np.ndarray[Any, Any]]) -> LoDTensor:
    tensor = LoDTensor()
    rows = slot.shape[0] if -1 in slot.row else -1
    tensor.array = np.concatenate(column).reshape(rows, *slot.row)
    if slot.sequences or not slot.dense:
        tensor.set_recursive_sequence_lengths([[len(values) for values in column]])
    return tensor
