"""What a collective task of a plan adds up, and how its bytes lie when they travel."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.compile.plans.collectives import sums_of
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.reductions import Reduction
from dpexec.engine.ir.spec import Spec

__all__ = ["ArrayLayout", "Bucket", "Sum", "ValueSlice", "bucket_of"]

_SHARED_FROM = 1 << 16
"""Bytes: smaller values go to everybody as they are, in the frame that says that they are there;
of larger ones each member sums its share, or they go through shared memory."""

_LINE = 64  # bytes; where arrays begin


@dataclass(frozen=True)
class Sum:
    """A value of some devices, combined in the order of the devices for some devices.

    Args:
        name: of the value.
        sources: the devices that have one.
        made: name of the sum.
        targets: the devices that get it.
        dtype: of its numbers.
        shape: of a dense one; of sparse rows, that of the rows behind the first dimension.
        height: how many rows there would be if it were dense; None if it is dense.
        reduction: how dense values become one.
        elements: whether it may also come as ``SelectedRows`` of single elements, of which there
            are ``height``; ``shape`` is that of a dense one.
    """

    name: str
    sources: tuple[int, ...]
    made: str
    targets: tuple[int, ...]
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    height: int | None
    reduction: Reduction
    elements: bool = False

    @property
    def nbytes(self) -> int:
        """Of the value of one device, if it is dense."""
        return math.prod(self.shape) * self.dtype.itemsize


class ValueSlice(NamedTuple):
    """A part of a value.

    Args:
        number: which of the values of its bucket.
        total: the value.
        place: where it lies in the layout of the bucket.
        part: which of the bytes of the value it is.
    """

    number: int
    total: Sum
    place: slice
    part: slice


class ArrayLayout:
    """Where arrays lie one behind the other.

    Args:
        sizes: their bytes.

    Attributes:
        starts: where each begins.
        size: of all.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.starts: list[int] = []
        self.size = 0
        for size in sizes:
            self.starts.append(self.size)
            self.size += -(-size // _LINE) * _LINE

    def shares(self, number: int) -> list[tuple[int, int]]:
        """Begin and end of equal parts, which end between numbers."""
        lines = self.size // _LINE
        ends = [lines * index // number * _LINE for index in range(number + 1)]
        return list(itertools.pairwise(ends))


@dataclass(frozen=True, eq=False)
class Bucket:
    """A collective task.

    Args:
        number: in the plan.
        text: what people call it.
        sums: what it adds up.
        late: whether it comes behind updates, so that everybody has made the step before.
    """

    number: int
    text: str
    sums: tuple[Sum, ...]
    late: bool = False

    @functools.cached_property
    def key(self) -> Any:
        """Equal for buckets that can use the same memory in turn."""
        return self.number, tuple((t.nbytes, t.sources, t.targets) for t in self.sums)

    @functools.cached_property
    def layout(self) -> ArrayLayout:
        """How the values of a device lie in one memory, if none is sparse."""
        return ArrayLayout([total.nbytes for total in self.sums])

    def pieces(self, low: int, high: int) -> Iterator[ValueSlice]:
        """What lies between two positions of the layout, padding left out."""
        for number, (total, start) in enumerate(zip(self.sums, self.layout.starts, strict=True)):
            first, end = max(start, low), min(start + total.nbytes, high)
            if first < end:
                yield ValueSlice(
                    number, total, slice(first, end), slice(first - start, end - start)
                )

    @property
    def is_large(self) -> bool:
        """Whether it pays to divide the work of adding it up, or to share memory for it."""
        dense = all(total.height is None for total in self.sums)
        return dense and sum(total.nbytes for total in self.sums) >= _SHARED_FROM

    def for_all(self, devices: int) -> bool:
        """Whether there are values, and each comes from all devices and goes to all."""
        everybody = tuple(range(devices))
        return bool(self.sums) and all(
            tuple(sorted(total.sources)) == tuple(sorted(total.targets)) == everybody
            for total in self.sums
        )


def bucket_of(plan: Plan, task: Task, specs: Sequence[Mapping[str, Spec]]) -> Bucket:
    """The sums of a collective task.

    Args:
        plan: the plan.
        task: one of its tasks.
        specs: of all values, per device.

    Raises:
        EnforceNotMet: it moves rows, as those around a ParallelDo do.
    """
    sums = []
    elements = _come_as_elements(plan)
    for node in task.nodes:
        if node.does.moves_rows:
            raise EnforceNotMet(
                f"ExecutionStrategy.collectives = 'gang' does not run {node.name}, which moves "
                "rows inside of a step, as ParallelDo does; leave it at 'auto' for this program"
            )
        for name, sources, made, targets, how in sums_of(node, plan.missing):
            spec = specs[sources[0]][name]
            sparse, picked = spec.kind == VarType.SELECTED_ROWS, name in elements
            height = math.prod(spec.shape) if picked else int(spec.shape[0]) if sparse else None
            sums.append(
                Sum(
                    name,
                    tuple(sources),
                    made,
                    tuple(targets),
                    to_numpy(spec.dtype),
                    tuple(spec.shape[1:] if sparse else spec.shape),
                    height,
                    how,
                    picked,
                )
            )
    names = list(dict.fromkeys(total.name for total in sums))
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Bucket(task.id, f"{task.nodes[0].kind} of {shown} (task {task.id})", tuple(sums))


def _come_as_elements(plan: Plan) -> set[str]:
    """Names of dense values that come as ``SelectedRows`` of single elements in some steps."""
    ops = {id(node.op): node.op for node in plan.nodes if node.op is not None}.values()
    return {
        name for op in ops for slot in op.definition.elements for name in op.outputs.get(slot, ())
    }
