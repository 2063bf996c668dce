"""Those who come to a server: each is served on a thread of its own, which ends with it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable

__all__ = ["Visitor", "Visitors"]

_PATIENCE = 5.0  # seconds that a stranger has to say who it is


class Visitor:
    """Somebody who has come.

    Args:
        sock: the connection.

    Attributes:
        known: whether it has said who it is.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(_PATIENCE)
        self.sock = sock
        self.known = False
        self.came = time.monotonic()
        self.thread: threading.Thread

    def interrupt(self) -> None:
        """End the connection, while its thread may be waiting for it."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


class Visitors:
    """All who have come and are still there.

    Args:
        serve: what is called with a visitor on its thread; closes the connection at its end.
        context: encrypts connections; None: they are not encrypted.
    """

    def __init__(self, serve: Callable[[Visitor], None], context: ssl.SSLContext | None) -> None:
        self._serve, self._context = serve, context
        self._present: list[Visitor] = []

    def let_in(self, sock: socket.socket) -> None:
        """Serve somebody.

        Args:
            sock: the connection.
        """
        if self._context is not None:  # the handshake may take long: the thread makes it
            sock = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        visitor = Visitor(sock)
        visitor.thread = threading.Thread(target=self._serve, args=(visitor,))
        self._present.append(visitor)
        visitor.thread.start()

    def tidy(self) -> None:
        """Forget those who have gone, and send strangers away who keep silent."""
        self._present = [visitor for visitor in self._present if visitor.thread.is_alive()]
        for visitor in self._present:
            if not visitor.known and time.monotonic() - visitor.came > _PATIENCE:
                visitor.interrupt()

    def end(self, grace: float) -> None:
        """Wait until all have gone.

        Args:
            grace: seconds for what is still to be said; then connections are ended.
        """
        deadline = time.monotonic() + grace
        for visitor in self._present:
            if visitor.known:
                visitor.thread.join(max(deadline - time.monotonic(), 0.0))
            visitor.interrupt()
        for visitor in self._present:
            visitor.thread.join()
