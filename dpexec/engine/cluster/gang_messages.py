"""Messages between the client of a gang and its members, and their bytes.

Arrays travel as they lie in memory, without a copy. The rest is pickled, like everything that dask
itself sends. Both sides have shown before that they know the secret of the run.
"""

from __future__ import annotations

import contextlib
import pickle as plain_pickle
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from distributed.protocol import pickle

from dpexec.engine.cluster.messages import Epoch, GangStep, NewBinding
from dpexec.engine.cluster.repeated_steps import ArrayForm, Remembered, in_lines, kind_of
from dpexec.engine.core.light_dataclasses import dataclass, field
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
    "Handover",
    "Order",
    "OtherRun",
    "Outcome",
    "OutcomesToTell",
    "OutcomesTold",
    "Part",
    "Rest",
    "decode",
    "encode",
]


class Part(NamedTuple):
    """A gang as one of its members needs to know it.

    Args:
        epoch: the epoch in which the gang exists.
        members: all members.
        rank: of this member.
        limit: seconds that a member may be silent while others wait for it.
        mirrored: per device, names of the variables that are sent to the member that mirrors it.
        by_nccl: whether GPUs exchange values by NCCL.
        visited: whether the client connects to the members, too.
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
        """The name under which dask's pages group the member's own tasks."""
        return "gang_" + "_".join(f"dev{device}" for device in self.me.devices)


class AlikeSteps(NamedTuple):
    """Consecutive steps that differ only in their batches, for one member of a gang.

    Args:
        first: the first step.
        values: for each step, what the devices are fed, or the number of the :class:`Batch` that
            holds it. The other feeds lie on the worker.
        held: where these other feeds lie, by device.
        entropy: for each step, the entropy of its shards, see :class:`Shard`.
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
        """The steps with the values of their batches in place of the batches' numbers."""
        found = [batches[each].values if isinstance(each, int) else each for each in self.values]
        return AlikeSteps(self.first, found, self.held, self.entropy)

    def each(self, blocks: Sequence[Any]) -> Iterator[GangStep]:
        """The single steps; call :meth:`with_batches` before.

        Args:
            blocks: the blocks on the worker of which feeds are rows.
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
    """Feeds of a member's devices that are sent before the steps that use them.

    Args:
        number: the number by which steps name it.
        values: see :class:`GangStep`.
    """

    number: int
    values: Mapping[int, Mapping[str, Any]]


class Order(NamedTuple):
    """An order to a member: to make some steps, or only to compile new bindings.

    Args:
        base: number of the step before, whose values the first step starts from.
        steps: the steps; consecutive steps that differ only in their batches are one item.
        new: bindings that the member does not know yet.
        kept: if there are new ones, the numbers of all bindings that it keeps.
        blocks: keys of blocks on its worker of which feeds are rows.
        over: numbers of batches that no later step names.
        form: the number under which it remembers the form of its only step; 0: it does not.
    """

    base: int
    steps: Sequence[AlikeSteps]
    new: Sequence[NewBinding] = ()
    kept: Collection[int] = ()
    blocks: Sequence[Any] = ()
    over: Collection[int] = ()
    form: int = 0

    def with_batches(self, batches: Mapping[int, Batch]) -> Order:
        """The order with the values of batches in place of their numbers.

        Args:
            batches: the batches that came before, by number.
        """
        steps = [alike.with_batches(batches) for alike in self.steps]
        return Order(self.base, steps, *self[2:])

    def with_blocks(self, held: Mapping[Any, Any]) -> Order:
        """The order with blocks in place of their keys.

        Args:
            held: the data of the worker, by key.

        Raises:
            GangError: a block is no longer on the worker.
        """
        if not self.blocks:
            return self
        try:
            return self._replace(blocks=[held[key] for key in self.blocks])
        except KeyError as error:
            raise GangError(f"fed rows {error} have left the worker") from error

    def each(self) -> Iterator[GangStep]:
        """The single steps, with all their feeds."""
        return (step for alike in self.steps for step in alike.each(self.blocks))

    @property
    def first(self) -> int | None:
        """The number of the first step, if there is one."""
        return self.steps[0].first.number if self.steps else None

    @property
    def last(self) -> int | None:
        """The number of the last step, if there is one."""
        return self.steps[-1].last if self.steps else None


class OtherRun(NamedTuple):
    """Values that replicas of another run on the same worker have.

    Args:
        epoch: of that run.
        step: number of its last complete step.
        device: one of its replicas on the worker.
        names: names of the variables, by the device that takes them.
    """

    epoch: Epoch
    step: int
    device: int
    names: Mapping[int, Sequence[str]]


class Handover(NamedTuple):
    """An order to a member to read or set variables of its replicas, between steps.

    Args:
        base: number of the last complete step.
        read: names of the variables that the outcome returns, by device.
        copied: what to copy from another run; None: nothing.
        values: what to set, by device and name.
        mirrored: what to set in mirrors, by device and name.
    """

    base: int
    read: Mapping[int, Sequence[str]]
    copied: OtherRun | None
    values: Mapping[int, Mapping[str, Any]]
    mirrored: Mapping[int, Mapping[str, Any]]


@dataclass(slots=True)
class Outcome:
    """The outcome of an order.

    Args:
        done: how many steps were completed.
        fetched: the fetched values of the last step, per device.
        bytes_sent: bytes sent to other members through sockets.
        noted: the notes of a recorded step.
        error: why it ended early.
        form: the number under which the client remembers the form of the fetched values; 0: it
            does not.
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


def _is_plain(message: Order | Batch | Handover | Outcome | Rest) -> bool:
    """Whether it holds no objects of users, so that receivers can import all classes in it."""
    if isinstance(message, Order):
        return not message.new and not message.blocks
    if isinstance(message, Handover):
        return True
    return isinstance(message, Outcome) and message.error is None and message.noted is None


def encode(message: Order | Batch | Handover | Outcome | Rest) -> list[memoryview]:
    """The buffers of a message; its arrays must not change before they are sent."""
    buffers: list[Any] = []
    dumps = plain_pickle.dumps if _is_plain(message) else pickle.dumps
    head = dumps(message, protocol=5, buffer_callback=buffers.append)
    return joined([memoryview(head), *(buffer.raw() for buffer in buffers)])


def decode(data: memoryview) -> Any:
    """The message in some bytes, if it was sent in full; its arrays are views of the bytes."""
    head, *buffers = parted(data)
    return pickle.loads(head, buffers=buffers)


_OUTCOME = 2
"""The kind of a message of a known form that is an outcome."""
_MADE = struct.Struct("<IIqq")  # form, kind, steps, bytes that were sent


class OutcomesToTell:
    """A member's outcomes as bytes; if the client knows their form, only the arrays are sent."""

    def __init__(self) -> None:
        self._forms = Remembered[ArrayForm]()

    def encode(self, outcome: Outcome, binding: int) -> list[Any]:
        """The buffers of an outcome.

        Args:
            outcome: the outcome of an order.
            binding: number of the binding that ran last.
        """
        if outcome.error is not None or outcome.noted is not None or not outcome.done:
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
        with contextlib.suppress(TypeError):  # fetched values that are no arrays have no form
            outcome.form = self._forms.add(binding, ArrayForm(fetched))
        return encode(outcome)


class OutcomesTold:
    """The client's end of :class:`OutcomesToTell`."""

    def __init__(self) -> None:
        self._forms: dict[int, ArrayForm] = {}

    def decode(self, data: memoryview) -> Outcome | Rest:
        """The message of a member; its arrays are views of the bytes."""
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
