"""Reader decorators, as in paddle.reader and fluid.io.

A reader is a function without arguments that returns an iterable of samples; a decorator takes
readers and returns a reader. Sources: paddle.reader.decorator, paddle.batch of Paddle 1.8.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from dpexec.reading.prefetch import Prefetch, check_readers
from dpexec.reading.processes import in_process

Reader = Callable[[], Iterable[Any]]

__all__ = [
    "ComposeNotAligned",
    "Reader",
    "batch",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "map_readers",
    "multiprocess_reader",
    "shuffle",
    "xmap_readers",
]


_ENDED = object()


class ComposeNotAligned(ValueError):
    """The readers given to `compose` have different lengths.

    Example:
        >>> import dpexec as fluid
        >>> pairs = fluid.io.compose(lambda: range(2), lambda: range(3))
        >>> try:
        ...     list(pairs())
        ... except fluid.io.ComposeNotAligned:
        ...     print("one reader ended before the other one")
        one reader ended before the other one
    """


def batch(reader: Reader, batch_size: int, drop_last: bool = False) -> Reader:
    """Collect samples into lists.

    Args:
        reader: Yields samples.
        batch_size: Number of samples per list.
        drop_last: Whether to drop the last list if it is shorter.

    Returns:
        A reader of lists of samples.

    Raises:
        TypeError: ``reader`` is no function.
        ValueError: batch_size is not positive.

    See Also:
        :func:`~dpexec.io.shuffle`: another order.
        :func:`~dpexec.io.map_readers`: a function of each sample.
        :func:`~dpexec.io.buffered`: reads ahead.

    Example:
        >>> list(batch(lambda: range(5), 2)())
        [[0, 1], [2, 3], [4]]
    """
    check_readers(reader)
    size = int(batch_size)
    if size <= 0:
        raise ValueError(f"batch_size must be positive, not {batch_size}")

    def batched() -> Iterator[list[Any]]:
        samples = iter(reader())
        while chunk := list(itertools.islice(samples, size)):
            if len(chunk) == size or not drop_last:
                yield chunk

    return batched


def cache(reader: Reader) -> Reader:
    """Read all samples now, and serve them from memory afterwards.

    Args:
        reader: a function without arguments that returns an iterator over samples.

    Returns:
        A reader of the same samples.

    Raises:
        TypeError: ``reader`` is no function.

    Example:
        >>> import dpexec as fluid
        >>> reader = fluid.io.cache(lambda: iter("ab"))
        >>> list(reader()), list(reader())
        (['a', 'b'], ['a', 'b'])
    """
    check_readers(reader)
    samples = tuple(reader())
    return lambda: iter(samples)


def map_readers(func: Callable[..., Any], *readers: Reader) -> Reader:
    """Yield ``func`` applied to one sample of every reader, until the shortest reader ends.

    Args:
        func: takes a sample of each reader.
        readers: functions without arguments that return iterators over samples.

    Returns:
        A reader of the results.

    Raises:
        TypeError: an argument is no function.

    Example:
        >>> list(map_readers(max, lambda: [1, 5], lambda: [4, 2])())
        [4, 5]
    """
    check_readers(func, *readers)
    return lambda: map(func, *(reader() for reader in readers))


def _count(name: str, value: Any) -> int:
    """A number of samples, given as any integer type."""
    number = (
        value.item() if isinstance(value, np.generic | np.ndarray) and not value.ndim else value
    )
    if not isinstance(number, int | float) or number != number // 1:
        raise TypeError(f"{name} must be a whole number, but is {value!r}")
    if number < 0:
        raise ValueError(f"{name} must not be negative, but is {value!r}")
    return int(number)


def shuffle(reader: Reader, buf_size: int) -> Reader:
    """Shuffle within windows of buf_size samples, with Python's global `random`.

    Args:
        reader: a function without arguments that returns an iterator over samples.
        buf_size: number of samples that are read before they are shuffled; all fit into memory.

    Returns:
        A reader of the same samples.

    Raises:
        TypeError: buf_size is no integer.
        ValueError: the number is negative.

    See Also:
        :func:`~dpexec.io.batch`: samples to batches.
        :func:`~dpexec.io.map_readers`: a function of each sample.
        :func:`~dpexec.io.buffered`: reads ahead.

    Example:
        >>> import dpexec as fluid
        >>> sorted(fluid.io.shuffle(lambda: range(4), buf_size=10)())
        [0, 1, 2, 3]
    """
    check_readers(reader)
    buf_size = _count("buf_size", buf_size)

    def shuffled() -> Iterator[Any]:
        samples = iter(reader())
        while window := list(itertools.islice(samples, buf_size)):
            random.shuffle(window)
            yield from window

    return shuffled


def chain(*readers: Reader) -> Reader:
    """Yield the samples of the first reader, then those of the second, and so on.

    Args:
        readers: functions without arguments that return iterators over samples.

    Returns:
        A reader of all samples.

    Raises:
        TypeError: a reader is no function.

    Example:
        >>> import dpexec as fluid
        >>> list(fluid.io.chain(lambda: range(2), lambda: range(5, 7))())
        [0, 1, 5, 6]
    """
    check_readers(*readers)
    return lambda: itertools.chain.from_iterable(reader() for reader in readers)


def compose(*readers: Reader, check_alignment: bool = True) -> Reader:
    """Join one sample of every reader to one flat tuple.

    Args:
        readers: Yield tuples, or single values, which are treated as tuples of one.
        check_alignment: Whether different lengths are an error; otherwise the excess samples of
            longer readers are dropped.

    Returns:
        A reader of tuples.

    Raises:
        TypeError: a reader is no function.
        ComposeNotAligned: While reading, if one reader ends before another.

    See Also:
        :func:`~dpexec.io.batch`: samples to batches.
        :func:`~dpexec.io.shuffle`: another order.
        :func:`~dpexec.io.xmap_readers`: the same in threads.

    Example:
        >>> list(compose(lambda: [(1, 2)], lambda: [3])())
        [(1, 2, 3)]
    """
    check_readers(*readers)

    def composed() -> Iterator[tuple[Any, ...]]:
        try:
            for samples in zip(*(reader() for reader in readers), strict=check_alignment):
                parts = (sample if isinstance(sample, tuple) else (sample,) for sample in samples)
                yield tuple(itertools.chain.from_iterable(parts))
        except ValueError as error:
            if "is shorter than" in str(error) or "is longer than" in str(error):
                raise ComposeNotAligned("the readers given to compose differ in length") from error
            raise

    return composed


def firstn(reader: Reader, n: int) -> Reader:
    """Yield the first n samples.

    Args:
        reader: a function without arguments that returns an iterator over samples.
        n: largest number of samples.

    Returns:
        A reader of these samples.

    Raises:
        TypeError: n is no integer.
        ValueError: the number is negative.

    Example:
        >>> import dpexec as fluid
        >>> list(fluid.io.firstn(lambda: range(100), n=3)())
        [0, 1, 2]
    """
    check_readers(reader)
    n = _count("n", n)
    return lambda: itertools.islice(reader(), n)


def buffered(reader: Reader, size: int) -> Reader:
    """Prefetch up to ``size`` samples in a thread.

    An exception of the reader is raised where its samples are consumed.

    Args:
        reader: a function without arguments that returns an iterator over samples.
        size: largest number of samples that are read ahead.

    Returns:
        A reader of the same samples.

    Raises:
        TypeError: ``reader`` is no function.

    See Also:
        :func:`~dpexec.io.batch`: samples to batches.
        :func:`~dpexec.io.shuffle`: another order.
        :func:`~dpexec.io.xmap_readers`: the same in threads.

    Example:
        >>> import dpexec as fluid
        >>> list(fluid.io.buffered(lambda: range(4), size=2)())  # read ahead by a thread
        [0, 1, 2, 3]
    """
    check_readers(reader)

    def read_ahead() -> Iterator[Any]:
        samples = Prefetch(reader, size, name="dpexec-buffered")
        try:
            yield from samples
        finally:
            samples.close()

    return read_ahead


def xmap_readers(
    mapper: Callable[[Any], Any],
    reader: Reader,
    process_num: int,
    buffer_size: int,
    order: bool = False,
) -> Reader:
    """Map samples in threads.

    Args:
        mapper: Function of one sample; called in any of the threads.
        reader: Yields samples.
        process_num: Number of threads.
        buffer_size: Largest number of samples in flight.
        order: Ignored; samples always keep their order here, so that runs are reproducible.

    Returns:
        A reader of the results.

    Raises:
        TypeError: ``mapper`` or ``reader`` is no function.

    See Also:
        :func:`~dpexec.io.batch`: samples to batches.
        :func:`~dpexec.io.shuffle`: another order.
        :func:`~dpexec.io.buffered`: reads ahead.

    Example:
        >>> import dpexec as fluid
        >>> reader = fluid.io.xmap_readers(lambda x: x * x, lambda: range(4), 2, 4, order=True)
        >>> list(reader())
        [0, 1, 4, 9]
    """
    check_readers(mapper, reader)

    def mapped() -> Iterator[Any]:
        pool = ThreadPoolExecutor(process_num, thread_name_prefix="dpexec-xmap")
        under_way: deque[Future[Any]] = deque()
        try:
            for sample in reader():
                under_way.append(pool.submit(mapper, sample))
                if len(under_way) >= max(1, buffer_size):
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    return mapped


def multiprocess_reader(
    readers: Sequence[Reader], use_pipe: bool = True, queue_size: int = 1000
) -> Reader:
    """Read from several readers, each in its own process.

    Samples are taken from the readers in turn, so that runs are reproducible.

    Args:
        readers: yield picklable samples; readers that have ended are skipped.
        use_pipe: ignored; accepted for compatibility.
        queue_size: largest number of waiting samples.

    Returns:
        A reader.

    Raises:
        TypeError: a reader is no function.
        AssertionError: there are no readers.

    Example:
        >>> list(multiprocess_reader([lambda: range(3), lambda: "ab"])())
        [0, 'a', 1, 'b', 2]
    """
    if not readers:
        raise AssertionError("multiprocess_reader needs at least one reader")
    check_readers(*readers)
    most = max(1, min(queue_size // (2 * len(readers)), 64))

    def read() -> Iterator[Any]:
        readings = [in_process(reader, most)() for reader in readers]
        try:
            for round_ in itertools.zip_longest(*readings, fillvalue=_ENDED):
                yield from (sample for sample in round_ if sample is not _ENDED)
        finally:
            for reading in readings:
                reading.close()

    return read
