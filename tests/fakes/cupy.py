"""A module with CuPy's names whose GPUs do not exist; see streams.py and arrays.py."""

from __future__ import annotations

import contextlib
import types

import numpy as np

from tests.fakes import arrays, streams
from tests.fakes.arrays import NAMES, ndarray, refuse_unknown
from tests.fakes.cublas import Cublas
from tests.fakes.graphs import Capture, MemoryPool
from tests.fakes.nccl import Nccl
from tests.fakes.raw import RawKernel
from tests.fakes.streams import CaptureError

__all__ = ["install", "make_cupy"]


class Ufunc:
    """A ufunc with the methods that CuPy's have."""

    def __init__(self, name):
        self.__name__ = name
        self._function = getattr(np, name)

    def __call__(self, *args, **kwargs):
        refuse_unknown(self.__name__, ["out", "dtype", "where", "casting"], kwargs)
        return arrays.call(self.__name__, self._function, args, kwargs)

    def at(self, a, indices, b=None):
        if self.__name__ not in arrays.AT_TYPES:
            raise NotImplementedError(f"{self.__name__}.at")
        arrays.at(self.__name__, self._function, a, indices, b)

    def reduce(self, array, axis=0, dtype=None, out=None, keepdims=False):
        names = {"add": "sum", "multiply": "prod"}
        if self.__name__ not in names:
            raise NotImplementedError(f"{self.__name__}.reduce")
        return getattr(array, names[self.__name__])(axis, dtype, out, keepdims)

    def reduceat(self, array, indices, axis=0, dtype=None, out=None):
        raise NotImplementedError(
            f"{self.__name__}.reduceat; that of add subtracts sums of all elements before, and has "
            f"their rounding errors"
        )


def _function(name):
    known = NAMES["functions"][name]

    def function(*args, **kwargs):
        refuse_unknown(name, known, kwargs)
        if name in ("sort", "argsort") and kwargs.get("kind") not in (None, "stable"):
            raise ValueError(f"cupy.{name} is stable, and takes no other kind")
        kwargs.pop("blocking", None)
        if name in ("array", "asarray", "ascontiguousarray"):
            return _as_array(name, *args, **kwargs)
        return arrays.call(name, getattr(np, name), args, kwargs)

    function.__name__ = name
    return function


def _as_array(name, value, dtype=None, **options):
    """From the host always a copy; from another GPU, too."""
    if isinstance(value, ndarray):
        if name == "array" or value._memory.device != value.machine.current.device:
            value = value.copy()
        return arrays.call(name, getattr(np, name), (value, dtype), options)
    ndarray.machine.from_host(name)
    return arrays.call(name, np.array, (value, dtype), options)


class Module(types.ModuleType):
    """``cupy``: only what the real one has."""

    ndarray = ndarray
    RawKernel = RawKernel

    def __init__(self, machine):
        super().__init__("cupy")
        self.__version__ = NAMES["version"]
        self.cuda = Cuda(machine)

    def get_default_memory_pool(self):
        return MemoryPool()

    def __getattr__(self, name):
        if name in NAMES["ufuncs"]:
            found = Ufunc(name)
        elif name in NAMES["functions"] and hasattr(np, name):
            found = _function(name)
        elif name in NAMES["other"] and hasattr(np, name):
            found = getattr(np, name)
        else:
            raise AttributeError(f"module 'cupy' has no attribute {name!r}")
        setattr(self, name, found)
        return found


class Device:
    """A GPU, as context."""

    machine = None

    def __init__(self, device=None):
        device = self.machine.current.device if device is None else device
        self.id = int(getattr(device, "id", device))
        if not 0 <= self.id < self.machine.count:
            raise DriverError("cudaErrorInvalidDevice: invalid device ordinal")
        self._before = []

    def __enter__(self):
        self._before.append(self.machine.current.device)
        self.machine.current.device = self.id
        return self

    def __exit__(self, *error):
        self.machine.current.device = self._before.pop()

    @property
    def compute_capability(self):
        return self.machine.capability

    @property
    def pci_bus_id(self):
        return f"{self.machine.slots}:{self.id:02x}.0"

    def use(self):
        self.machine.current.device = self.id

    def synchronize(self):
        for queue in self.machine.streams:
            if queue.device == self.id:
                self.machine.wait(queue.clock, "device")

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self):
        return self.id


class DriverError(RuntimeError):
    """``cupy.cuda.runtime.CUDARuntimeError``."""


