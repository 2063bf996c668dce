"""What the client of a gang and its members tell each other, and how that becomes bytes.

Arrays travel as they lie in memory, without a copy; the rest is pickled, as all that dask itself
sends. Either side has shown before that it knows the secret of the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from distributed.protocol import pickle

from dpexec.engine.cluster.messages import Epoch, NewBinding
from dpexec.engine.compile.regions.env import Shard
from dpexec.engine.dask.held import put_together
from dpexec.engine.exchange.lines import Parts
from dpexec.engine.exchange.rendezvous import Member
from dpexec.engine.ir.sizes import Counts

if TYPE_CHECKING:
    from dpexec.engine.cluster.messages import Noted

__all__ = ["GangStep", "Order", "Outcome", "Part", "Rest", "decode", "encode"]


class Part(NamedTuple):
    """A member's part in a gang, as long as this exists.

    Args:
        epoch: which replicas it is of.
        members: of the gang.
        rank: which of them it is for.
        limit: seconds that a member may be silent when it is waited for.
        mirrored: per device, names of what goes to the member that mirrors it.
        by_nccl: whether GPUs exchange values by NCCL.
        visited: whether the client comes in, too.
    """

    epoch: Epoch
    members: Sequence[Member]
    rank: int
    limit: float
    mirrored: Sequence[Collection[str]]
    by_nccl: bool
    visited: bool

    @property
    def me(self) -> Member:
        """The member."""
        return self.members[self.rank]


class GangStep(NamedTuple):
    """A step of a gang, for one member.

    Args:
        binding: number of what runs.
        rows: the numbers of rows of every device's batch, if it leaves them open.
        number: of the step.
        values: what its devices are fed.
        counts: of how many blocks the rest of that is put together, see :class:`Fed`.
        shards: their parts of the run.
        persistable: names of what is fed that also set a variable.
        recorded: whether to note when tasks run.
    """

    binding: int
    rows: tuple[Counts, ...]
    number: int
    values: Mapping[int, Mapping[str, Any]]
    counts: Mapping[int, Mapping[str, int]]
    shards: Mapping[int, Shard]
    persistable: frozenset[str]
    recorded: bool = False

    def with_blocks(self, blocks: Iterator[Any]) -> GangStep:
        """The step with all that its devices are fed."""
        fed = {d: put_together(v, self.counts[d], blocks) for d, v in self.values.items()}
        return self._replace(values=fed)


class Order(NamedTuple):
    """What a member is to do: some steps, or to get ready for some.

    Args:
        base: number of the step before the first, on whose values it works.
        steps: which.
        new: bindings that it does not know yet.
        kept: if there are some, numbers of all that it is to keep.
    """

    base: int
    steps: Sequence[GangStep]
    new: Sequence[NewBinding] = ()
    kept: Collection[int] = ()


@dataclass(slots=True)
class Outcome:
    """What became of an order.

    Args:
        done: how many steps were completed.
        fetched: what is fetched of the last one, per device.
        bytes_sent: to other members, through sockets.
        noted: what was recorded.
        error: why it ended early.
    """

    done: int = 0
    fetched: dict[int, dict[str, Any]] = field(default_factory=dict)
    bytes_sent: int = 0
    noted: Noted | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """A member's task has ended: another one is needed for the next order."""


def encode(message: Order | Outcome | Rest) -> Parts:
    """The bytes of a message; its arrays must not change before these are sent."""
    buffers: list[Any] = []
    head = pickle.dumps(message, buffer_callback=buffers.append)
    return [memoryview(head), *(buffer.raw() for buffer in buffers)]


def decode(parts: Parts) -> Any:
    """The message in some bytes; its arrays use them."""
    head, *buffers = parts
    return pickle.loads(head, buffers=buffers)
