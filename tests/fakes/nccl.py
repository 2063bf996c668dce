"""``cupy.cuda.nccl`` without GPUs: calls of a group meet, and run when the group ends.

What would hang or give garbage on real GPUs is an error: calls outside of a group from one thread
for several GPUs, ranks that are left out, calls that differ, a stream of another GPU.
"""

from __future__ import annotations

import threading
from collections import defaultdict

import numpy as np

from tests.fakes.nccl_peers import Peer, unique_id

__all__ = ["Nccl"]

_TYPES = {
    "NCCL_FLOAT16": 6,
    "NCCL_FLOAT32": 7,
    "NCCL_FLOAT64": 8,
    "NCCL_INT32": 2,
    "NCCL_INT64": 4,
}
_COMBINE = (np.add, np.multiply, np.maximum, np.minimum)
_KINDS = {6: "f2", 7: "f4", 8: "f8", 2: "i4", 4: "i8"}


class _Communicator:
    """One rank; calls are methods with the parameters that CuPy's have."""

    def __init__(self, group, rank, gpu):
        self._group, self.rank, self._gpu = group, rank, gpu

    def device_id(self):
        return self._gpu

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        self._add("allReduce", sendbuf, recvbuf, stream, count, datatype, op, None)

    def reduce(self, sendbuf, recvbuf, count, datatype, op, root, stream):
        self._add("reduce", sendbuf, recvbuf, stream, count, datatype, op, root)

    def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream):
        self._add("broadcast", sendbuff, recvbuff, stream, count, datatype, 0, root)

    def _add(self, name, given, made, stream, *what):
        self._group.nccl.calls().append((self, (name, *what), given, made, stream))


class _Clique:
    """Communicators that were made together."""

    def __init__(self, nccl, gpus):
        self.nccl, self.gpus = nccl, gpus
        self.ranks = [_Communicator(self, rank, gpu) for rank, gpu in enumerate(gpus)]

    def run(self, calls):
        """One collective: the calls of all ranks."""
        (what,) = {call[1] for call in calls}
        name, count, kind, op, root = what
        machine, dtype = self.nccl.machine, self.nccl.dtypes[kind]
        streams = [machine.stream_at(call[4]) for call in calls]
        assert [stream.device for stream in streams] == self.gpus
        given = [machine.array_at(call[2], count, dtype) for call in calls]
        sources = [root] if name == "broadcast" else range(len(calls))
        with machine.lock:
            for rank in sources:
                machine.enqueue(name, reads=[given[rank][1]], stream=streams[rank])
            value = given[sources[0]][0].copy()
            for rank in list(sources)[:0:-1]:  # an order of its own
                value = _COMBINE[op](value, given[rank][0])
            for rank in range(len(calls)) if name != "reduce" else [root]:
                for source in sources:  # what comes from there has been computed
                    streams[rank].clock.join(streams[source].clock)
                host, memory = machine.array_at(calls[rank][3], count, dtype)
                machine.enqueue(name, writes=[memory], stream=streams[rank])
                host[...] = value


class Nccl:
    """The module.

    Args:
        machine: the GPUs.

    Attributes:
        done: the collectives that ran: a list of their names for every group.
    """

    available = True
    NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN = range(4)

    def __init__(self, machine):
        self.machine, self.done = machine, []
        self._local = threading.local()
        self._busy = threading.Lock()
        vars(self).update(_TYPES)
        self.dtypes = {number: np.dtype(kind) for number, kind in _KINDS.items()}
        self.get_unique_id = unique_id
        made = {"initAll": self._init_all, "__new__": lambda cls, *args: Peer(self, *args)}
        self.NcclCommunicator = type("NcclCommunicator", (), made)

    def get_version(self):
        return 23000

    def _init_all(self, devices):
        assert isinstance(devices, list) and len(set(devices)) == len(devices)
        return _Clique(self, devices).ranks

    def calls(self):
        """Those of the group that this thread has begun."""
        found = getattr(self._local, "calls", None)
        assert found is not None, "outside of a group the first rank waits for the second forever"
        return found

    def groupStart(self):
        assert self._busy.acquire(blocking=False), "two threads use the same communicators"
        self._local.calls = []

    def groupEnd(self):
        calls, self._local.calls = self._local.calls, None
        try:
            by_clique = defaultdict(list)
            peers = [call for call in calls if isinstance(call[0], Peer)]
            for peer, *call in peers:
                peer.enqueue(*call)
            if peers:
                self.done.append([call[1] for call in peers])
                return
            for call in calls:
                by_clique[call[0]._group, call[0].rank].append(call)
            cliques = dict.fromkeys(clique for clique, _ in by_clique)
            for clique in cliques:
                rows = [by_clique[clique, rank.rank] for rank in clique.ranks]
                for together in zip(*rows, strict=True):  # else a rank is missing
                    clique.run(together)
            self.done.append([call[1][0] for call in calls if call[0].rank == 0])
        finally:
            self._busy.release()
