"""How both sides of a connection show that they know the secret of the run.

Each side answers a random challenge of the other with an HMAC. The secret itself never travels, and
nothing else is read before. The host's side is a generator, so that :class:`.reception.Reception`
can wait for many visitors at once.
"""

from __future__ import annotations

import hmac
import secrets
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import TypeVar

from dpexec.engine.exchange.wire import GangError

__all__ = ["Talk", "admit", "encrypt", "introduce"]

_NONCE = 32
_RANK = struct.Struct("<I")

_T = TypeVar("_T")

Talk = Generator[int, None, _T]
"""A dialogue on a socket that does not block: yields the events of ``select.poll`` that it waits
for."""


def introduce(sock: socket.socket, secret: bytes, rank: int, deadline: float) -> None:
    """Show a host that this process knows the secret, and check that the host knows it, too.

    Args:
        sock: the connection.
        secret: of the run.
        rank: of this process.
        deadline: on the monotonic clock.

    Raises:
        GangError: the host does not know the secret, or does not let us in.
        OSError: it closed the connection, or does not answer.
    """
    theirs = _read(sock, _NONCE, deadline)
    mine = secrets.token_bytes(_NONCE)
    claim = _RANK.pack(rank)
    sock.sendall(claim + mine + _proof(secret, b"visitor", theirs, mine, claim))
    try:
        answer = _read(sock, _NONCE, deadline)
    except ConnectionError as error:
        raise GangError("it sent us away: do both sides have the same secret?") from error
    if not hmac.compare_digest(answer, _proof(secret, b"host", mine, theirs, claim)):
        raise GangError("it does not know the secret of the run")


def encrypt(sock: ssl.SSLSocket) -> Talk[None]:
    """Agree on keys with a visitor.

    Args:
        sock: the connection, which does not block.

    Raises:
        OSError: that is not possible.
    """
    yield from _done(sock.do_handshake, select.POLLIN)


def admit(sock: socket.socket, secret: bytes, allowed: Callable[[int], bool]) -> Talk[int]:
    """Ask a visitor who it is.

    Args:
        sock: the connection, which does not block.
        secret: of the run.
        allowed: tells whether a rank may come in.

    Returns:
        The visitor's rank.

    Raises:
        GangError: it does not know the secret, or may not come in.
        OSError: it closed the connection.
    """
    mine = secrets.token_bytes(_NONCE)
    yield from _sent(sock, mine)
    answer = yield from _taken(sock, _RANK.size + 2 * _NONCE)
    claim, theirs = answer[: _RANK.size], answer[_RANK.size : -_NONCE]
    (rank,) = _RANK.unpack(claim)
    if not hmac.compare_digest(answer[-_NONCE:], _proof(secret, b"visitor", mine, theirs, claim)):
        raise GangError("did not know the secret")
    if not allowed(rank):
        raise GangError("came twice or were not expected")
    yield from _sent(sock, _proof(secret, b"host", theirs, mine, claim))
    return int(rank)


def _proof(secret: bytes, role: bytes, *parts: bytes) -> bytes:
    return hmac.digest(secret, b"/".join((b"dpexec-gang-1", role, *parts)), "sha256")


def _read(sock: socket.socket, count: int, deadline: float) -> bytes:
    data = b""
    while len(data) < count:
        sock.settimeout(max(deadline - time.monotonic(), 1e-3))  # one deadline for all bytes
        more = sock.recv(count - len(data))
        if not more:
            raise ConnectionResetError("it closed the connection at once")
        data += more
    return data


def _done(act: Callable[[], _T], event: int) -> Talk[_T]:
    """The result of a call that may have to wait for an event of the socket."""
    while True:
        try:
            return act()
        except BlockingIOError:
            yield event
        except ssl.SSLWantReadError:
            yield select.POLLIN
        except ssl.SSLWantWriteError:
            yield select.POLLOUT


def _sent(sock: socket.socket, data: bytes) -> Talk[None]:
    while data:
        count = yield from _done(partial(sock.send, data), select.POLLOUT)
        data = data[count:]


def _taken(sock: socket.socket, count: int) -> Talk[bytes]:
    data = b""
    while len(data) < count:
        more = yield from _done(partial(sock.recv, count - len(data)), select.POLLIN)
        if not more:
            raise ConnectionResetError("closed the connection before they said who they are")
        data += more
    return data
