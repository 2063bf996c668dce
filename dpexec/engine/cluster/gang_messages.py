"""What the client of a gang and its members tell each other, and how that becomes bytes.

Arrays travel as they lie in memory, without a copy; the rest is pickled, as all that dask itself
sends. Either side has shown before that it knows the secret of the run.
"""

from __future__ import annotations

import contextlib
import pickle as plain_pickle
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from distributed.protocol import pickle

from dpexec.engine.cluster.messages import Epoch, GangStep, NewBinding
from dpexec.engine.cluster.repeated_steps import ArrayForm, Remembered, in_lines, kind_of
from dpexec.engine.dask.deliveries import StepRows
from dpexec.engine.exchange.channels import LINE
from dpexec.engine.exchange.messages import joined, parted
from dpexec.engine.exchange.rendezvous import Member
from dpexec.engine.exchange.wire import GangError

if TYPE_CHECKING:
    from dpexec.engine.cluster.messages import Noted

__all__ = [
    "AlikeSteps",
    "Batch",
    "Order",
    "Outcome",
    "OutcomesToTell",
    "OutcomesTold",
    "Part",
    "Rest",
    "decode",
    "encode",
]


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

    @property
    def task_name(self) -> str:
        """What groups the member's own tasks on dask's pages."""
        return "gang_" + "_".join(f"dev{device}" for device in self.me.devices)


class AlikeSteps(NamedTuple):
    """Steps of a gang that follow each other and differ in their batches alone, for one member.

    Args:
        first: the first of them.
        values: what the devices are fed in each, or the number of the :class:`Batch` that has it;
            the rest lies on the worker.
        held: where the rest lies, by device.
        entropy: of the shards in each, see :class:`Shard`.
    """

    first: GangStep
    values: Sequence[Mapping[int, Mapping[str, Any]] | int]
    held: Mapping[int, Sequence[StepRows]]
    entropy: Sequence[int]

    @property
    def last(self) -> int:
        """The number of the last step."""
        return self.first.number + len(self.entropy) - 1

    def with_batches(self, batches: Mapping[int, Batch]) -> AlikeSteps:
        """The steps with what came ahead of them, by number."""
        found = [batches[each].values if isinstance(each, int) else each for each in self.values]
        return AlikeSteps(self.first, found, self.held, self.entropy)

    def each(self, blocks: Sequence[Any]) -> Iterator[GangStep]:
        """The steps; what came ahead of them is there.

        Args:
            blocks: with what lies on the worker.
        """
        if len(self.values) == 1 and not any(self.held.values()):
            (values,) = self.values
            assert not isinstance(values, int)
            yield GangStep(*self.first[:3], values, *self.first[4:])
            return
        held = {d: [each.batches(blocks) for each in found] for d, found in self.held.items()}
        for ahead, (values, entropy) in enumerate(zip(self.values, self.entropy, strict=True)):
            assert not isinstance(values, int)
            fed = {d: dict(values[d]) for d in self.first.shards}
            for device, found in held.items():
                for batches in found:
                    fed[device].update(next(batches))
            shards = {
                device: replace(shard, run=shard.run + ahead, entropy=entropy)
                for device, shard in self.first.shards.items()
            }
            yield self.first._replace(number=self.first.number + ahead, values=fed, shards=shards)


class Batch(NamedTuple):
    """What the devices of a member are fed in later steps, which name it.

    Args:
        number: of this.
        values: see :class:`GangStep`.
    """

    number: int
    values: Mapping[int, Mapping[str, Any]]


class Order(NamedTuple):
    """What a member is to do: some steps, or to get ready for some.

    Args:
        base: number of the step before the first, on whose values it works.
        steps: which; those that are alike together.
        new: bindings that it does not know yet.
        kept: if there are some, numbers of all that it is to keep.
        blocks: keys of what lies on its worker, of which feeds are rows.
        over: numbers of batches that no later step names.
        form: by which number the form of its only step is to be remembered; 0: by none.
    """

    base: int
    steps: Sequence[AlikeSteps]
    new: Sequence[NewBinding] = ()
    kept: Collection[int] = ()
    blocks: Sequence[Any] = ()
    over: Collection[int] = ()
    form: int = 0

    def with_batches(self, batches: Mapping[int, Batch]) -> Order:
        """The order with what came ahead of it.

        Args:
            batches: that, by number.
        """
        steps = [alike.with_batches(batches) for alike in self.steps]
        return Order(self.base, steps, *self[2:])

    def with_blocks(self, held: Mapping[Any, Any]) -> Order:
        """The order with the blocks in the place of their keys.

        Args:
            held: what lies on the worker, by key.

        Raises:
            GangError: something does not lie there any more.
        """
        if not self.blocks:
            return self
        try:
            return self._replace(blocks=[held[key] for key in self.blocks])
        except KeyError as error:
            raise GangError(f"fed rows {error} have left the worker") from error

    def each(self) -> Iterator[GangStep]:
        """The steps, with all that devices are fed."""
        return (step for alike in self.steps for step in alike.each(self.blocks))

    @property
    def first(self) -> int | None:
        """The number of the first step, if there is one."""
        return self.steps[0].first.number if self.steps else None

    @property
    def last(self) -> int | None:
        """The number of the last step, if there is one."""
        return self.steps[-1].last if self.steps else None


