"""Counts the data that pass through this process, for tests and benchmarks that forbid it."""

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple
from unittest.mock import patch

from distributed.comm import tcp
from distributed.comm.tcp import TCP
from distributed.utils import nbytes

from dpexec.engine.cluster.client.gang_lines import GangLines
from dpexec.engine.cluster.repeated_steps import StepForm
from dpexec.engine.exchange.channels import Channel
from dpexec.engine.exchange.shared import Borrower, Lender


@contextlib.contextmanager
def client_bytes(scheduler: str = "") -> Iterator[dict[str, int]]:
    """Counts what this process sends and receives, also in memory that it shares with workers.

    Args:
        scheduler: an address; what this process exchanges as the scheduler there does not count.
    """
    counted = {"bytes": 0}
    is_ours = ContextVar("is_ours", default=False)
    write, read, unpack = TCP.write, TCP.read, tcp.from_frames
    send, receive, receive_all = Channel.send, Channel.receive, Channel.receive_all
    lend, take = Lender.lend, Borrower.take

    async def counting_write(self: Any, *args: Any, **kwargs: Any) -> Any:
        sent = await write(self, *args, **kwargs)
        counted["bytes"] += sent * (self.local_address != scheduler)
        return sent

    async def counting_read(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_ours.set(self.local_address != scheduler)
        return await read(self, *args, **kwargs)

    async def counting_unpack(frames: Any, *args: Any, **kwargs: Any) -> Any:
        counted["bytes"] += sum(map(nbytes, frames)) * is_ours.get()
        return await unpack(frames, *args, **kwargs)

    def counting_send(self: Any, *args: Any) -> int:
        sent = send(self, *args)
        counted["bytes"] += sent
        return sent

    def counting_receive(self: Any, buffer: Any) -> int:
        received = receive(self, buffer)
        counted["bytes"] += received
        return received

    def counting_receive_all(self: Any, most: int) -> Any:
        data, descriptors = receive_all(self, most)
        counted["bytes"] += len(data) * self.is_local  # else it is received as above
        return data, descriptors

    def counting_lend(self: Any, buffers: Any, size: int) -> Any:
        loan = lend(self, buffers, size)
        counted["bytes"] += size * (loan is not None)  # else it is sent as above
        return loan

    def counting_take(self: Any, *args: Any) -> memoryview:
        message = take(self, *args)
        counted["bytes"] += len(message)
        return message

    with (
        patch.multiple(TCP, write=counting_write, read=counting_read),
        patch.object(tcp, "from_frames", counting_unpack),
        patch.multiple(
            Channel,
            send=counting_send,
            receive=counting_receive,
            receive_all=counting_receive_all,
        ),
        patch.object(Lender, "lend", counting_lend),
        patch.object(Borrower, "take", counting_take),
    ):
        yield counted


class Repeat(NamedTuple):
    """What is told of a step of a form: the number of its batch, and of those that are over."""

    batch: int
    over: Sequence[int]


def what_members_are_told(monkeypatch: Any) -> list[Any]:
    """A list that gets what goes to members: messages, and of steps of a form :class:`Repeat`."""
    found: list[Any] = []
    send, tell = GangLines.send, StepForm.tell

    def noted(lines: Any, messages: Any) -> None:
        found.extend(messages)
        send(lines, messages)

    def noted_form(form: Any, told: Any, *rest: Any) -> Any:
        made = tell(form, told, *rest)
        if made is not None:
            found.append(Repeat(*told[3:]))
        return made

    monkeypatch.setattr(GangLines, "send", noted)
    monkeypatch.setattr(StepForm, "tell", noted_form)
    return found
