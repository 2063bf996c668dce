"""How either side of a connection shows that it knows the secret of the run.

Each answers a random challenge of the other with an HMAC; the secret itself never travels, and
nothing else is read before.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
from collections.abc import Container

from dpexec.runtime.gang.wire import GangError

__all__ = ["admit", "introduce"]

_NONCE = 32
_RANK = struct.Struct("<I")


def introduce(sock: socket.socket, secret: bytes, rank: int) -> None:
    """Show a host that one knows the secret, and check that the host does, too.

    Args:
        sock: the connection, with a timeout.
        secret: of the run.
        rank: which member this is.

    Raises:
        GangError: the host does not know the secret.
        OSError: it closed the connection, or does not answer.
    """
    theirs = _read(sock, _NONCE)
    mine = secrets.token_bytes(_NONCE)
    claim = _RANK.pack(rank)
    sock.sendall(claim + mine + _proof(secret, b"visitor", theirs, mine, claim))
    if not hmac.compare_digest(_read(sock, _NONCE), _proof(secret, b"host", mine, theirs, claim)):
        raise GangError("it does not know the secret of the run")


def admit(sock: socket.socket, secret: bytes, allowed: Container[int]) -> int:
    """Ask a visitor who it is.

    Args:
        sock: the connection, with a timeout.
        secret: of the run.
        allowed: the ranks that may come in.

    Returns:
        The visitor's rank.

    Raises:
        GangError: it does not know the secret, or may not come in.
        OSError: it closed the connection, or does not answer.
    """
    mine = secrets.token_bytes(_NONCE)
    sock.sendall(mine)
    answer = _read(sock, _RANK.size + 2 * _NONCE)
    claim, theirs = answer[: _RANK.size], answer[_RANK.size : -_NONCE]
    (rank,) = _RANK.unpack(claim)
    knows = hmac.compare_digest(answer[-_NONCE:], _proof(secret, b"visitor", mine, theirs, claim))
    if not knows or rank not in allowed:
        raise GangError("it does not know the secret of the run")
    sock.sendall(_proof(secret, b"host", theirs, mine, claim))
    return int(rank)


def _proof(secret: bytes, role: bytes, *parts: bytes) -> bytes:
    return hmac.digest(secret, b"/".join((b"dpexec-gang-1", role, *parts)), "sha256")


def _read(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise ConnectionResetError("closed before it said who it is")
        data += more
    return data
