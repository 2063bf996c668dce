"""Streams, events and memory of GPUs that do not exist: who could see what, and when.

What is enqueued is done at once, but noted as if it took time. Every piece of work is an entry
``(stream, number)``, and every stream knows how far it has come to be ordered behind the others
(a vector clock). Reading or writing what another stream wrote without such an order is a
:class:`Race`, as is memory that is used again while somebody may still use it.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import weakref
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

__all__ = ["CaptureError", "Event", "Machine", "Memory", "Race", "Stream"]


class Race(AssertionError):
    """On a real GPU the result would depend on who is faster."""


class CaptureError(RuntimeError):
    """Something that a stream cannot do while it only notes what it is told."""


class Clock(defaultdict):
    """How far each stream is known to have come, by the stream's number."""

    def __init__(self, known=()):
        super().__init__(int, known)

    def join(self, other):
        for stream, count in other.items():
            self[stream] = max(self[stream], count)

    def covers(self, stream, count):
        return self.get(stream, 0) >= count


class Current(threading.local):
    """What is current on a thread: a device, a stream of every device, and a pool of memory."""

    def __init__(self):
        self.device = 0
        self.streams = {}
        self.pool = None


class Machine:
    """Some GPUs of one process.

    Args:
        count: how many.

    Attributes:
        log: what was enqueued, in order: (device, stream, name of the work).
        reads: names of what made the host wait for a value.
        allocated: how often memory was.
        unordered: names of what added up floating point numbers by atomic operations.
        waiting: what streams do that waits for other processes, by (stream, number).
    """

    def __init__(self, count):
        self.count = count
        self.lock = threading.RLock()
        self.host = Clock()
        self.current = Current()
        self.streams = []
        self.log = []
        self.reads = []
        self.unordered = []
        self.allocated = 0
        self.pending = []
        self.waiting = {}
        self.addresses = weakref.WeakValueDictionary()
        self.nulls = [Stream(self, device, "null") for device in range(count)]

    def stream(self):
        """The current stream of the current device."""
        device = self.current.device
        return self.current.streams.get(device, self.nulls[device])

    def stream_at(self, ptr):
        """The stream with an address."""
        return self.streams[ptr - 1]

    def array_at(self, ptr, count, dtype):
        """The elements from an address on, and whose memory it is.

        Raises:
            KeyError: no array that lives begins there.
        """
        array = self.addresses[ptr]
        owner = array._host
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        assert array._host.dtype == dtype
        end = owner.ctypes.data + owner.nbytes
        assert ptr + count * dtype.itemsize <= end, "beyond the end of the array"
        place = (ctypes.c_char * (end - ptr)).from_address(ptr)
        place.owner = owner  # it lives as long as somebody has elements of it
        return np.frombuffer(place, dtype, count), array._memory

    def enqueue(self, name, reads=(), writes=(), stream=None, again=None, logged=True):
        """Note a piece of work; returns its stream and number.

        Args:
            name: for messages and the log.
            reads: memory.
            writes: memory.
            stream: None: the current one.
            again: does it, when a graph that it was captured in is launched.
            logged: whether the log has it.

        Raises:
            Race: it reads or writes what another stream may still write or read.
            CaptureError: the stream is captured, and this cannot be.
        """
        with self.lock:
            stream = stream or self.stream()
            if stream.capture is not None:
                stream.capture.note(name, reads, writes, again)
                return stream, (stream.number, 0)
            stream.begin()
            for memory in reads:
                memory.check(name, stream, write=False)
            for memory in writes:
                memory.check(name, stream, write=True)
            entry = stream.number, stream.clock[stream.number]
            for memory in reads:
                memory.uses[stream.number] = entry[1]
            for memory in writes:
                memory.written, memory.uses = entry, dict([entry])
            if logged:
                self.log.append((stream.device, stream.name, name))
            return stream, entry

    def perform(self, name, reads, writes, work):
        """Enqueue work on what is there already; while it is captured nothing happens."""
        stream, _ = self.enqueue(name, reads, writes, again=work)
        if stream.capture is None:
            work()

    def from_host(self, what):
        """Note that the host gives something to a kernel or a copy, which a graph would repeat.

        Raises:
            CaptureError: the current stream is captured.
        """
        if self.stream().capture is not None:
            raise CaptureError(f"{what} takes values of the host, which a graph would not look at")

    def waits_for(self, clock):
        """What other processes must do their part of before work that a clock covers is done."""
        with self.lock:
            return [found for entry, found in self.waiting.items() if clock.covers(*entry)]

    def wait(self, clock, name):
        """The host waits until all work that a clock covers is done."""
        for found in self.waits_for(clock):
            found.done.wait()
        with self.lock:
            self.host.join(clock)
            self.reads.append(name)
            done = [item for item in self.pending if self.host.covers(*item[0])]
            self.pending = [item for item in self.pending if not self.host.covers(*item[0])]
        for _, out, value in done:
            if out() is None:
                raise Race("page-locked memory was given away before the copy into it was done")
            np.copyto(out(), value)

    def synchronize(self):
        """The host waits for everything."""
        for stream in list(self.streams):
            self.wait(stream.clock, "device")


