"""Arrays on GPUs that do not exist: NumPy computes, what CuPy lacks is refused.

Functions, methods and parameters are those in ``fixtures/cupy_names.json``, which was recorded
from CuPy itself; behaviour that differs from NumPy's is imitated where dpexec could depend on it:
reductions give arrays, NumPy's arrays are no operands, ``add.at`` takes few types.
"""

from __future__ import annotations

import json
import operator
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tests.fakes.cublas import refuse_captured
from tests.fakes.operators import add_operators
from tests.fakes.streams import Memory

__all__ = ["AT_TYPES", "NAMES", "ndarray", "refuse_unknown"]

NAMES = json.loads((Path(__file__).parents[1] / "fixtures/cupy_names.json").read_text())

_EXTREMES = {"int32", "float32", "float64", "uint32", "uint64"}
AT_TYPES = {
    "add": _EXTREMES | {"float16"},
    "subtract": {"int32", "uint32"},
    "maximum": _EXTREMES,
    "minimum": _EXTREMES,
}
"""What ``ufunc.at`` takes: the types that atomic operations have."""

_ORDERED = {"maximum", "minimum"}
"""Of these the order does not matter."""

_WAITING = {"argwhere", "bincount", "flatnonzero", "nonzero", "unique"}
"""What looks at values to know the shape of its result."""

_BY_CUBLAS = {"dot", "einsum", "inner", "matmul", "outer", "tensordot", "vdot"}
"""What CuPy computes with cuBLAS."""

_VIEWS = {"T", "real", "imag", "mT"}
_PLAIN = {"dtype", "itemsize", "nbytes", "ndim", "shape", "size", "strides"}


def refuse_unknown(name, known, kwargs):
    """Raise TypeError for keyword arguments that a function of CuPy does not take."""
    takes_all = known is None or any(parameter.startswith("**") for parameter in known)
    unknown = () if takes_all else kwargs.keys() - set(known)
    if unknown:
        raise TypeError(f"cupy.{name} takes no {sorted(unknown)}")


