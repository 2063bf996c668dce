"""Addresses at which processes of a run listen, and connections between them.

A server lets others in with :func:`listen`; a client comes with :func:`visit`. Where dask's
configuration requires encryption, its TLS settings hold for these connections, too.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import dask

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.exchange.reception import Reception, knock
from dpexec.engine.exchange.wire import Channel, GangError

__all__ = ["Endpoint", "encryption", "listen", "parse_endpoints", "visit"]


@dataclass(frozen=True)
class Endpoint:
    """Where a process listens.

    Args:
        host: name or number of the interface.
        port: number.
    """

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """The endpoint that a text like ``127.0.0.1:6170`` or ``[::1]:6170`` names.

        Raises:
            EnforceNotMet: it names none.
        """
        try:
            parts = urlsplit(f"//{text.strip()}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or not port:
            raise EnforceNotMet(f"an endpoint is written ip:port, but received {text!r}")
        return cls(host, port)


def parse_endpoints(text: str) -> list[Endpoint]:
    """The endpoints of a list like ``127.0.0.1:6170,127.0.0.1:6171``.

    Raises:
        EnforceNotMet: an item names none, or one comes twice.
    """
    found = [Endpoint.parse(item) for item in text.split(",") if item.strip()]
    if len(set(found)) < len(found):
        raise EnforceNotMet(f"every process has an endpoint of its own, but received {text!r}")
    return found


def listen(reception: Reception, endpoint: Endpoint) -> None:
    """Let others come in at an endpoint, encrypted where dask's configuration says so.

    Args:
        reception: asks them who they are; it is closed if there is an error.
        endpoint: where.

    Raises:
        GangError: that is not possible; the message names the endpoint.
    """
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    security = encryption()
    context = None if security is None else security.get_listen_args("worker")["ssl_context"]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        reception.listen(listener, (endpoint.host, endpoint.port), context)
    except OSError as error:
        reception.close()
        raise GangError(f"cannot listen at {endpoint}: {error}") from error


def encryption() -> Any:
    """A ``distributed.Security``; None: dask's configuration does not ask for encryption."""
    if not dask.config.get("distributed.comm.require-encryption", None):
        return None
    from distributed.security import Security

    return Security()


def visit(endpoint: Endpoint, secret: bytes, rank: int, limit: float, name: str) -> Channel:
    """Connect to who listens, or will soon listen, at an endpoint.

    Args:
        endpoint: where.
        secret: of the run.
        rank: which visitor this is.
        limit: seconds.
        name: of who listens, as people know it.

    Raises:
        GangError: nobody who knows the secret answered within the limit; it names the endpoint.
    """
    return knock(partial(_connect, endpoint), secret, rank, limit, f"{name} at {endpoint}")


def _connect(endpoint: Endpoint, timeout: float) -> socket.socket:
    sock = socket.create_connection((endpoint.host, endpoint.port), timeout)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        security = encryption()
        if security is not None:
            sock = security.get_connection_args("worker")["ssl_context"].wrap_socket(sock)
    except BaseException:
        sock.close()
        raise
    return sock