class Stream:
    """A queue of work of one device.

    Args:
        machine: the GPUs.
        device: index of the GPU.
        name: for messages and the log.
        blocking: whether it and the null stream wait for each other.
    """

    def __init__(self, machine, device, name="", blocking=True):
        with machine.lock:
            self.number = len(machine.streams)
            machine.streams.append(self)
        self.machine, self.device, self.blocking = machine, device, blocking
        self.name = name or f"stream {self.number}"
        self.clock = Clock()
        self.freed = defaultdict(list)
        self.capture = None

    @property
    def is_null(self):
        return self is self.machine.nulls[self.device]

    def begin(self):
        """Another piece of work begins: behind all that was enqueued here and that it waits for."""
        null = self.machine.nulls[self.device]
        if self.is_null:
            for other in self.machine.streams:
                if other.device == self.device and other.blocking:
                    self.clock.join(other.clock)
        elif self.blocking:
            self.clock.join(null.clock)
        self.clock.join(self.machine.host)
        self.clock[self.number] += 1

    def knows(self, entry):
        """Whether a piece of work is sure to be done before the next one here."""
        return self.clock.covers(*entry) or self.machine.host.covers(*entry)


@dataclass
class Event:
    """A point of a stream."""

    clock: Clock | None = None
    number: int = field(default_factory=itertools.count(1).__next__)

    def record(self, stream):
        with stream.machine.lock:
            stream.begin()
            self.clock = Clock(stream.clock)

    def hold(self, stream):
        """Let a stream wait for it; like CUDA, one that was never recorded holds nobody."""
        with stream.machine.lock:
            stream.begin()
            stream.clock.join(self.clock or {})


class Memory:
    """A block of a pool: it belongs to the stream that was current when it was allocated.

    When it is freed the pool gives it to whoever allocates next on that stream, without waiting
    for other streams that use it.
    """

    def __init__(self, machine, device):
        self.machine, self.device = machine, device
        with machine.lock:
            self.home = machine.stream()
            if self.home.device != device:
                raise AssertionError("memory is allocated on the current device")
            self.pool = machine.current.pool
            if self.pool is None:
                self.home.begin()
            # a pool of one's own has new memory, which nobody works on
            self.written = self.home.number, self.home.clock[self.home.number] * (not self.pool)
            self.uses = dict([self.written])
            machine.allocated += 1
            if self.pool is None:
                self._take_freed()
            else:
                self._take_over()
        weakref.finalize(self, _free, self.home, vars(self)).atexit = False

    def _take_freed(self):
        for uses in self.home.freed[self.pool]:
            users = [use[0] for use in uses.items() if not self.home.knows(use)]
            if users:
                names = sorted(self.machine.streams[number].name for number in users)
                raise Race(
                    f"memory of stream {self.home.name!r} of device {self.device} was freed and is "
                    f"used again while {names} may still use it"
                )
        self.home.freed[self.pool].clear()

    def _take_over(self):
        """A graph works in memory that others used: whoever launches it must be behind them."""
        for uses in self.home.freed[self.pool]:
            for number, count in uses.items():
                self.uses[number] = max(count, self.uses.get(number, 0))
        self.home.freed[self.pool].clear()

    def check(self, name, stream, write):
        for entry in self.uses.items() if write else [self.written]:
            if not stream.knows(entry):
                other = self.machine.streams[entry[0]]
                raise Race(
                    f"{name} on stream {stream.name!r} of device {stream.device} uses what stream "
                    f"{other.name!r} of device {other.device} may still "
                    f"{'use' if write else 'write'}: no event orders them"
                )


def _free(home, block):
    home.freed[block["pool"]].append(dict(block["uses"]))
