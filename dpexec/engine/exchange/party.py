"""The trainers of a run, as seen by one of them: connections and messages."""

from __future__ import annotations

import atexit
import contextlib
import hmac
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine import kernels
from dpexec.engine.exchange.channels import Channel
from dpexec.engine.exchange.endpoints import Endpoint, encryption, secret_of
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.messages import Message, bytes_of, talk
from dpexec.engine.exchange.rendezvous import Door, Member, host_id
from dpexec.engine.exchange.shared import share_memory
from dpexec.engine.exchange.wire import Tag, exchange, into, last_words, say_goodbye

if TYPE_CHECKING:
    from dpexec.engine.exchange.words import Talk

__all__ = ["Party", "part_all", "party_of"]

_TALK = 1 << 33  # numbers of talks begin here, those of collectives are smaller


class Party:
    """The trainers of a run.

    Programs of a process that train with the same trainers share the connections.

    Args:
        endpoints: where the trainers listen.
        rank: of this trainer.

    Attributes:
        steps: how many steps were begun since they met.
    """

    def __init__(self, endpoints: Sequence[Endpoint], rank: int) -> None:
        self.endpoints, self.rank = list(endpoints), rank
        self.steps = 0
        self.busy = threading.RLock()
        self._channels: dict[int, Channel] = {}
        self._talks = 0
        self._talk: Talk | None = None
        self._meetings = 0

    @property
    def size(self) -> int:
        """How many trainers there are."""
        return len(self.endpoints)

    def name(self, rank: int) -> str:
        """The name of a trainer in errors."""
        return f"trainer {rank} at {self.endpoints[rank]}"

    def meet(self, limit: float) -> int:
        """Connect to the other trainers, unless that was done.

        Args:
            limit: seconds to wait for them.

        Returns:
            The number of the meeting: trainers part when a step fails, and may meet again.

        Raises:
            GangError: a trainer did not come; the message names its endpoint.
            EnforceNotMet: there is no secret, see :func:`secret_of`.
        """
        if not self._channels:
            secret = secret_of(self.endpoints)
            security = encryption()
            members = self._members(secret, security is not None)
            me = members[self.rank]
            self._channels = Door(me.worker, security, secret, me).meet(members, self.rank, limit)
            self.steps = self._talks = 0
            self._meetings += 1
            self._talk = self._through_memory(limit)
        return self._meetings

    def _through_memory(self, limit: float) -> Talk | None:
        """Talks through shared memory; None if trainers share none, or one lacks numba."""
        able = self.tell(kernels.available(), "what they are able to do", limit)
        if self.size == 1 or not all(able) or not self._hosts()[0]:
            return None
        kernels.load()
        from dpexec.engine.exchange.words import Talk

        tag = self._tag("the memory of talks")
        sizes = dict.fromkeys(range(self.size), Talk.size)
        return Talk(share_memory(self._channels, sizes, self.rank, tag, limit), self.rank)

    def part(self, text: str) -> None:
        """Leave the other trainers, and tell them why."""
        say_goodbye(self._channels, text)
        self._channels, self._talk = {}, None

    def group(self, devices: int, limit: float) -> Group:
        """The trainers as a group for collectives; each has the same number of devices."""
        members = [
            Member(str(e), tuple(range(rank * devices, (rank + 1) * devices)), host, "", None)
            for rank, (e, host) in enumerate(zip(self.endpoints, self._hosts(), strict=True))
        ]
        group = Group(members, self.rank, self._channels, limit)
        group.has_words = self._talk is not None
        return group

    def _hosts(self) -> list[str]:
        """For each trainer, the id of its host; empty if they meet over TCP.

        Trainers share a host if all endpoints have one address.
        """
        same = len({endpoint.host for endpoint in self.endpoints}) == 1
        return [host_id() if same else ""] * self.size

    def _members(self, secret: bytes, encrypted: bool) -> list[Member]:
        found = []
        for endpoint, host in zip(self.endpoints, self._hosts(), strict=True):
            address = f"{'tls://' if encrypted else ''}{endpoint}"
            tcp = None if host else endpoint
            name = hmac.digest(secret, str(endpoint).encode(), "sha256").hex()[:32]
            unix = f"dpexec-{name}" if host else ""
            found.append(Member(address, (), host, unix, tcp))
        return [replace(m, role=f"trainer {rank} at") for rank, m in enumerate(found)]

    # ---- talking

    def tell(self, own: Any, text: str, limit: float) -> list[Any]:
        """Tell a value to all trainers, and return those of all, by rank.

        Args:
            own: the value of this trainer, which JSON can hold.
            text: the subject, for errors.
            limit: seconds that another trainer may be silent.

        Raises:
            GangError: a trainer did not answer, is gone, or ended the run.
        """
        heard = self._say(Message(own), self._channels, self._channels, text, limit)
        said = {rank: message.said for rank, message in heard.items()} | {self.rank: own}
        return [said[rank] for rank in range(self.size)]

    def tell_numbers(self, own: Sequence[int], text: str, limit: float) -> list[list[int]]:
        """Tell numbers to all trainers, and return those of all, by rank.

        Trainers that share memory use it for this.

        Args:
            own: the numbers of this trainer.
            text: the subject, for errors.
            limit: seconds that another trainer may be silent.

        Raises:
            GangError: see :meth:`tell`.
        """
        found = None
        if self._talk is not None:
            from dpexec.engine.exchange.words import wait_for

            def wait(words: Mapping[int, int], turn: int) -> None:
                wait_for(self._channels, words, turn, limit, self._tag(text))

            found = self._talk.tell(own, wait)
        return self.tell(list(own), text, limit) if found is None else found

    def spread(self, values: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """Give all trainers the variables of trainer 0.

        Args:
            values: this trainer's values of variables of any kind, by name.
            limit: seconds that another trainer may be silent.

        Raises:
            GangError: see :meth:`tell`.
        """
        text = "the first values of variables"
        if self.rank == 0:
            self._say(Message(values=values), self._channels, (), text, limit)
            return {**values}
        return dict(self._say(None, (), [0], text, limit)[0].values)

    def gather(
        self, array: np.ndarray[Any, Any], senders: Sequence[int], text: str, limit: float
    ) -> list[np.ndarray[Any, Any]]:
        """The arrays of some trainers, in the order of ``senders``.

        Args:
            array: the array of this trainer; all have the same shape and type.
            senders: ranks of the trainers whose arrays are wanted.
            text: the subject, for errors.
            limit: seconds that another trainer may be silent.

        Raises:
            GangError: see :meth:`tell`; or a trainer's array has another size.
        """
        found = {rank: np.empty_like(array, order="C") for rank in senders if rank != self.rank}
        own = [bytes_of(array).data]
        sends = dict.fromkeys(self._channels, own) if self.rank in senders else {}
        places = {rank: into(bytes_of(room).data) for rank, room in found.items()}
        exchange(self._channels, self._next_tag(text), sends, places, limit)
        return [found.get(rank, array) for rank in senders]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """A block that all trainers run; if it fails here, the others are told."""
        with self.busy:
            try:
                yield
            except BaseException as error:
                self.part(last_words(self.name(self.rank), self.steps, error))
                raise

    def _say(
        self,
        message: Message | None,
        to: Iterable[int],
        of: Iterable[int],
        text: str,
        limit: float,
    ) -> dict[int, Message]:
        """Send a message to some trainers; returns the messages of those in ``of``."""
        messages = {} if message is None else dict.fromkeys(to, message)
        return talk(self._channels, self._next_tag(text), messages, of, limit)

    def _next_tag(self, text: str) -> Tag:
        self._talks += 1
        return self._tag(text)

    def _tag(self, text: str) -> Tag:
        return Tag(self.steps + 1, _TALK + self._talks, text)


_parties: dict[tuple[tuple[Endpoint, ...], int], Party] = {}
_lock = threading.Lock()


def party_of(endpoints: Sequence[Endpoint], rank: int) -> Party:
    """The trainers at some endpoints; the same object for all programs of this process.

    Args:
        endpoints: where the trainers listen.
        rank: of this trainer.
    """
    with _lock:
        return _parties.setdefault((tuple(endpoints), rank), Party(endpoints, rank))


@atexit.register
def part_all() -> None:
    """Leave all trainers that this process is connected to."""
    with _lock:
        parties = list(_parties.values())
        _parties.clear()
    for party in parties:
        party.part(f"{party.name(party.rank)} has ended")
