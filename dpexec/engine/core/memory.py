"""How the process keeps the memory that kernels free, and looks for cycles in the rest."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import itertools
import threading
import weakref
from collections.abc import Iterator
from typing import TypeVar

__all__ = ["count_memory", "free_unreachable", "keep_freed_memory", "no_cycles_sought"]

_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD, _M_TOP_PAD = -3, -1, -2
_LARGEST_REUSED = 32 << 20
_KEPT = 1 << 30
_GROWTH = 64 << 20
_LEAST_SOUGHT = 256 << 20  # bytes of engines below which nobody looks for those that are left
_WORTH_IT = 16 << 20  # the same, when it is known that an engine has become unreachable
_FEW = 16  # such engines with less memory that may wait for the next search

Owner = TypeVar("Owner")


@functools.cache
def keep_freed_memory() -> bool:
    """Let glibc reuse large blocks instead of handing them back to the kernel.

    A training step frees and takes the same blocks again and again; by default glibc maps each
    block above 128 KiB anew, and the page faults cost more than the arithmetic on it (measured on
    a virtual machine: a convolution of 64 images of 28x28 in 1.0 ms instead of 4.4). Up to 1 GiB
    that was freed stays with the process.

    Returns:
        Whether the C library has these settings.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    settings = (
        (_M_MMAP_THRESHOLD, _LARGEST_REUSED),
        (_M_TRIM_THRESHOLD, _KEPT),
        (_M_TOP_PAD, _GROWTH),
    )
    results = [mallopt(option, value) for option, value in settings]
    return all(result == 1 for result in results)


@contextlib.contextmanager
def no_cycles_sought() -> Iterator[None]:
    """Create many objects that stay, without the garbage collector's search for cycles.

    The collector would visit all of them again and again: that was half of the time to compile a
    program of 10,000 operators. Afterwards they belong to the oldest generation, so that
    collections of young objects skip them, too.
    """
    with _turning:
        _paused.append(gc.isenabled())
        gc.disable()
    try:
        yield
    finally:
        with _turning:
            if _paused.pop():  # of several threads the last one to leave turns it on again
                if not _others_froze():
                    gc.freeze()
                    gc.unfreeze()
                gc.enable()


_turning = threading.RLock()
_paused: list[bool] = []  # whether the search was on, for each call that has not ended
_frozen = threading.Event()  # set once somebody was seen to keep objects frozen


def _others_froze() -> bool:
    """Whether other code keeps objects frozen, which ``gc.unfreeze`` would thaw.

    Python counts frozen objects one by one (2.5 million take 20 ms), so they are counted until
    there are some. If they are thawed later, new objects merely stay in the young generation.
    """
    if not _frozen.is_set() and gc.get_freeze_count():
        _frozen.set()
    return _frozen.is_set()


class _Counted:
    """Memory of all engines, and when to look for engines that are unreachable.

    Engines, programs and variables refer to each other, so only Python's search for cycles frees
    them. That search goes by the number of objects, not by their size: a loop over programs of a
    million parameters kept hundreds of megabytes of those before.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self.limit = _LEAST_SOUGHT

    def add(self, owner: object, nbytes: int) -> None:
        self.nbytes += nbytes
        weakref.finalize(owner, self._subtract, nbytes).atexit = False
        if self.nbytes > self.limit:
            gc.collect()
            self.limit = max(_LEAST_SOUGHT, 2 * self.nbytes)

    def _subtract(self, nbytes: int) -> None:
        self.nbytes -= nbytes


_counted = _Counted()
_left = itertools.count(1)


def count_memory(owner: Owner, nbytes: int) -> Owner:
    """Count memory of an engine; when the total has doubled, unreachable engines are freed.

    Args:
        owner: a new array; its memory counts until the array is freed.
        nbytes: how many bytes it has.

    Returns:
        The owner.
    """
    _counted.add(owner, nbytes)
    return owner


def free_unreachable() -> None:
    """Called when an engine has just become unreachable; frees it if that is worth a search.

    It is if engines have much memory, and after every few of them: they may hold descriptors.
    """
    if _counted.nbytes > _WORTH_IT or next(_left) % _FEW == 0:
        gc.collect()
