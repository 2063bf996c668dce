"""Steps like one that members were told of before: only what differs is told, and the arrays.

An order for a single step may have a number, by which its form is remembered: the binding, the
parts of the devices, and names, types and shapes of what these are fed. Most steps are like the
one before, so what is told of them is a few numbers and the arrays, which nobody has to pickle.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpexec.engine.compile.regions.env import Shard
from dpexec.engine.exchange.messages import bytes_of, joined

if TYPE_CHECKING:
    from dpexec.engine.cluster.messages import GangStep

__all__ = ["FORMS", "Repeat", "RepeatedOrder", "StepForm", "encode_repeat", "lasting", "repeat_in"]

FORMS = 16
"""How many forms members remember; each has a number from 1."""

_HEAD = struct.Struct("<BxxxIqqqq")  # 0, form, base, step, run, entropy; a pickle begins with 128
_PLAIN = frozenset({np.ndarray})

lasting = operator.attrgetter("first_sample", "samples", "weight", "inner", "share", "rings")
"""What parts of a batch have in common in steps of a form, in the order of :class:`Shard`."""


class Repeat(NamedTuple):
    """What a member is told of a step whose form it knows.

    Args:
        form: its number.
        base: number of the step before, on whose values it works.
        number: of the step.
        run: see :class:`Shard`.
        entropy: see :class:`Shard`.
        arrays: bytes of what its devices are fed, in the order of the form.
    """

    form: int
    base: int
    number: int
    run: int
    entropy: int
    arrays: Sequence[memoryview]


def encode_repeat(
    form: int, base: int, number: int, shard: Shard, values: Sequence[Mapping[str, Any]]
) -> list[memoryview] | None:
    """The buffers of what a member is told; None if it is fed something else than plain arrays.

    Args:
        form: its number.
        base: number of the step before.
        number: of the step.
        shard: of any device.
        values: what the devices of the member are fed.
    """
    parts = [memoryview(_HEAD.pack(0, form, base, number, shard.run, shard.entropy))]
    for fed in values:
        if not _PLAIN.issuperset(map(type, fed.values())):
            return None
        parts += [bytes_of(array).data for array in fed.values()]
    return joined(parts)


def repeat_in(head: memoryview, arrays: Sequence[memoryview]) -> Repeat | None:
    """What a message tells; None if it is a pickle.

    Args:
        head: its first part.
        arrays: the others.
    """
    if head[0]:
        return None
    _, form, base, number, run, entropy = _HEAD.unpack(head)
    return Repeat(form, base, number, run, entropy, arrays)


class StepForm:
    """What a member knows of steps that are alike.

    Args:
        step: one of them, without what it was fed.
        values: that, by device and name.
    """

    def __init__(self, step: GangStep, values: Mapping[int, Mapping[str, Any]]) -> None:
        self._step = step
        self._shards = [(device, lasting(shard)) for device, shard in step.shards.items()]
        self._arrays = [
            (device, [(name, array.shape, array.dtype) for name, array in values[device].items()])
            for device in step.shards
        ]

    def order(self, told: Repeat) -> RepeatedOrder:
        """What is to be done.

        Args:
            told: what differs.
        """
        like, arrays = self._step, iter(told.arrays)
        values = {
            device: {n: np.ndarray(s, t, next(arrays)) for n, s, t in found}
            for device, found in self._arrays
        }
        shards = {d: Shard(told.run, told.entropy, *rest) for d, rest in self._shards}
        step = type(like)(like.binding, like.rows, told.number, values, shards, like.persistable)
        return RepeatedOrder(told.base, step)


class RepeatedOrder:
    """A single step that a member is to make, see :class:`.gang_messages.Order`.

    Args:
        base: number of the step before, on whose values it works.
        step: what is made.
    """

    new, kept = (), ()

    def __init__(self, base: int, step: GangStep) -> None:
        self.base, self._step = base, step
        self.first = self.last = step.number

    def each(self) -> Iterator[GangStep]:
        """The step."""
        return iter((self._step,))
