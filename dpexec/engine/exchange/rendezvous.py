"""How the members of a gang find each other, and check that they belong to the run.

Members of one host meet at a Unix socket in the abstract namespace, which leaves no file behind.
Others meet at a TCP socket of the interface at which dask's worker listens, with its TLS settings.
Both sockets are open only until the gang is complete. Before anything else is read, both sides must
show that they know the secret of the run (:mod:`.handshake`).
"""

from __future__ import annotations

import functools
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.exchange.channels import Channel
from dpexec.engine.exchange.endpoints import Endpoint, connect
from dpexec.engine.exchange.reception import Reception, knock
from dpexec.engine.exchange.wire import GangError

__all__ = ["CLIENT", "Door", "Gpu", "Member", "Visitor", "host_id"]

_SCHEMES = ("tcp", "tls", "ws", "wss", "ucx", "ucxx")  # UCX knows hosts by their address, too
_ENCRYPTED = ("tls", "wss")
_LOOK = 0.02  # seconds between looks at whether the gang is given up


class Gpu(NamedTuple):
    """The GPU of a member, as others must know it.

    Args:
        slot: the PCI slot, which tells GPUs of a host apart.
        nccl: version of NCCL; 0: it is not installed.
    """

    slot: str
    nccl: int


@dataclass(frozen=True)
class Member:
    """Where a member of a gang can be met.

    Args:
        worker: address of its dask worker, or the address at which it listens itself.
        devices: its replicas.
        host: id of its host, see :func:`host_id`; empty: it meets all others over TCP.
        unix: name of its Unix socket.
        tcp: its TCP socket; None if its worker has no network address.
        role: the word for it in errors.
        gpu: the GPU of its replicas; None: they are on CPUs.
    """

    worker: str
    devices: tuple[int, ...]
    host: str
    unix: str
    tcp: Endpoint | None
    role: str = "worker"
    gpu: Gpu | None = None

    @property
    def name(self) -> str:
        """Its name in errors."""
        plural = "s" if len(self.devices) > 1 else ""
        devices = f" (replica{plural} {', '.join(map(str, self.devices))})" if self.devices else ""
        return f"{self.role} {self.worker}{devices}"

    def connect(self, host: str, security: Any, role: str, timeout: float) -> socket.socket:
        """Connect to its door.

        Args:
            host: id of this process's host, see :func:`host_id`.
            security: a ``distributed.Security``; None: nothing will be sent, not even keys.
            role: the role of this process in ``security``.
            timeout: seconds.

        Raises:
            GangError: it has no door for other hosts.
            OSError: it cannot be reached.
        """
        if host and self.host == host:
            return connect(self.unix, None, role, timeout)
        if self.tcp is None:
            raise GangError(f"{self.name} cannot be reached from another host")
        return connect(self.tcp, security if _encrypts(self.worker) else None, role, timeout)


CLIENT = Member("of this run", (), "", "", None, role="the client")
"""The client: its rank follows the last member's, and it takes no part in collectives; see
:class:`Visitor`."""


def host_id() -> str:
    """An id that is equal for processes that can share memory and Unix sockets; empty: none can."""
    if sys.platform != "linux":
        return ""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}-{os.readlink('/proc/self/ns/net')}-{os.getuid()}"


def _encrypts(address: str) -> bool:
    return urlsplit(address).scheme in _ENCRYPTED


