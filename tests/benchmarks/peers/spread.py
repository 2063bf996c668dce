"""Replicas of dpexec in other processes: trainers connected by ports, and workers of a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time

import numpy as np


def endpoints(meet, rank, count):
    """Addresses for the trainers of this machine; the first trainer chooses them.

    Args:
        meet: a file that does not exist at first, the same for all trainers.
        rank: of this trainer.
        count: of trainers.
    """
    if rank == 0:
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
            for one in sockets:
                one.bind(("127.0.0.1", 0))
            chosen = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
        with open(meet + ".new", "w") as file:
            json.dump(chosen, file)
        os.replace(meet + ".new", meet)
    while not os.path.exists(meet):
        time.sleep(0.01)
    with open(meet) as file:
        return json.load(file)


def part(fluid, value, rank, count):
    """A trainer's share of an array's rows, or of the sequences of a LoDTensor."""
    if isinstance(value, np.ndarray):
        size = len(value) // count
        return value[rank * size : (rank + 1) * size]
    (lengths,) = value.recursive_sequence_lengths()
    size = len(lengths) // count
    ends = np.cumsum([0, *lengths])
    first, last = rank * size, (rank + 1) * size
    rows = np.array(value)[ends[first] : ends[last]]
    return fluid.create_lod_tensor(rows, [lengths[first:last]], fluid.CPUPlace())


def cluster(workers):
    """A cluster of this machine with one thread in each worker; the client that was made last."""
    from distributed import Client

    return Client(n_workers=workers, threads_per_worker=1, dashboard_address=None)
