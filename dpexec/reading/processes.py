"""Readers in separate processes, so that their Python code does not slow down the steps."""

from __future__ import annotations

import functools
import itertools
import pickle
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from typing import Any

__all__ = ["in_process"]

Reader = Callable[[], Iterable[Any]]

_LONGEST_WAIT = 0.02  # seconds that an item may wait for others to travel with
_samples: Iterator[Any] = iter(())  # in the reader's process: what is being read


def in_process(
    reader: Reader, most: int = 1, timeout: float = 0
) -> Callable[[], Generator[Any, None, None]]:
    """A reader that runs in another process.

    Every iteration starts a process with the reader's code and data (by ``loky`` and cloudpickle,
    so definitions of a script or notebook work, too), and ends it, also if the iteration is
    abandoned.

    Args:
        reader: yields picklable samples.
        most: number of samples transferred at a time.
        timeout: seconds to wait for a sample; 0 waits without limit.

    Raises:
        PicklingError: while reading: the reader, or a sample, cannot be pickled.
        RuntimeError: while reading: the process died, or a timeout expired.

    Example:
        >>> list(in_process(lambda: range(3))())
        [0, 1, 2]
    """

    def read() -> Generator[Any, None, None]:
        import loky  # takes 50 ms, which programs without such readers need not spend

        pool = loky.ProcessPoolExecutor(max_workers=1)
        try:
            pool.submit(_begin, reader).result()
            chunks = deque(pool.submit(_take, most) for _ in range(2))
            while items := pickle.loads(chunks.popleft().result(timeout or None)):
                chunks.append(pool.submit(_take, most))
                yield from items
        except pickle.PicklingError as error:
            raise pickle.PicklingError(
                f"reader {_name(reader)} runs in a process of its own, but it, or what it yields, "
                f"cannot be pickled: {_reason(error)}"
            ) from error
        except TimeoutError as error:
            raise RuntimeError(
                f"the process of reader {_name(reader)} gave nothing for {timeout:g} seconds"
            ) from error
        except BrokenExecutor as error:
            raise RuntimeError(f"the process of reader {_name(reader)} died: {error}") from error
        finally:
            pool.shutdown(wait=True, kill_workers=True)

    return read


def _begin(reader: Reader) -> None:
    global _samples
    _samples = iter(reader())


def _take(most: int) -> bytes:
    """The next samples, pickled; empty at the end."""
    end = time.monotonic() + _LONGEST_WAIT
    taken: list[Any] = []
    for sample in itertools.islice(_samples, most):
        taken.append(sample)
        if time.monotonic() > end:
            break
    try:
        return pickle.dumps(taken, pickle.HIGHEST_PROTOCOL)
    except (TypeError, AttributeError) as error:  # what pickle says of locks, local functions ...
        raise pickle.PicklingError(str(error)) from error


def _name(reader: Reader) -> str:
    if isinstance(reader, functools.partial):
        return _name(reader.func)
    return getattr(reader, "__qualname__", repr(reader))


def _reason(error: BaseException) -> str:
    """The last line of the worker's traceback, which names the cause."""
    return str(error.__cause__ or error).strip().strip('"').strip().splitlines()[-1]
