"""Places, device detection, and how many threads a launch on a GPU has.

``CPU_NUM`` sets how many CPU devices (replicas on threads) there are and is read when a program
is compiled, never written. ``CUDA_VISIBLE_DEVICES`` acts through the CUDA runtime and
``FLAGS_selected_gpus`` selects among what is left, as in fluid.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.errors import see

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "Place",
    "array_module",
    "available_cpus",
    "cpu_num",
    "cpu_places",
    "cuda_pinned_places",
    "cuda_places",
    "get_cuda_device_count",
    "gpu_stream",
    "grid",
    "is_compiled_with_cuda",
    "on_device",
    "on_gpus",
    "transfers",
    "why_no_gpu",
]


class Place:
    """Where a tensor lives and an operator runs; ``core.Place()`` is a container of a place.

    Example:
        >>> import dpexec as fluid
        >>> isinstance(fluid.CPUPlace(), fluid.core.Place)
        True
    """

    _held: Place | None = None

    def set_place(self, place: Place) -> None:
        """Hold another place."""
        self._held = place

    def is_cpu_place(self) -> bool:
        """Whether this is, or holds, the host's memory."""
        return isinstance(self._held or self, CPUPlace)

    def is_cuda_pinned_place(self) -> bool:
        """Whether this is, or holds, page-locked host memory."""
        return isinstance(self._held or self, CUDAPinnedPlace)

    def is_gpu_place(self) -> bool:
        """Whether this is, or holds, a GPU."""
        return isinstance(self._held or self, CUDAPlace)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), tuple(self.__dict__.items())))

    def __repr__(self) -> str:
        return type(self).__name__


class CPUPlace(Place):
    """The host's memory and processors.

    See Also:
        :class:`~dpexec.CUDAPlace`: a GPU.
        :func:`~dpexec.cpu_places`: several.
        :func:`~dpexec.cuda_places`: several GPUs.

    Example:
        >>> import dpexec as fluid
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> exe.place, fluid.CPUPlace() == fluid.CPUPlace()
        (CPUPlace, True)
    """


class CUDAPinnedPlace(Place):
    """Page-locked host memory.

    Example:
        >>> import dpexec as fluid
        >>> fluid.CUDAPinnedPlace()
        CUDAPinnedPlace
    """


class CUDAPlace(Place):
    """One GPU.

    Args:
        device_id: index among the visible GPUs.

    Raises:
        RuntimeError: there is no such GPU (fluid ends the process here; dpexec lets you catch it).

    See Also:
        :class:`~dpexec.CPUPlace`: a processor.
        :func:`~dpexec.cpu_places`: several.
        :func:`~dpexec.cuda_places`: several GPUs.

    Example:
        >>> import dpexec as fluid
        >>> has_gpu = fluid.core.get_cuda_device_count() > 0
        >>> exe = fluid.Executor(fluid.CUDAPlace(0) if has_gpu else fluid.CPUPlace())
    """

    def __init__(self, device_id: int) -> None:
        if not isinstance(device_id, (int, np.integer)):
            raise TypeError(f"the number of a GPU is an integer, but received {device_id!r:.80}")
        count = get_cuda_device_count()
        if not 0 <= device_id < count:
            reason = f"the visible GPUs are 0 to {count - 1}" if count else why_no_gpu()
            problem = f"CUDAPlace({device_id}) does not exist: {reason}"
            raise see("a-gpu-that-is-not-there", RuntimeError(problem))
        self.device_id = device_id

    def get_device_id(self) -> int:
        """The index of the GPU."""
        return self.device_id

    def __repr__(self) -> str:
        return f"CUDAPlace({self.device_id})"


@functools.cache
def _cupy() -> Any | None:
    try:
        return importlib.import_module("cupy")
    except ImportError:
        return None


@functools.cache
def get_cuda_device_count() -> int:
    """The number of GPUs that this process can use; 0 without CuPy or without a driver.

    Returns:
        The number.

    Example:
        >>> from dpexec import core
        >>> core.get_cuda_device_count() >= 0  # 0 is no error: check before asking for CUDAPlace(0)
        True
    """
    cupy = _cupy()
    if cupy is None:
        return 0
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


def is_compiled_with_cuda() -> bool:
    """Whether GPUs can be used: CuPy is installed and sees at least one.

    Returns:
        Whether a ``CUDAPlace`` can be used.

    Example:
        >>> import dpexec as fluid
        >>> place = fluid.CUDAPlace(0) if fluid.is_compiled_with_cuda() else fluid.CPUPlace()
    """
    return get_cuda_device_count() > 0


def why_no_gpu() -> str:
    """Why no GPU can be used, and what to install."""
    try:
        cupy = importlib.import_module("cupy")
    except ModuleNotFoundError:
        return "CuPy is not installed: pip install dpexec[gpu] (CUDA 13) or dpexec[gpu12] (CUDA 12)"
    except ImportError as error:
        return f"CuPy is installed, but cannot be imported: {error}"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES={visible} hides all GPUs: unset it"
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CuPy finds no GPU: {error}; see whether nvidia-smi lists one, and its driver"
    return "CuPy finds no GPU: see whether nvidia-smi lists one"


def on_gpus(places: Iterable[Place]) -> bool:
    """Whether some devices are GPUs."""
    return any(isinstance(place, CUDAPlace) for place in places)


def array_module(place: Place) -> Any:
    """``cupy`` for a GPU, ``numpy`` for everything else: the ``xp`` of every kernel."""
    return _cupy() if isinstance(place, CUDAPlace) else np