class ndarray:
    """An array of one device.

    Args:
        host: what NumPy computed.
        memory: where it lies.
    """

    __array_priority__ = 100
    machine = None  # the GPUs; set by who makes the module

    def __init__(self, host, memory=None):
        self._host = np.asarray(host)
        self._memory = memory or Memory(self.machine, self.machine.current.device)
        if memory is None and self._memory.pool is not None:
            self._memory.pool._note(self)
        self.base = None

    @property
    def device(self):
        return self.machine.device_object(self._memory.device)

    @property
    def flags(self):
        return self._host.flags

    @property
    def data(self):
        """Its address, which imitated libraries find the array by, as long as it lives."""
        address = self._host.ctypes.data
        self.machine.addresses[address] = self
        return SimpleNamespace(ptr=address)

    def _part(self, host):
        made = ndarray(host, self._memory)
        made.base = self if self.base is None else self.base
        return made

    # ---- the host looks

    def get(self, stream=None, order="C", out=None, blocking=True):
        """A copy on the host; unless it blocks, ``out`` holds garbage until the stream is done."""
        used, entry = self.machine.enqueue("get", [self._memory], stream=stream and stream._queue)
        value = np.array(self._host, order=order)
        if blocking:
            self.machine.wait(used.clock, "get")
            if out is None:
                return value
            out[...] = value
            return out
        out = np.empty_like(value) if out is None else out
        out.view(np.uint8).fill(0xEE) if out.flags.c_contiguous and out.ndim else None
        self.machine.pending.append((entry, weakref.ref(out), value))
        return out

    def _look(self, what):
        used, _ = self.machine.enqueue(what, [self._memory])
        self.machine.wait(used.clock, what)
        return self._host

    def item(self):
        return self._look("item").item()

    def tolist(self):
        return self._look("tolist").tolist()

    def __bool__(self):
        return bool(self._look("bool"))

    def __int__(self):
        return int(self._look("int"))

    def __float__(self):
        return float(self._look("float"))

    def __index__(self):
        return operator.index(self._look("index")[()])

    def __len__(self):
        return len(self._host)

    def __iter__(self):
        return (self[index] for index in range(len(self._host)))

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed: use get()")

    def __format__(self, spec):
        return format(self._look("format")[()], spec)

    # ---- elements

    def __getitem__(self, index):
        reads = [self._memory, *_memories(index)]
        host = self._host[_in_range(_hosts(index), self.shape)]
        if isinstance(host, np.ndarray) and np.may_share_memory(host, self._host):
            return self._part(host)
        self._look_for_mask(index)
        self._host_positions(index)
        return _enqueued(
            "getitem", reads, [], lambda: self._host[_in_range(_hosts(index), self.shape)]
        )

    def _look_for_mask(self, index):
        """CuPy counts what a mask chooses, to read it and to write it."""
        if any(item.dtype == bool for item in _arrays([index])):
            self._look("mask")

    def _host_positions(self, index):
        items = index if isinstance(index, tuple) else (index,)
        if any(isinstance(item, (list, np.ndarray)) for item in items):
            self.machine.from_host("an index")

    def __setitem__(self, index, value):
        _no_numpy(value, "setitem")
        self._look_for_mask(index)
        self._host_positions(index)
        reads = [*_memories(index), *_memories(value)]
        self.machine.perform("setitem", reads, [self._memory], lambda: self._store(index, value))

    def _store(self, index, value):
        index, value = _in_range(_hosts(index), self.shape), _hosts(value)
        self._host[index] = value
        stored = self._host[index]
        wanted = np.broadcast_to(np.asarray(value, self._host.dtype), stored.shape)
        if not np.array_equal(wanted, stored, equal_nan=stored.dtype.kind == "f"):
            raise AssertionError("an element was set twice: CuPy leaves it open which value stays")

    # ---- NumPy's own functions on these arrays become CuPy's

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        function = getattr(self.machine.module, ufunc.__name__)
        if isinstance(kwargs.get("out"), tuple):
            kwargs["out"] = kwargs["out"][0] if len(kwargs["out"]) == 1 else kwargs["out"]
        return (function if method == "__call__" else getattr(function, method))(*inputs, **kwargs)

    def __array_function__(self, function, types, args, kwargs):
        return getattr(self.machine.module, function.__name__)(*args, **kwargs)

    def copy(self, order="C"):
        """A copy on the current device, whichever this one is on."""
        return _enqueued("copy", [self._memory], [], lambda: self._host.copy(order), far=True)

    def astype(self, dtype, order="K", casting=None, subok=None, copy=True):
        if not copy and self._host.dtype == dtype:
            return self
        return _enqueued("astype", [self._memory], [], lambda: self._host.astype(dtype, order))

    def set(self, arr, stream=None):
        self.machine.enqueue("set", [], [self._memory], stream and stream._queue)
        self._host[...] = arr

    def take(self, indices, axis=None, out=None):
        reads = [self._memory, *_memories(indices)]
        host, size = _hosts(indices), self.size if axis is None else self.shape[axis]
        self._host_positions(indices)
        # not mode="wrap", which takes forever for the garbage that a graph is captured with
        return _enqueued("take", reads, [], lambda: self._host.take(np.mod(host, size), axis))

    def fill(self, value):
        self[...] = value

    def scatter_add(self, slices, value):
        self.machine.module.add.at(self, slices, value)

    def __repr__(self):
        return f"<array of device {self._memory.device}, {self._host.dtype}{self._host.shape}>"


def _memories(value):
    if isinstance(value, ndarray):
        return [value._memory]
    if isinstance(value, (list, tuple)):
        return [memory for item in value for memory in _memories(item)]
    return []


def _hosts(value):
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, (list, tuple)):
        return type(value)(map(_hosts, value))
    return value


def _in_range(index, shape):
    """Positions beyond the end come in again at the beginning, which CuPy does silently."""
    items = index if isinstance(index, tuple) else (index,)
    if any(item is None or item is Ellipsis for item in items):
        return index
    found = tuple(
        item % size if isinstance(item, np.ndarray) and item.dtype.kind in "iu" else item
        for item, size in zip(items, shape, strict=False)
    )
    return found if isinstance(index, tuple) else found[0]


def _no_numpy(value, name):
    if isinstance(value, np.ndarray):
        raise TypeError(f"{name}: Unsupported type {np.ndarray}")
    if isinstance(value, (list, tuple)):
        for item in value:
            _no_numpy(item, name)


