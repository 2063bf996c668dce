"""Connections to other processes, and the headers of their frames."""

from __future__ import annotations

import array
import contextlib
import socket
import ssl
import struct
import sys
from collections.abc import Iterable, Sequence

__all__ = ["BOX", "DATA", "HEADER", "LAST_WORDS", "LENT", "LINE", "WAKE", "Channel"]

LINE = 64
"""Bytes of a line of the cache; vector instructions are faster on arrays that begin a line."""
HEADER = struct.Struct("<4sIQQQ")
"""The header of a frame: magic, kind, step, number, and how many bytes follow."""
DATA, LAST_WORDS, LENT, BOX, WAKE = 1, 2, 3, 4, 5
"""Kinds of frames: bytes of arrays; why the run ends; where a message lies in shared memory; the
descriptor of a box for messages; a message lies in the box."""
_BUFFERS_AT_ONCE = 64
_BATCH = 1 << 18
"""Bytes: a process that wakes up for every packet takes twice the processor time."""
_CAN_BATCH = sys.platform == "linux"  # elsewhere a closed connection may go unnoticed
_DESCRIPTORS = socket.CMSG_SPACE(8 * 4) if hasattr(socket, "CMSG_SPACE") else 0
_PROBES = 4  # unanswered probes of a silent peer after which its connection is given up
_CLOSED_BY_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # other systems do not pass any


class Channel:
    """An authenticated connection to another member.

    Args:
        sock: the connection.
        name: the member's name in errors: its worker and replicas.

    Attributes:
        is_local: whether the other end is a process of this host, which can be sent descriptors.
    """

    def __init__(self, sock: socket.socket, name: str) -> None:
        sock.setblocking(False)
        self.sock, self.name = sock, name
        self.waits_for_write = self.waits_for_read = False
        self._encrypted = isinstance(sock, ssl.SSLSocket)
        self.is_local = sock.family == socket.AF_UNIX
        self._can_batch = _CAN_BATCH and not (self._encrypted or self.is_local)
        self._least = 1

    def send(self, buffers: Sequence[memoryview | bytes], descriptor: int | None = None) -> int:
        """Send as much as possible without waiting; returns how many bytes were sent.

        Args:
            buffers: the bytes.
            descriptor: a file descriptor to send with the first of them.
        """
        try:
            if self._encrypted:
                return self.sock.send(buffers[0])
            if descriptor is not None:
                return socket.send_fds(self.sock, buffers, [descriptor])
            if len(buffers) == 1:
                return self.sock.send(buffers[0])
            return self.sock.sendmsg(buffers[:_BUFFERS_AT_ONCE])
        except (BlockingIOError, ssl.SSLWantWriteError):
            self.waits_for_write = True
        except ssl.SSLWantReadError:
            self.waits_for_read = True
        return 0

    def expect(self, nbytes: int) -> None:
        """Say how much is sure to come, so that waits end for much of it, not for every packet.

        Args:
            nbytes: that the other end sends for certain; a wait for reading ends when so many, or
                those of a batch, are there, or the connection is closed.
        """
        least = min(max(nbytes, 1), _BATCH)
        if self._can_batch and least != self._least:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
            self._least = least

    def receive(self, buffer: memoryview) -> int:
        """Receive the bytes that are there; returns how many they were, 0 if none are there.

        Raises:
            ConnectionError: the peer has closed the connection.
        """
        try:
            count = self.sock.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError):
            self.waits_for_read = True
            return 0
        except ssl.SSLWantWriteError:
            self.waits_for_write = True
            return 0
        if not count:
            raise ConnectionResetError("closed")
        return count

    def receive_all(self, nbytes: int) -> tuple[memoryview, list[int]]:
        """Receive the bytes and descriptors that are there, ``nbytes`` at most; does not wait.

        Raises:
            ConnectionError: the peer has closed the connection.
        """
        if not self.is_local:
            data = bytearray(nbytes)
            return memoryview(data)[: self.receive(memoryview(data))], []
        try:
            got, found, _, _ = self.sock.recvmsg(nbytes, _DESCRIPTORS, _CLOSED_BY_EXEC)
        except BlockingIOError:
            self.waits_for_read = True
            return memoryview(b""), []
        if not got:
            raise ConnectionResetError("closed")
        return memoryview(got), _descriptors_in(found) if found else []

    def ends(self) -> bool:
        """Whether the next frame says that the run ends, or the peer has closed the connection.

        Nothing is received by it. It does not work on encrypted connections.
        """
        try:
            head = self.sock.recv(HEADER.size, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return not head or (len(head) == HEADER.size and HEADER.unpack(head)[1] == LAST_WORDS)

    def notice_lost_host(self, limit: float) -> None:
        """Let the system end the connection when the other host does not answer any more.

        Args:
            limit: seconds after which a silent host counts as lost. A living host's system answers
                probes by itself, however busy its processes are.
        """
        pause = max(int(limit / (_PROBES + 1)), 1)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", pause),
            ("TCP_KEEPINTVL", pause),
            ("TCP_KEEPCNT", _PROBES),
            ("TCP_USER_TIMEOUT", max(int(limit * 1000), 1)),
        ):
            if hasattr(socket, option):  # systems other than Linux lack some of them
                self.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def interrupt(self) -> None:
        """End the connection, while another thread may be waiting for it."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()


def _descriptors_in(found: Iterable[tuple[int, int, bytes]]) -> list[int]:
    """The descriptors that came with some bytes."""
    descriptors = array.array("i")
    for _, _, each in found:
        descriptors.frombytes(each)
    return descriptors.tolist()