@dataclass(slots=True)
class Outcome:
    """What became of an order.

    Args:
        done: how many steps were completed.
        fetched: what is fetched of the last one, per device.
        bytes_sent: to other members, through sockets.
        noted: what was recorded.
        error: why it ended early.
        form: by which number the form of what is fetched is to be remembered; 0: by none.
    """

    done: int = 0
    fetched: dict[int, dict[str, Any]] = field(default_factory=dict)
    bytes_sent: int = 0
    noted: Noted | None = None
    error: BaseException | None = None
    form: int = 0


@dataclass(frozen=True, slots=True)
class Rest:
    """A member's task has ended: another one is needed for the next order."""


def _is_plain(message: Order | Batch | Outcome | Rest) -> bool:
    """Whether nothing in it is of the user's making, so that receivers can import all classes."""
    if isinstance(message, Order):
        return not message.new and not message.blocks
    return isinstance(message, Outcome) and message.error is None and message.noted is None


def encode(message: Order | Batch | Outcome | Rest) -> list[memoryview]:
    """The buffers of a message; its arrays must not change before these are sent."""
    buffers: list[Any] = []
    dumps = plain_pickle.dumps if _is_plain(message) else pickle.dumps
    head = dumps(message, protocol=5, buffer_callback=buffers.append)
    return joined([memoryview(head), *(buffer.raw() for buffer in buffers)])


def decode(data: memoryview) -> Any:
    """The message in some bytes, which has no form; its arrays use them."""
    head, *buffers = parted(data)
    return pickle.loads(head, buffers=buffers)


_OUTCOME = 2
"""Of messages of a form: what became of an order."""
_MADE = struct.Struct("<IIqq")  # form, kind, steps, bytes that were sent


class OutcomesToTell:
    """A member's outcomes on their way: of a form that the client knows, only the arrays travel."""

    def __init__(self) -> None:
        self._forms = Remembered[ArrayForm]()

    def encode(self, outcome: Outcome, binding: int) -> list[Any]:
        """The buffers of what became of an order.

        Args:
            outcome: that.
            binding: number of the last one that ran.
        """
        if outcome.error is not None or outcome.noted is not None:
            return encode(outcome)
        fetched = outcome.fetched
        known = self._forms.get(binding)
        if known is not None and known[1].devices == [*fetched]:
            form, arrays = known
            found = arrays.told([*fetched.values()])
            if found is not None:
                sizes, buffers = found
                head = _MADE.pack(form, _OUTCOME, outcome.done, outcome.bytes_sent)
                return in_lines(head + struct.pack(f"<{len(sizes)}q", *sizes), buffers)
        with contextlib.suppress(TypeError):  # something else than arrays is fetched
            outcome.form = self._forms.add(binding, ArrayForm(fetched))
        return encode(outcome)


class OutcomesTold:
    """The client's end of :class:`OutcomesToTell`."""

    def __init__(self) -> None:
        self._forms: dict[int, ArrayForm] = {}

    def decode(self, data: memoryview) -> Outcome | Rest:
        """What a member said; its arrays use the bytes."""
        form, kind = kind_of(data)
        if kind != _OUTCOME:
            found: Outcome | Rest = decode(data)
            if isinstance(found, Outcome) and found.form:
                self._forms[found.form] = ArrayForm(found.fetched)
            return found
        arrays = self._forms[form]
        _, _, done, sent = _MADE.unpack_from(data)
        sizes = struct.unpack_from(f"<{arrays.sizes}q", data, _MADE.size)
        end = _MADE.size + 8 * arrays.sizes
        return Outcome(done, arrays.values(sizes, data, end + -end % LINE), sent)
