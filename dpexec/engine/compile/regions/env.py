"""The values that a device has during a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.random import RandomStream
from dpexec.engine.core.rings import Ring
from dpexec.engine.ir.operator import Operator

__all__ = ["Env", "Shard"]


@dataclass(frozen=True, slots=True)
class Shard:
    """A device's part of this run.

    Args:
        run: number of completed runs of the program in this scope.
        entropy: seeds random operators that have no seed of their own.
        first_sample: number of samples of the batch on the devices before this one.
        samples: number of samples on this device.
        weight: initial value of the loss gradient.
        inner: first row and number of rows in ParallelDos, by the number of their block.
        share: this device's fraction of the batch.
        rings: rings of trainers, by number.
    """

    run: int = 0
    entropy: int = 0
    first_sample: int = 0
    samples: int = 1
    weight: float = 1.0
    inner: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    share: float = 1.0
    rings: Mapping[int, Ring] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as the arguments of its class, which is faster than dataclasses' own way."""
        parts = self.first_sample, self.samples, self.weight, self.inner, self.share, self.rings
        return Shard, (self.run, self.entropy, *parts)

    def rows_of(self, op: Operator) -> tuple[int, int]:
        """First row and number of rows that an operator works on."""
        block = op.block
        while block.parent_idx > 0:
            block = block.program.blocks[block.parent_idx]
        return self.inner.get(block.idx, (self.first_sample, self.samples))


class Env(dict[str, Any]):
    """The values of one device during a run, by variable name.

    Args:
        shard: the device's part of the run.
        around: the env in which missing names are looked up: a block sees the values around it.
        forward: looked up before ``around``: a block of gradients sees the variables of the round
            of the forward block that it differentiates.
    """

    __slots__ = (
        "_guarded",
        "around",
        "deferred",
        "forward",
        "go_on",
        "joined",
        "record",
        "shard",
    )

    def __init__(
        self,
        shard: Shard | None = None,
        around: Env | None = None,
        forward: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.shard = shard or Shard()
        self.around = around
        self.forward = forward
        self.record: Callable[[str, float, float], None] | None = None
        """Gets name, start and end of every operator of a block; None if nobody records."""
        self.go_on: Callable[[], None] | None = None
        """Called before every round of a loop; raises if the run is to stop."""
        self.deferred: Any = None
        """The work of its rounds that is put off: :class:`bodies.DeferredWork`."""
        self.joined: dict[str, int] = {}
        """The bytes of sparse values that sums put together here, by name of the sum."""
        self._guarded: Collection[int] = ()

    def __missing__(self, name: str) -> Any:
        if self.forward is not None and name in self.forward:
            return self.forward[name]
        if self.around is None:
            raise KeyError(name)
        return self.around[name]

    def draw(self, stream: Callable[[Shard], RandomStream]) -> RandomStream:
        """The random numbers of an operator for this run.

        Args:
            stream: gives the random numbers for a device's part of a run.
        """
        return stream(self.shard)

    def find(self, name: str = "") -> Any:
        """The value, here or around; None if there is none."""
        try:
            return self[name]
        except KeyError:
            return None

    def guard(self, names: Iterable[str]) -> None:
        """Say which of the values will be overwritten during the run."""
        self._guarded = {id(_owner(self[name])) for name in names if name in self}

    def part(self, name: str) -> None:
        """Copy a value if it is a guarded value, or a view of one."""
        if name in self and id(_owner(self[name])) in self._guarded:
            self[name] = self[name].copy()


def _owner(value: Any) -> Any:
    base = getattr(value, "base", None)
    return value if base is None else base