class Door:
    """The sockets of a member where others come in, until the gang is complete.

    Args:
        address: address of this process's dask worker, or the address at which it listens itself.
        security: a ``distributed.Security``, which encrypts for addresses of ``tls`` and ``wss``.
        secret: of the run.
        at: the addresses that the others expect; None: any free ones.

    Raises:
        GangError: others cannot connect to the address.
    """

    def __init__(
        self, address: str, security: Any, secret: bytes, at: Member | None = None
    ) -> None:
        self._secret, self._security, self._address = secret, security, address
        self._reception = Reception(secret)
        self.host, self.unix = host_id(), ""
        self.tcp: Endpoint | None = None
        if at is None:
            parts = urlsplit(address)
            if self.host:
                self._open_unix(f"dpexec-{secrets.token_hex(16)}")
            if parts.scheme in _SCHEMES:
                self._open_tcp(Endpoint(parts.hostname or "", 0))
        else:
            self.host = at.host
            if at.unix:
                self._open_unix(at.unix)
            elif at.tcp is not None:
                self._open_tcp(at.tcp)
        if not self._reception.is_open:
            raise GangError(f"worker {address} has no address that others could connect to")

    def _open_unix(self, name: str) -> None:
        self._reception.listen(name, self._address)
        self.unix = name

    def _open_tcp(self, where: Endpoint) -> None:
        security = self._security if _encrypts(self._address) else None
        found = self._reception.listen(where, self._address, security)
        assert isinstance(found, Endpoint)
        self.tcp = found

    def member(self, devices: Sequence[int], gpu: Gpu | None = None) -> Member:
        """This member as others must know it.

        Args:
            devices: its replicas.
            gpu: the GPU of its replicas; None: they are on CPUs.
        """
        return Member(self._address, tuple(devices), self.host, self.unix, self.tcp, gpu=gpu)

    def close(self) -> None:
        """Close the sockets."""
        self._reception.close()

    def _require_open(self) -> None:
        if not self._reception.is_open:
            raise GangError("the gang was given up before all members had come")

    def meet(self, members: Sequence[Member], rank: int, limit: float) -> dict[int, Channel]:
        """Connect to the members of lower rank, and let in those of higher rank.

        Args:
            members: all members.
            rank: of this member.
            limit: seconds.

        Raises:
            GangError: members did not come within the limit; the message names them.
        """
        began = time.monotonic()
        channels: dict[int, Channel] = {}
        try:
            for other in range(rank):
                member = members[other]
                channels[other] = knock(
                    functools.partial(member.connect, self.host, self._security, "worker"),
                    self._secret,
                    rank,
                    limit,
                    member.name,
                    self._require_open,
                    began,
                )
            self._let_in(members, range(rank + 1, len(members)), channels, began, limit)
        except BaseException:
            for channel in channels.values():
                channel.close()
            raise
        finally:
            self.close()
        return channels

    # ---- letting in

    def _let_in(
        self,
        members: Sequence[Member],
        expected: Sequence[int],
        channels: dict[int, Channel],
        began: float,
        limit: float,
    ) -> None:
        waiting = set(expected)
        while waiting:
            self._require_open()
            if time.monotonic() > began + limit:
                names = ", ".join(members[rank].name for rank in sorted(waiting))
                news = self._reception.sent_away
                raise GangError(f"{names} did not come within {limit:g} s{news}")
            for rank, sock in self._reception.admit(waiting.__contains__, _LOOK):
                if rank in waiting:
                    waiting.remove(rank)
                    channels[rank] = Channel(sock, members[rank].name)
                else:
                    sock.close()


class Visitor:
    """The client of a gang, which connects to the doors of all members and has none itself.

    Args:
        security: a ``distributed.Security``.
        secret: of the run.
    """

    def __init__(self, security: Any, secret: bytes) -> None:
        self._me, self._secret = (host_id(), security, "client"), secret

    def why_not(self, members: Sequence[Member], limit: float) -> str:
        """The first member that cannot be reached, and why; empty if all can be reached.

        Nobody answers yet, so this does not wait for an agreement on keys.

        Args:
            members: the members, whose doors are open.
            limit: seconds for each.
        """
        for member in members:
            try:
                member.connect(self._me[0], None, self._me[2], limit).close()
            except (OSError, GangError) as error:
                return f"{member.name}: {error}"
        return ""

    def visit(
        self, members: Sequence[Member], limit: float, still_wanted: Callable[[], None]
    ) -> list[Channel]:
        """Connect to all members, with the rank after the last member's.

        Args:
            members: of the gang.
            limit: seconds.
            still_wanted: called before every attempt, and while a member is silent; raises an
                error to give up.

        Raises:
            GangError: a member did not let us in within the limit.
        """
        channels: list[Channel] = []
        rank, began = len(members), time.monotonic()
        try:
            for member in members:
                comes = functools.partial(member.connect, *self._me)
                channels.append(
                    knock(comes, self._secret, rank, limit, member.name, still_wanted, began)
                )
        except BaseException:
            for channel in channels:
                channel.close()
            raise
        return channels
