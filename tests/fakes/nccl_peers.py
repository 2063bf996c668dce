"""Communicators of NCCL between processes, without GPUs: calls travel through sockets.

What a group enqueues is done some time later, by a thread. As on real GPUs, a member that is gone
leaves the others waiting, without an error, until they abort.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import threading

import numpy as np

__all__ = ["Peer", "Waiting", "unique_id"]

_roots = {}


def unique_id():
    """What names a new communicator: where its first rank listens."""
    name = secrets.token_bytes(128)
    _roots[name] = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    _roots[name].bind(_address(name))
    _roots[name].listen()
    return name


def _address(name):
    return b"\0" + name[:64]


class Waiting:
    """What a stream does until other processes have done their part."""

    def __init__(self):
        self.done = threading.Event()


class Peer:
    """One rank of a communicator.

    Args:
        nccl: the module.
        count: how many ranks there are.
        unique: what the first one got from :func:`unique_id`.
        rank: which of them this is.
    """

    def __init__(self, nccl, count, unique, rank):
        assert type(unique) is bytes and len(unique) == 128
        self.nccl, self.rank, self.count = nccl, rank, count
        self.machine, self.gpu = nccl.machine, nccl.machine.current.device
        self._work, self._aborted = queue.SimpleQueue(), False
        self._peers = self._take(_roots.pop(unique)) if rank == 0 else [self._visit(unique)]
        threading.Thread(target=self._serve, daemon=True).start()

    def _take(self, listener):
        found = {}
        while len(found) < self.count - 1:
            peer, _ = listener.accept()
            found[peer.recv(1)[0]] = peer
        listener.close()
        return [found[rank] for rank in range(1, self.count)]

    def _visit(self, name):
        root = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        root.connect(_address(name))
        root.sendall(bytes([self.rank]))
        return root

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        self._add("allReduce", sendbuf, recvbuf, stream, count, datatype, None)

    def reduce(self, sendbuf, recvbuf, count, datatype, op, root, stream):
        self._add("reduce", sendbuf, recvbuf, stream, count, datatype, root)

    def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream):
        self._add("broadcast", sendbuff, recvbuff, stream, count, datatype, root)

    def check_async_error(self):
        assert not self._aborted

    def abort(self):
        """End what waits."""
        self._aborted = True
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        self._work.put(None)

    def _add(self, *call):
        self.nccl.calls().append((self, *call))

    def enqueue(self, name, given, made, stream, count, datatype, root):
        """Let the stream wait for the others; called at the end of a group."""
        machine, dtype = self.machine, self.nccl.dtypes[datatype]
        stream = machine.stream_at(stream)
        assert stream.device == self.gpu == machine.current.device
        assert not stream.blocking, "the null stream would wait for other members"
        source, source_memory = machine.array_at(given, count, dtype)
        target = machine.array_at(made, count, dtype) if self._gets(name, root) else None
        sends = name != "broadcast" or self.rank == root
        _, entry = machine.enqueue(
            name,
            reads=[source_memory] if sends else [],
            writes=[] if target is None else [target[1]],
            stream=stream,
        )
        waiting = Waiting()
        with machine.lock:
            machine.waiting[entry] = waiting
        self._work.put((waiting, name, root, source.copy(), target and target[0]))

    def _gets(self, name, root):
        return name != "reduce" or self.rank == root

    # ---- as the GPU does it

    def _serve(self):
        broken = False
        while (call := self._work.get()) is not None:
            waiting, name, root, given, target = call
            try:
                found = None if broken else self._exchange(name, root, given)
            except OSError:
                broken, found = True, None  # it waits forever, as do those behind it
            if found is not None and target is not None:
                target[...] = found
            if not broken:
                waiting.done.set()
        with self.machine.lock:
            for waiting in self.machine.waiting.values():
                waiting.done.set()

    def _exchange(self, name, root, given):
        """The first rank takes everything, adds it up, and sends everybody the result."""
        if self.rank:
            self._peers[0].sendall(given.tobytes())
            return self._received(self._peers[0], given)
        values = [given, *(self._received(peer, given) for peer in self._peers)]
        total = values[root] if name == "broadcast" else values[-1].copy()
        for value in values[-2::-1] if name != "broadcast" else ():  # an order of its own
            total = total + value
        for peer in self._peers:
            peer.sendall(total.tobytes())
        return total

    def _received(self, peer, like):
        data = bytearray()
        while len(data) < like.nbytes:
            part = peer.recv(like.nbytes - len(data))
            if not part:
                raise ConnectionResetError
            data += part
        return np.frombuffer(data, like.dtype)