def _wrapped(value, arguments=()):
    """What NumPy made, as arrays of the current device; views of arguments stay views."""
    if isinstance(value, (list, tuple)):
        return type(value)(_wrapped(item, arguments) for item in value)
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    for argument in arguments:
        if value is argument._host:
            return argument
        if isinstance(value, np.ndarray) and np.may_share_memory(value, argument._host):
            return argument._part(value)
    return ndarray(value)


def _arrays(values):
    found = []
    for value in values:
        if isinstance(value, ndarray):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _arrays(value)
    return found


def _enqueued(name, reads, writes, call, arguments=(), far=False):
    """Do something at once, and note it; views and empty arrays are nothing that GPUs do."""
    machine = ndarray.machine
    capture = machine.stream().capture
    if capture is not None:
        capture.keep(array._host for array in arguments if array._memory in writes)
    with np.errstate(all="ignore"):
        value = call()
    made = _wrapped(value, arguments)
    new = [array._memory for array in _arrays([made]) if array._memory not in reads]
    if capture is not None:
        capture.made += _arrays([made]) if new else []
    if not (new or writes) or name in ("empty", "empty_like"):
        return made
    for memory in () if far else (*reads, *writes):
        if memory.device != machine.current.device:
            raise AssertionError(
                f"{name} runs on device {machine.current.device}, but an array is on device "
                f"{memory.device}"
            )
    hosts = [array._host for array in _arrays([made])]
    machine.enqueue(name, reads, [*writes, *new], again=lambda: _again(call, hosts))
    return made


def _again(call, hosts):
    """Compute once more, into the same memory."""
    with np.errstate(all="ignore"):
        value = call()
    values = value if isinstance(value, (list, tuple)) else [value]
    for host, item in zip(hosts, values, strict=True):
        if host is not item:
            np.copyto(host, item)


def call(name, function, args, kwargs):
    """Call a function of NumPy on arrays of the current device."""
    if name not in ("array", "asarray", "ascontiguousarray"):
        _no_numpy([*args, *kwargs.values()], name)
    given = _arrays([*args, *(v for k, v in kwargs.items() if k != "out")])
    if name in ("concatenate", "stack") and len(given) > 8:
        ndarray.machine.from_host(f"a list of {len(given)} addresses")
    if name in _BY_CUBLAS:
        refuse_captured(ndarray.machine)
    out = _arrays([kwargs.get("out")])
    hosts = [_hosts(value) for value in args]
    options = {key: _hosts(value) for key, value in kwargs.items()}
    if name in _WAITING:
        given[0]._look(name)
    if name == "bincount" and len(given) > 1:
        given[0].machine.unordered.append("bincount with weights")
    return _enqueued(
        name,
        [array._memory for array in given],
        [array._memory for array in out],
        lambda: function(*hosts, **options),
        [*out, *given],
    )


def at(name, function, target, indices, value):
    """``ufunc.at``, for the types that atomic operations have."""
    if target.dtype.name not in AT_TYPES[name]:
        known = ", ".join(sorted(AT_TYPES[name]))
        raise TypeError(f"cupy.{name}.at only supports {known}, not {target.dtype.name}")
    _no_numpy(value, name)
    reads = [*_memories(indices), *_memories(value)]
    if name not in _ORDERED and target.dtype.kind == "f":
        target.machine.unordered.append(f"{name}.at")

    def add():
        function.at(target._host, _in_range(_hosts(indices), target.shape), _hosts(value))

    ndarray.machine.perform(f"{name}.at", reads, [target._memory], add)


def _method(name, known):
    def method(self, *args, **kwargs):
        refuse_unknown(f"ndarray.{name}", known, kwargs)
        return call(name, getattr(np.ndarray, name), (self, *args), kwargs)

    return method


def _attribute(name):
    return property(lambda array: getattr(array._host, name))


def _view(name):
    return property(lambda array: array._part(getattr(array._host, name)))


def _complete():
    add_operators(ndarray)
    ndarray.__hash__ = object.__hash__
    for name, known in NAMES["methods"].items():
        if name in _PLAIN:
            setattr(ndarray, name, _attribute(name))
        elif name in _VIEWS:
            setattr(ndarray, name, _view(name))
        elif name not in vars(ndarray) and hasattr(np.ndarray, name):
            setattr(ndarray, name, _method(name, known))


_complete()
