"""The sums of a collective task, and the layout of their bytes when they travel."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.compile.plans.collectives import sums_of
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.reductions import Reduction
from dpexec.engine.ir.spec import Spec

__all__ = ["ArrayLayout", "Bucket", "Sum", "ValueSlice", "bucket_of"]

_SHARED_FROM = 1 << 16
"""Bytes from which on members divide the work of adding up; smaller values go to all whole."""

_LINE = 64  # bytes: arrays begin at multiples of it


@dataclass(frozen=True)
class Sum:
    """A value of some devices, combined in the order of the devices for some devices.

    Args:
        name: of the value.
        sources: the devices that have a value.
        made: name of the sum.
        targets: the devices that get the sum.
        dtype: of its numbers.
        shape: of a dense value; of a sparse value, the shape of one row.
        height: number of rows that a sparse value would have if it were dense; None if it is dense.
        reduction: how dense values are combined.
        elements: whether it may also come as ``SelectedRows`` of single elements, of a total of
            ``height``; ``shape`` is then that of the dense value.
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
        """The bytes of a dense value of one device, or of one row of a sparse value."""
        return math.prod(self.shape) * self.dtype.itemsize


class ValueSlice(NamedTuple):
    """A part of a value.

    Args:
        number: position of the value in its bucket.
        total: the value.
        place: the part's bytes in the layout of the bucket.
        part: its bytes within the value.
    """

    number: int
    total: Sum
    place: slice
    part: slice


class ArrayLayout:
    """The places of arrays, one after another.

    Args:
        sizes: the bytes of each array.

    Attributes:
        starts: where each array begins.
        size: the bytes of all arrays together.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.starts: list[int] = []
        self.size = 0
        for size in sizes:
            self.starts.append(self.size)
            self.size += -(-size // _LINE) * _LINE

    def shares(self, number: int) -> list[tuple[int, int]]:
        """Begin and end of equal parts; no number is divided."""
        lines = self.size // _LINE
        ends = [lines * index // number * _LINE for index in range(number + 1)]
        return list(itertools.pairwise(ends))


@dataclass(frozen=True, eq=False)
class Bucket:
    """A collective task.

    Args:
        number: of the task in the plan.
        text: the name that errors give it.
        sums: the values that it adds up.
        late: whether it comes after updates; all members have then finished the step before.
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
        """The layout of one device's values in one memory, if none is sparse."""
        return ArrayLayout([total.nbytes for total in self.sums])

    def pieces(self, low: int, high: int) -> Iterator[ValueSlice]:
        """The parts of values between two positions of the layout, without padding."""
        for number, (total, start) in enumerate(zip(self.sums, self.layout.starts, strict=True)):
            first, end = max(start, low), min(start + total.nbytes, high)
            if first < end:
                yield ValueSlice(
                    number, total, slice(first, end), slice(first - start, end - start)
                )

    @property
    def is_large(self) -> bool:
        """Whether it is worth dividing the work of adding up among members."""
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
