"""What strangers do where processes of a run come in; run as a script, it is a crowd of them.

They only knock where a test listens itself: at loopback, or at a Unix socket without a file.
"""

import contextlib
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_AT_ONCE = struct.pack("ii", 1, 0)


def connected(family: int, address: object) -> socket.socket:
    """A connection, as soon as there is room for it."""
    while True:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.connect(address)
        except (BlockingIOError, ConnectionRefusedError):
            sock.close()
            time.sleep(0.01)
        else:
            return sock


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    sock.close()


def _slow(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        for _ in range(3):
            sock.sendall(b"\x16")
            time.sleep(0.01)


DEEDS = {
    "is silent": lambda sock: None,
    "resets the connection": _reset,
    "closes it": lambda sock: sock.close(),
    "ends after half a handshake": lambda sock: (sock.sendall(b"\x16\x03\x01"), sock.close()),
    "says half of it": lambda sock: sock.sendall(b"\x16\x03\x01\x02"),
    "says something else": lambda sock: sock.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10),
    "says much": lambda sock: sock.sendall(bytes(1 << 16)),
    "is slow": _slow,
}
"""By what they do."""


@contextmanager
def crowd(family: int, address: object, count: int) -> Iterator[None]:
    """Many who connect and are silent, in a process of their own; all of them have come."""
    command = [sys.executable, "-m", __name__, str(family), repr(address), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"here\n"
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    import ast
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    family_, address_, count_ = sys.argv[1:]
    there = [connected(int(family_), ast.literal_eval(address_)) for _ in range(int(count_))]
    print("here", flush=True)
    sys.stdin.read()  # until the test is done