class Stream:
    """A stream of the device that is current when it is made."""

    machine = None

    def __init__(self, null=False, non_blocking=False, ptds=False, priority=None):
        device = self.machine.current.device
        if null:
            self._queue = self.machine.nulls[device]
        else:
            self._queue = streams.Stream(self.machine, device, blocking=not non_blocking)
        self.device_id = device
        self.ptr = self._queue.number + 1
        self._before = []

    def __enter__(self):
        current = self.machine.current
        if current.device != self.device_id:
            raise RuntimeError(
                f"The device that the stream is created on ({self.device_id}) does not match with "
                f"the current device ({current.device})"
            )
        self._before.append(current.streams.get(self.device_id))
        current.streams[self.device_id] = self._queue
        return self

    def __exit__(self, *error):
        before = self._before.pop()
        self.machine.current.streams[self.device_id] = before or self.machine.nulls[self.device_id]

    def record(self, event=None):
        event = event or Event()
        event._event.record(self._queue)
        event._when = self.machine.tick()
        return event

    def wait_event(self, event):
        event._event.hold(self._queue)

    def synchronize(self):
        self.machine.wait(self._queue.clock, "stream")

    def begin_capture(self, mode=None):
        assert self._queue.capture is None
        if self._queue.is_null or self._queue.blocking:
            raise CaptureError("work of anybody on the null stream would break this capture")
        self._queue.capture = Capture(self.machine)

    def end_capture(self):
        capture, self._queue.capture = self._queue.capture, None
        return capture.graph()


class Event:
    """A point of a stream; its time is the number of what was enqueued before it."""

    machine = None

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self._event = streams.Event()
        self._timed, self._when = not disable_timing, None

    def record(self, stream=None):
        (stream or current_stream(self.machine)).record(self)

    def synchronize(self):
        self.machine.wait(self._event.clock or streams.Clock(), "event")

    @property
    def done(self):
        """Whether the host sees that it has happened; what waits for nobody, only if it waited."""
        clock = self._event.clock or streams.Clock()
        found = self.machine.waits_for(clock)
        if found and all(waiting.done.is_set() for waiting in found):
            self.machine.wait(clock, "query")
        return all(self.machine.host.covers(*entry) for entry in (self._event.clock or {}).items())


def current_stream(machine):
    """The current stream of the current device as CuPy gives it."""
    made = Stream.__new__(Stream)
    made._queue, made._before = machine.stream(), []
    made.device_id, made.ptr = made._queue.device, made._queue.number + 1
    return made


class Nvtx:
    """``cupy.cuda.nvtx``: remembers the names."""

    available = True

    def __init__(self):
        self.ranges, self.open = [], 0

    def RangePush(self, message, id_color=-1):
        self.ranges.append(message)
        self.open += 1

    def RangePop(self):
        self.open -= 1


class Cuda(types.ModuleType):
    """``cupy.cuda``."""

    def __init__(self, machine):
        super().__init__("cupy.cuda")
        for kind in (Device, Stream, Event):
            kind.machine = machine  # those of the latest module
            setattr(self, kind.__name__, kind)
        self.runtime = types.SimpleNamespace(
            CUDARuntimeError=DriverError,
            getDeviceCount=lambda: machine.count,
            CUDA_R_32F=0,
            CUDA_R_64F=1,
            CUDA_R_16F=2,
            CUDA_R_16BF=14,
        )
        self.nvtx, self.MemoryPool = Nvtx(), MemoryPool
        self.nccl, self.cublas = Nccl(machine), Cublas(machine)
        self.get_cublas_handle = lambda: machine.current.device
        self._machine = machine

    def get_current_stream(self):
        return current_stream(self._machine)

    def get_elapsed_time(self, start, end):
        """Milliseconds: a thousandth for everything that was enqueued between."""
        if not (start._timed and end._timed and start.done and end.done):
            raise DriverError("cudaErrorInvalidResourceHandle or cudaErrorNotReady")
        return (end._when - start._when) * 1e-3

    @contextlib.contextmanager
    def using_allocator(self, allocator=None):
        current = self._machine.current
        before, current.pool = current.pool, getattr(allocator, "__self__", None)
        try:
            yield
        finally:
            current.pool = before

    def alloc_pinned_memory(self, size):
        return bytearray(size)


class Machine(streams.Machine):
    """The GPUs with the module that drives them."""

    def __init__(self, count):
        super().__init__(count)
        self.capability, self.slots = "90", "0000:00"
        ndarray.machine = self
        self.module = Module(self)

    def device_object(self, number):
        return self.module.cuda.Device(number)

    def tick(self):
        return len(self.log)


def make_cupy(count):
    """A module to be used as ``cupy``; its ``machine`` tells what was enqueued.

    Args:
        count: number of GPUs.
    """
    machine = Machine(count)
    machine.module.machine = machine
    return machine.module


def install(monkeypatch, count, nccl=False):
    """Let dpexec find such GPUs; returns the module.

    Args:
        monkeypatch: pytest's fixture.
        count: number of GPUs.
        nccl: whether NCCL is installed.
    """
    module = make_cupy(count)
    module.cuda.nccl.available = nccl
    monkeypatch.setattr("dpexec.engine.core.places._cupy", lambda: module)
    monkeypatch.setattr("dpexec.engine.core.places.get_cuda_device_count", lambda: count)
    for own in ("convolutions", "cublaslt"):  # libraries of real GPUs know nothing of these
        monkeypatch.setattr(f"dpexec.engine.kernels.gpu.{own}.library", lambda: None)
    monkeypatch.setattr(
        "dpexec.engine.kernels.gpu.cublas.library", lambda cupy: cupy.cuda.cublas.functions
    )
    return module
