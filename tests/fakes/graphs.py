"""CUDA graphs without GPUs: what a stream is told between two calls, to be done again.

While a stream is captured nothing happens: what was overwritten has its old values afterwards,
what is new has garbage until the graph is launched.
"""

from __future__ import annotations

import weakref

from tests.fakes.streams import CaptureError

__all__ = ["Capture", "Graph", "MemoryPool"]


class MemoryPool:
    """A pool of memory of its own, by ``using_allocator(pool.malloc)``.

    What is allocated notes whose ``malloc`` it is; memory itself comes from NumPy. Graphs that were
    captured with one pool overwrite each other's results: they work in what the pool had free.
    """

    def __init__(self):
        self._graphs, self._arrays = 0, []

    def _note(self, array):
        """An array lies here, which is of the graph that is captured next."""
        self._arrays.append((weakref.ref(array), self._graphs))

    def _overwrite(self, graph):
        """A graph is launched: what others have made is lost."""
        for array, owner in self._arrays:
            if owner != graph and array() is not None:
                array()._host.fill(77)

    def malloc(self, size):
        raise AssertionError(f"{size} bytes: nobody is to allocate but through the fake arrays")

    def free_all_blocks(self, stream=None):
        """What is free goes back to the driver, which waits for who still uses it."""


class Capture:
    """What a stream notes.

    Attributes:
        made: arrays that are new.
    """

    def __init__(self, machine):
        self._machine = machine
        self._work = []
        self._before = {}
        self.made = []

    def note(self, name, reads, writes, again):
        """A piece of work; see :meth:`Machine.enqueue`."""
        if again is None:
            raise CaptureError(f"{name} while a stream is captured")
        found = ([(weakref.ref(m), m.pool) for m in memory] for memory in (reads, writes))
        self._work.append((name, *found, again))

    def keep(self, hosts):
        """Remember what arrays hold."""
        for host in hosts:
            self._before.setdefault(id(host), (host, host.copy()))

    def graph(self):
        """What was noted."""
        for array in self.made:
            array._host.fill(77)
        for host, value in self._before.values():
            host[...] = value
        self.made = []
        return Graph(self._machine, self._work, self._machine.current.pool)


class Graph:
    """``cupy.cuda.Graph``."""

    def __init__(self, machine, work, pool):
        self._machine, self._work, self._pool = machine, work, pool
        if pool is not None:
            self._number, pool._graphs = pool._graphs, pool._graphs + 1

    def launch(self, stream=None):
        queue = stream._queue if stream is not None else self._machine.stream()
        if self._pool is not None:
            self._pool._overwrite(self._number)
        for name, reads, writes, again in self._work:
            used = [[memory() for memory, _ in found] for found in (reads, writes)]
            if any(memory() is None and pool is None for memory, pool in (*reads, *writes)):
                raise AssertionError(f"{name} of a graph uses memory that may be somebody else's")
            alive = ([m for m in found if m] for found in used)
            self._machine.enqueue(name, *alive, queue, logged=False)
            again()
        self._machine.log.append((queue.device, queue.name, "graph"))