class on_device:
    """Make the GPU of a place current inside a ``with`` block; nothing on CPUs."""

    def __init__(self, place: Place) -> None:
        self._context = None
        if isinstance(place, CUDAPlace):
            self._context = array_module(place).cuda.Device(place.device_id)

    def __enter__(self) -> None:
        if self._context is not None:
            self._context.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self._context is not None:
            self._context.__exit__(*error)


@functools.cache
def gpu_stream(cupy: Any, kind: str, gpu: int, number: int) -> Any:
    """A stream of a GPU for one purpose, the same for all who ask.

    Args:
        cupy: the module.
        kind: what it is for.
        gpu: index of the GPU.
        number: tells streams of one kind apart.
    """
    with cupy.cuda.Device(gpu):
        return cupy.cuda.Stream()


@contextlib.contextmanager
def transfers(place: Place) -> Iterator[None]:
    """Copies to a GPU inside the block do not wait for its kernels, and are done at its end.

    Copies run on the stream for feeds. It reuses memory of earlier batches; runs make it wait until
    they have finished with that memory.
    """
    if not isinstance(place, CUDAPlace):
        yield
        return
    feeding = gpu_stream(array_module(place), "feed", place.device_id, 0)
    with on_device(place), feeding as stream:
        yield
        stream.synchronize()


def available_cpus() -> int:
    """CPUs that this process may use: its affinity mask, cut by the cgroup's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
    except (OSError, ValueError):
        return count or 1
    if quota != "max":
        count = min(count or 1, max(1, int(quota) // int(period)))
    return count or 1


def cpu_num(default: int) -> int:
    """The environment variable ``CPU_NUM``, or a default if it is not set.

    Raises:
        ValueError: it is not an integer.
    """
    text = os.environ.get("CPU_NUM")
    try:
        return default if text is None else int(text)
    except ValueError:
        problem = f"CPU_NUM is the number of CPU devices, but is {text!r}"
        raise see("cpu_num-that-is-no-number", ValueError(problem)) from None


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """One ``CPUPlace`` per CPU device.

    Args:
        device_count: how many; None takes ``CPU_NUM``, else the CPUs available to the process.

    Raises:
        TypeError: ``device_count`` is no integer.
        ValueError: ``CPU_NUM`` is not an integer.
    """
    count = cpu_num(available_cpus()) if device_count is None else device_count
    if not isinstance(count, (int, np.integer)):
        raise TypeError(f"the number of devices is an integer, but received {count!r:.80}")
    return [CPUPlace()] * int(count)


def cuda_places(device_ids: int | Sequence[int] | None = None) -> list[CUDAPlace]:
    """One ``CUDAPlace`` per GPU.

    Args:
        device_ids: which; None takes ``FLAGS_selected_gpus``, else all that are visible.

    Returns:
        The places in the order of ``device_ids``.

    Raises:
        AssertionError: no GPU can be used.
        ValueError: ``FLAGS_selected_gpus`` is no list of numbers.
        RuntimeError: one of these GPUs does not exist.

    See Also:
        :class:`~dpexec.CPUPlace`: a processor.
        :class:`~dpexec.CUDAPlace`: a GPU.
        :func:`~dpexec.cpu_places`: several.

    Example:
        >>> import dpexec as fluid
        >>> has_gpu = fluid.core.get_cuda_device_count() > 0
        >>> places = fluid.cuda_places() if has_gpu else fluid.cpu_places(2)
    """
    if not is_compiled_with_cuda():
        raise AssertionError(f"Not compiled with CUDA: {why_no_gpu()}")
    if device_ids is None:
        device_ids = _selected_gpus() or range(get_cuda_device_count())
    elif isinstance(device_ids, int):
        device_ids = [device_ids]
    return [CUDAPlace(i) for i in device_ids]


def _selected_gpus() -> list[int]:
    """The GPUs that ``FLAGS_selected_gpus`` names; nothing if it is not set."""
    text = os.environ.get("FLAGS_selected_gpus", "")  # noqa: SIM112 - Paddle's name
    try:
        return [int(number) for number in text.split(",")] if text else []
    except ValueError:
        raise ValueError(
            f"FLAGS_selected_gpus={text!r} is no list of numbers of GPUs such as 0,1"
        ) from None


def cuda_pinned_places(device_count: int | None = None) -> list[CUDAPinnedPlace]:
    """``device_count`` pinned places, by default as many as there are CPU devices.

    Args:
        device_count: number of places; None takes ``CPU_NUM``, else the number of processors.

    Returns:
        The places, all alike.

    Raises:
        AssertionError: no GPU can be used.

    Example:
        >>> import dpexec as fluid
        >>> has_gpu = fluid.core.get_cuda_device_count() > 0
        >>> places = fluid.cuda_pinned_places(2) if has_gpu else fluid.cpu_places(2)
        >>> len(places)
        2
    """
    if not is_compiled_with_cuda():
        raise AssertionError(f"Not compiled with CUDA: {why_no_gpu()}")
    return [CUDAPinnedPlace()] * len(cpu_places(device_count))


_THREADS, _MOST_BLOCKS = 256, 4096


def grid(n: int) -> tuple[tuple[int], tuple[int]]:
    """Blocks and threads for a loop over ``n`` elements."""
    return (min(-(-n // _THREADS), _MOST_BLOCKS),), (_THREADS,)
