"""How many threads the libraries of kernels have: one, while programs run."""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from threadpoolctl import ThreadpoolController

__all__ = ["one_kernel_thread"]


class _OpenBlas(NamedTuple):
    """The functions of an OpenBLAS with threads of its own, for any thread that calls.

    From version 3.8 on threadpoolctl obeys only the first thread that set a number, and ignores
    others without a word. Runs begin on any thread, and their bits depend on the limit. A call of
    the library also takes a tenth of the time, twice in every step.
    """

    get_num_threads: Any
    set_num_threads: Any


@functools.cache
def _blas_libraries() -> Sequence[Any]:
    controllers = ThreadpoolController().lib_controllers
    return [_openblas(lib) or lib for lib in controllers if lib.user_api == "blas"]


def _openblas(library: Any) -> _OpenBlas | None:
    """The functions, whose names differ from build to build; None if threads are not its own."""
    if library.internal_api != "openblas" or library.threading_layer == "openmp":
        return None
    handle = ctypes.PyDLL(library.filepath)  # calls take less time than giving up the GIL
    for prefix, suffix in itertools.product(("", "scipy_"), ("", "64_", "_64")):
        names = (f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set"))
        found = [getattr(handle, name, None) for name in names]
        if all(found):
            return _OpenBlas(*found)
    return None


class _KernelThreads:
    """The BLAS libraries' own threads, limited while at least one run goes on in the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a run may be freed, and so end, while another one begins
        self._runs: set[weakref.ref[_Run]] = set()
        self._before: list[tuple[Any, int]] = []

    def begin(self, run: _Run) -> weakref.ref[_Run]:
        """Begin a run. The object that is returned ends it, at the latest when it is freed."""
        with self._lock:
            begun = weakref.ref(run, self.end)
            self._runs.add(begun)
            for lib in _blas_libraries():
                threads = lib.get_num_threads()
                if threads != 1:
                    self._before.append((lib, threads))
                    lib.set_num_threads(1)
            return begun

    def end(self, run: weakref.ref[_Run]) -> None:
        """A run is over; the last one lifts the limit."""
        with self._lock:
            self._runs.discard(run)
            if not self._runs:
                for lib, threads in self._before:
                    lib.set_num_threads(threads)
                self._before.clear()


_kernel_threads = _KernelThreads()


class _Run:
    """A run; if an interrupt breaks off its beginning or its end, it ends when this is freed."""

    __slots__ = ("__weakref__", "_begun")

    def __enter__(self) -> None:
        self._begun = _kernel_threads.begin(self)

    def __exit__(self, *error: object) -> None:
        _kernel_threads.end(self._begun)
        del self._begun


def one_kernel_thread() -> AbstractContextManager[None]:
    """Keep BLAS to the calling thread for the time of a run.

    Replicas are what fills the processors, as in fluid, whose kernels are single-threaded by
    default. With more threads they would fight for cores, and matrix products would round
    differently on machines with another number of cores. The limit holds for the whole process,
    so of runs that overlap (in several Python threads) the last one lifts it.
    """
    return _Run()
