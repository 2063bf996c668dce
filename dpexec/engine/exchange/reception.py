"""The reception where processes of a run come in; strangers cannot keep them out.

One thread serves all connections by sockets that do not block. A stranger that is silent, slow or
sends nonsense costs a descriptor for some seconds, and nobody waits for it. When there are too
many, the one that has been silent for longest is sent away. Members answer at once, and knock again
if they were sent away by mistake.
"""

from __future__ import annotations

import contextlib
import errno
import resource
import select
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from dpexec.engine.exchange.channels import Channel
from dpexec.engine.exchange.endpoints import Endpoint, Where, listener
from dpexec.engine.exchange.handshake import Talk, admit, encrypt, introduce
from dpexec.engine.exchange.wire import GangError

__all__ = ["Reception", "knock"]

_PATIENCE = 5.0  # seconds that a stranger has to say who it is
_STRANGERS = 128  # the most at once; fewer if the process may have few descriptors
_SHARE = 4  # strangers may use 1/4 of the process's descriptors
_ROUNDS = 8  # a round accepts at most 1/8 of all strangers, so that those present get their turn
_PAUSE = 0.05  # seconds without new connections after one could not be accepted
_RETRY = 0.02  # seconds between attempts to come in
_ATTEMPT = 5.0  # seconds of an attempt
_LOOK = 0.1  # seconds of silence after which ``still_wanted`` is asked
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class _Stranger:
    """A connection whose other side has not shown yet who it is.

    Args:
        sock: the connection.
        talk: the dialogue with the other side.
    """

    def __init__(self, sock: socket.socket, talk: Talk[int]) -> None:
        self.sock, self._talk = sock, talk
        self.until = time.monotonic() + _PATIENCE
        self.waits_for = 0
        self.silent = True

    def go_on(self) -> int | None:
        """Its rank, if it has shown that it knows the secret; None: the dialogue goes on.

        Raises:
            GangError: it does not know the secret.
            OSError: it is gone.
        """
        try:
            self.waits_for = next(self._talk)
        except StopIteration as end:
            return int(end.value)
        return None


