"""The trainers of a run, as one of them sees it: connected, and of one mind about every step."""

from __future__ import annotations

import atexit
import contextlib
import hmac
import json
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine import kernels
from dpexec.engine.core.variable_values import Flat, flat, value_of
from dpexec.engine.exchange.endpoints import Endpoint, encryption
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.rendezvous import Door, Member, host_id
from dpexec.engine.exchange.secret import secret_of
from dpexec.engine.exchange.shared import share_memory
from dpexec.engine.exchange.wire import (
    Channel,
    GangError,
    Room,
    Tag,
    exchange,
    into,
    last_words,
    say_goodbye,
)

if TYPE_CHECKING:
    from dpexec.engine.exchange.words import Talk

__all__ = ["Party", "part_all", "party_of"]

_TALK = 1 << 33  # what talks have in place of a collective's number


@dataclass(frozen=True)
class _Here:
    """What a door needs to know of this process."""

    address: str
    security: Any


class Party:
    """The trainers of a run.

    Programs of a process that train with the same trainers share the connections.

    Args:
        endpoints: where the trainers listen.
        rank: which of them this is.

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
        """A trainer, as people know it."""
        return f"trainer {rank} at {self.endpoints[rank]}"

    def meet(self, limit: float) -> int:
        """Connect to the others, if that is still to be done.

        Args:
            limit: seconds.

        Returns:
            Which meeting this is: they part when a step fails, and may meet again.

        Raises:
            GangError: somebody did not come; it names the endpoint.
            EnforceNotMet: there is no secret, see :func:`secret_of`.
        """
        if not self._channels:
            secret = secret_of(self.endpoints)
            security = encryption()
            members = self._members(secret, security is not None)
            here = _Here(members[self.rank].worker, security)
            door = Door(here, secret, at=members[self.rank])
            self._channels = door.meet(members, self.rank, limit)
            self.steps = self._talks = 0
            self._meetings += 1
            self._talk = self._through_memory(limit)
        return self._meetings

    def _through_memory(self, limit: float) -> Talk | None:
        """How trainers talk that share memory; None if they do not, or one lacks numba."""
        able = self.tell(kernels.available(), "what they are able to do", limit)
        if self.size == 1 or not all(able) or not self._hosts()[0]:
            return None
        kernels.load()
        from dpexec.engine.exchange.words import Talk

        tag = self._tag("the memory of talks")
        sizes = dict.fromkeys(range(self.size), Talk.size)
        return Talk(share_memory(self._channels, sizes, self.rank, tag, limit), self.rank)

    def part(self, text: str) -> None:
        """Leave the others, who are told why."""
        say_goodbye(self._channels, text)
        self._channels, self._talk = {}, None

    def group(self, devices: int, limit: float) -> Group:
        """The trainers for collectives, each with the same number of devices."""
        members = [
            Member(str(e), tuple(range(rank * devices, (rank + 1) * devices)), host, "", None)
            for rank, (e, host) in enumerate(zip(self.endpoints, self._hosts(), strict=True))
        ]
        group = Group(members, self.rank, self._channels, limit)
        group.has_words = self._talk is not None
        return group

    def _hosts(self) -> list[str]:
        """What trainers on the same host have in common; empty: they meet over TCP.

        Those whose endpoints are at one address are in one network namespace.
        """
        same = len({endpoint.host for endpoint in self.endpoints}) == 1
        return [host_id() if same else ""] * self.size

    def _members(self, secret: bytes, encrypted: bool) -> list[Member]:
        found = []
        for endpoint, host in zip(self.endpoints, self._hosts(), strict=True):
            address = f"{'tls://' if encrypted else ''}{endpoint}"
            tcp = None if host else (endpoint.host, endpoint.port)
            name = hmac.digest(secret, str(endpoint).encode(), "sha256").hex()[:32]
            unix = f"dpexec-{name}" if host else ""
            found.append(Member(address, (), host, unix, tcp))
        return [replace(m, role=f"trainer {rank} at") for rank, m in enumerate(found)]

    # ---- talking

    def tell(self, own: Any, text: str, limit: float) -> list[Any]:
        """What every trainer says, by rank.

        Args:
            own: what this one says; something that JSON can hold.
            text: what it is about.
            limit: seconds that another may be silent.

        Raises:
            GangError: somebody did not answer, is gone, or ended the run.
        """
        said: dict[int, Any] = {self.rank: own}
        words = memoryview(json.dumps(own).encode())
        heard = {other: Room(self.name(other)) for other in self._channels}
        self._exchange(text, {other: [words] for other in self._channels}, heard, limit)
        for other, room in heard.items():
            try:
                said[other] = json.loads(bytes(room.data))
            except (ValueError, RecursionError) as error:
                raise GangError(f"{self.name(other)} said something else than {text}") from error
        return [said[rank] for rank in range(self.size)]

    def tell_numbers(self, own: Sequence[int], text: str, limit: float) -> list[list[int]]:
        """What every trainer says, by rank, in numbers: through memory, if they share some.

        Args:
            own: what this one says.
            text: what it is about.
            limit: seconds that another may be silent.

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
        """The values of trainer 0, for all.

        Args:
            values: what this trainer has of variables, whatever kind they are.
            limit: seconds that another may be silent.

        Raises:
            GangError: see :meth:`tell`; or what came is no value.
        """
        own = {name: _contiguous(flat(v)) for name, v in values.items()} if self.rank == 0 else {}
        forms = [
            [name, value.kind, [[list(a.shape), a.dtype.str] for a in value.arrays]]
            for name, value in own.items()
        ]
        told = self.tell(forms, "the first values of variables", limit)[0]
        found = own or {n: Flat(kind, [_room(*form) for form in forms]) for n, kind, forms in told}
        arrays = [array for value in found.values() for array in value.arrays]
        buffers = [_bytes_of(array) for array in arrays if array.size]
        sends = {} if self.rank else dict.fromkeys(self._channels, buffers)
        places = {0: lambda _: buffers} if self.rank else {}
        self._exchange("the values of trainer 0", sends, places, limit)
        try:
            return {name: value_of(*value) for name, value in found.items()}
        except ValueError as error:
            raise GangError(f"{self.name(0)} sent no values of variables: {error}") from error

    def gather(
        self, array: np.ndarray[Any, Any], senders: Sequence[int], text: str, limit: float
    ) -> list[np.ndarray[Any, Any]]:
        """The arrays of some trainers, in the order in which these are named.

        Args:
            array: of this trainer; all have one of this shape and type.
            senders: ranks of the trainers.
            text: what it is about.
            limit: seconds that another may be silent.

        Raises:
            GangError: see :meth:`tell`; or a trainer's array has another size.
        """
        found = {rank: np.empty_like(array, order="C") for rank in senders if rank != self.rank}
        own = [_bytes_of(np.ascontiguousarray(array))]
        sends = dict.fromkeys(self._channels, own) if self.rank in senders else {}
        places = {rank: into(_bytes_of(room)) for rank, room in found.items()}
        self._exchange(text, sends, places, limit)
        return [found.get(rank, array) for rank in senders]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Do what all trainers do; if it fails here, the others are told."""
        with self.busy:
            try:
                yield
            except BaseException as error:
                self.part(last_words(self.name(self.rank), self.steps, error))
                raise

    def _exchange(self, text: str, sends: Any, places: Any, limit: float) -> None:
        self._talks += 1
        exchange(self._channels, self._tag(text), sends, places, limit)

    def _tag(self, text: str) -> Tag:
        return Tag(self.steps + 1, _TALK + self._talks, text)


def _bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _contiguous(value: Flat) -> Flat:
    return Flat(value.kind, [np.ascontiguousarray(array) for array in value.arrays])


def _room(shape: Sequence[int], dtype: str) -> np.ndarray[Any, Any]:
    kind = np.dtype(dtype)
    if kind.hasobject or math.prod(shape) < 0:
        raise GangError(f"values of type {dtype} and shape {list(shape)} cannot be sent")
    return np.empty(shape, kind)


_parties: dict[tuple[tuple[Endpoint, ...], int], Party] = {}
_lock = threading.Lock()


def party_of(endpoints: Sequence[Endpoint], rank: int) -> Party:
    """The trainers at some endpoints; the same object for all programs of this process.

    Args:
        endpoints: where the trainers listen.
        rank: which of them this is.
    """
    with _lock:
        return _parties.setdefault((tuple(endpoints), rank), Party(endpoints, rank))


@atexit.register
def part_all() -> None:
    """Leave all trainers that this process is connected with."""
    with _lock:
        parties = list(_parties.values())
        _parties.clear()
    for party in parties:
        party.part(f"{party.name(party.rank)} has ended")
