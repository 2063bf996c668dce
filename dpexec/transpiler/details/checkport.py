"""Waiting for parameter servers."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterable

__all__ = ["wait_server_ready"]

_PAUSE = 1.0
_ANSWER = 2.0


def wait_server_ready(endpoints: Iterable[str]) -> None:
    """Wait until all endpoints accept connections; missing ones are listed on stderr.

    Args:
        endpoints: as ``"host:port"``.

    Raises:
        TypeError: ``endpoints`` is a string.

    Example:
        >>> import socket
        >>> from dpexec.transpiler.details import wait_server_ready
        >>> with socket.create_server(("127.0.0.1", 0)) as server:
        ...     wait_server_ready([f"127.0.0.1:{server.getsockname()[1]}"])  # returns at once
    """
    if isinstance(endpoints, str):
        raise TypeError(f"endpoints must be a list of host:port, not the string {endpoints!r}")
    waiting = list(endpoints)
    while waiting := [endpoint for endpoint in waiting if not _answers(endpoint)]:
        print(f"not ready yet: {', '.join(waiting)}", file=sys.stderr, flush=True)
        time.sleep(_PAUSE)


def _answers(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER).close()
    except OSError:
        return False
    return True