class Reception:
    """Lets processes in that know the secret of the run.

    One thread calls :meth:`admit`; any thread may close the reception.

    Args:
        secret: of the run.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._listeners: list[tuple[socket.socket, ssl.SSLContext | None]] = []
        self._strangers: list[_Stranger] = []  # in the order in which they came
        self._sent_away: Counter[str] = Counter()
        self._allowed: Callable[[int], bool] = lambda _: False
        self._pause_until = 0.0
        self._busy = threading.Lock()
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        few = descriptors // _SHARE if descriptors >= 0 else _STRANGERS  # negative: no limit
        self._most = max(1, min(_STRANGERS, few))

    def listen(self, where: Where, name: str, security: Any = None) -> Where:
        """Let others come in at an address.

        Args:
            where: the address.
            name: its name in errors.
            security: a ``distributed.Security`` that encrypts TCP connections; None: no encryption.

        Returns:
            The address, with the port that was chosen if it was 0.

        Raises:
            GangError: the address cannot be listened at; the reception is closed then.
        """
        try:
            sock, context = listener(where, security)
        except OSError as error:
            self.close()
            raise GangError(f"cannot listen at {name}: {error}") from error
        self._listeners.append((sock, context))
        return where if isinstance(where, str) else Endpoint(*sock.getsockname()[:2])

    @property
    def is_open(self) -> bool:
        """Whether it listens at an address."""
        return bool(self._listeners)

    @property
    def sent_away(self) -> str:
        """The connections that were not let in, for errors; empty if there were none."""
        if not self._sent_away:
            return ""
        reasons = ", ".join(f"{count} {why}" for why, count in self._sent_away.most_common())
        count = sum(self._sent_away.values())
        return f" ({count} connection{'s' * (count > 1)} came and went: {reasons})"

    def close(self) -> None:
        """Stop listening, and close the connections of strangers."""
        with self._busy:
            for sock, _ in self._listeners:
                sock.close()
            for stranger in self._strangers:
                stranger.sock.close()
            self._listeners, self._strangers = [], []

    def admit(
        self, allowed: Callable[[int], bool], timeout: float
    ) -> list[tuple[int, socket.socket]]:
        """Wait for some seconds at most until a process has come in.

        Args:
            allowed: tells whether a rank may come in.
            timeout: seconds.

        Returns:
            Ranks and connections of the processes that came in; these do not block.
        """
        self._allowed = allowed
        poll = select.poll()
        with self._busy:
            now = time.monotonic()
            ends = [now + timeout, *(stranger.until for stranger in self._strangers[:1])]
            if now < self._pause_until:
                ends.append(self._pause_until)
            else:
                for sock, _ in self._listeners:
                    poll.register(sock, select.POLLIN)
            for stranger in self._strangers:
                poll.register(stranger.sock, stranger.waits_for)
        ready = {number for number, _ in poll.poll(max(min(ends) - now, 0.0) * 1000)}
        with self._busy:
            heard = [s for s in self._strangers if s.sock.fileno() in ready]
            for stranger in heard:
                stranger.silent = False
            known = self._hear(heard)
            for sock, context in self._listeners:
                if sock.fileno() in ready:
                    known += self._let_come(sock, context)
            self._lose_patience()
        return known

    def _hear(self, strangers: list[_Stranger]) -> list[tuple[int, socket.socket]]:
        """Go on with strangers that have sent something; returns those that have come in."""
        known = []
        for stranger in strangers:
            try:
                rank = stranger.go_on()
            except (OSError, GangError) as error:
                self._send_away(stranger, _reason(error))
                continue
            if rank is not None:
                self._strangers.remove(stranger)
                known.append((rank, stranger.sock))
        return known

    def _let_come(
        self, listener: socket.socket, context: ssl.SSLContext | None
    ) -> list[tuple[int, socket.socket]]:
        """Accept some connections; if there are too many, old strangers are sent away."""
        come = []
        for _ in range(max(1, self._most // _ROUNDS)):
            if len(self._strangers) >= self._most:
                self._make_room("made room for others")
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _NO_ROOM and self._strangers:
                    self._make_room(f"made room ({error.strerror})")
                    continue
                self._sent_away[f"could not be taken: {error.strerror}"] += 1
                self._pause_until = time.monotonic() + _PAUSE
                break
            try:
                come.append(self._greet(sock, context))
            except OSError as error:  # it may be gone by now
                sock.close()
                self._sent_away[_reason(error)] += 1
        self._strangers += come
        return self._hear(come)

    def _make_room(self, why: str) -> None:
        silent = (stranger for stranger in self._strangers if stranger.silent)
        self._send_away(next(silent, self._strangers[0]), why)

    def _greet(self, sock: socket.socket, context: ssl.SSLContext | None) -> _Stranger:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            sock.getpeername()  # fails if the peer is gone; wrap_socket would not close the socket
            sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return _Stranger(sock, self._talk(sock))

    def _talk(self, sock: socket.socket) -> Talk[int]:
        if isinstance(sock, ssl.SSLSocket):
            yield from encrypt(sock)
        return (yield from admit(sock, self._secret, lambda rank: self._allowed(rank)))

    def _lose_patience(self) -> None:
        now = time.monotonic()
        while self._strangers and self._strangers[0].until <= now:
            self._send_away(self._strangers[0], f"did not say who they are for {_PATIENCE:g} s")

    def _send_away(self, stranger: _Stranger, why: str) -> None:
        self._strangers.remove(stranger)
        stranger.sock.close()
        self._sent_away[why] += 1


def _reason(error: Exception) -> str:
    """Why a stranger was sent away, in the same words for all strangers with that reason."""
    if isinstance(error, ssl.SSLError):
        return f"did not encrypt as they should ({error.reason})"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def knock(
    connect: Callable[[float], socket.socket],
    secret: bytes,
    rank: int,
    limit: float,
    name: str,
    still_wanted: Callable[[], None] = lambda: None,
    since: float | None = None,
) -> Channel:
    """Come in at a :class:`Reception`, which may not listen yet.

    Args:
        connect: makes a connection within a given number of seconds.
        secret: of the run.
        rank: of this process.
        limit: seconds.
        name: the other side's name in errors.
        still_wanted: called before every attempt, and while the other side is silent; raises an
            error to give up.
        since: when the limit began, on the monotonic clock; None: now.

    Raises:
        GangError: no process that knows the secret let us in within the limit.
    """
    deadline = (time.monotonic() if since is None else since) + limit
    last: Exception | None = None
    while (left := deadline - time.monotonic()) > 0:
        still_wanted()
        try:
            sock = connect(min(left, _ATTEMPT))
        except OSError as error:
            last = error
        else:
            with contextlib.ExitStack() as unless_let_in:
                unless_let_in.callback(sock.close)
                until = min(deadline, time.monotonic() + _ATTEMPT)
                _await_first_word(sock, until, still_wanted)
                try:
                    introduce(sock, secret, rank, until)
                except (OSError, GangError) as error:
                    last = error
                else:
                    unless_let_in.pop_all()
                    return Channel(sock, name)
        time.sleep(_RETRY)
    raise GangError(f"{name} did not let us in within {limit:g} s ({last})")


def _await_first_word(sock: socket.socket, until: float, still_wanted: Callable[[], None]) -> None:
    """Wait until the host speaks, which does so first, or a deadline on the monotonic clock.

    The processes of a worker that was stopped do not answer, but its system takes connections.
    """
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    while not poll.poll(_LOOK * 1000) and time.monotonic() < until:
        still_wanted()
