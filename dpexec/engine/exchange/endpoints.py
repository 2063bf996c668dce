"""Addresses at which processes of a run listen, the sockets that connect them, and their secret.

Processes of one host may meet at a Unix socket in the abstract namespace, which leaves no file
behind. Others meet over TCP, encrypted by TLS if dask's settings say so. A secret tells processes
of the run from strangers.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import dask

from dpexec.engine.core.errors import EnforceNotMet

__all__ = [
    "SECRET",
    "Endpoint",
    "Where",
    "connect",
    "encryption",
    "listener",
    "parse_endpoints",
    "secret_of",
]

_BACKLOG = 512  # connections that the system keeps until they are accepted


class Endpoint(NamedTuple):
    """Where a process listens over TCP.

    Args:
        host: name or number of the interface.
        port: number; 0: any free port.
    """

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """The endpoint of a text like ``127.0.0.1:6170`` or ``[::1]:6170``.

        Raises:
            EnforceNotMet: the text is no endpoint.
        """
        try:
            parts = urlsplit(f"//{text.strip()}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or not port:
            raise EnforceNotMet(f"an endpoint is written ip:port, but received {text!r}")
        return cls(host, port)


Where: TypeAlias = Endpoint | str
"""An address: an endpoint, or the name of a Unix socket in the abstract namespace."""


def parse_endpoints(text: str) -> list[Endpoint]:
    """The endpoints of a list like ``127.0.0.1:6170,127.0.0.1:6171``.

    Raises:
        EnforceNotMet: an item is no endpoint, or comes twice.
    """
    found = [Endpoint.parse(item) for item in text.split(",") if item.strip()]
    if len(set(found)) < len(found):
        raise EnforceNotMet(f"every process has an endpoint of its own, but received {text!r}")
    return found


def encryption() -> Any:
    """A ``distributed.Security``; None: dask's configuration does not ask for encryption."""
    if not dask.config.get("distributed.comm.require-encryption", None):
        return None
    from distributed.security import Security

    return Security()


def listener(where: Where, security: Any) -> tuple[socket.socket, ssl.SSLContext | None]:
    """A socket at which others may connect; it does not block.

    Args:
        where: its address.
        security: a ``distributed.Security`` that encrypts TCP connections; None: no encryption.

    Returns:
        The socket, and the TLS context of its connections, or None.

    Raises:
        OSError: the address cannot be listened at.
    """
    context = None
    if isinstance(where, str):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        if security is not None:
            context = security.get_listen_args("worker").get("ssl_context")
    try:
        if isinstance(where, str):
            sock.bind(f"\0{where}")
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(where)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock, context


def connect(where: Where, security: Any, role: str, timeout: float) -> socket.socket:
    """Connect to a process that listens at an address.

    Args:
        where: the address.
        security: see :func:`listener`.
        role: the role of this process in ``security``, such as "client".
        timeout: seconds for connecting, and for later waits of the socket.

    Raises:
        OSError: nobody answers at the address.
    """
    if isinstance(where, str):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        sock = socket.create_connection(where, timeout)
    try:
        if isinstance(where, str):
            sock.settimeout(timeout)
            sock.connect(f"\0{where}")
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security is not None:
                sock = security.get_connection_args(role)["ssl_context"].wrap_socket(sock)
    except BaseException:
        sock.close()
        raise
    return sock


SECRET = "DPEXEC_SECRET"
"""The environment variable with the secret of a run."""


def secret_of(endpoints: Sequence[Endpoint]) -> bytes:
    """The secret of a run: the environment variable ``DPEXEC_SECRET``.

    Processes that all listen on the loopback interface may leave it unset: they share a random
    secret in a file that only the user can read.

    Args:
        endpoints: where the processes of the run listen.

    Raises:
        EnforceNotMet: it is not set, and processes of other hosts could reach an endpoint.
    """
    given = os.environ.get(SECRET, "")
    if given:
        return given.encode()
    for endpoint in endpoints:
        if not _is_loopback(endpoint.host):
            raise EnforceNotMet(
                f"endpoint {endpoint} can be reached by others: set the environment variable "
                f"{SECRET} to the same random text in all processes of the run, for example to "
                "what `openssl rand -hex 32` prints"
            )
    return _secret_of_user()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _secret_of_user() -> bytes:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpexec"
    path = folder / "secret"
    try:
        if not path.exists():
            _write(path)
        status = path.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise EnforceNotMet(
                f"{path} must belong to this user alone; delete it, or set {SECRET}"
            )
        return path.read_bytes()
    except OSError as error:
        raise EnforceNotMet(f"no secret can be kept in {path} ({error}): set {SECRET}") from error


def _write(path: Path) -> None:
    """Write the file under another name, then link it: several processes may write it at once."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"secret-{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(32).encode())
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first; all use its secret
    finally:
        draft.unlink()
