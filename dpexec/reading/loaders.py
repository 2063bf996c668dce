"""Loaders, which prefetch the batches of a Python generator and yield them as feeds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dpexec.data_feeder import DataFeeder
from dpexec.engine.core.errors import EnforceNotMet, EOFException, see
from dpexec.engine.core.places import CPUPlace, CUDAPlace, Place
from dpexec.engine.core.unique_name import UniqueNameGenerator
from dpexec.engine.feeds.coming import hand_out
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.program import default_main_program
from dpexec.engine.ir.variable import Variable
from dpexec.reading.batches import checked_array, copied, feed, stacked
from dpexec.reading.decorators import batch
from dpexec.reading.operators import append_read, create_double_buffer, create_reader
from dpexec.reading.prefetch import Prefetch, check_readers, items_of
from dpexec.reading.processes import in_process

__all__ = ["BatchQueue", "GeneratorLoader", "Reader"]

Reader = Callable[[], Iterable[Any]]

_names = UniqueNameGenerator()  # queues are named per process, whatever program they are in


class GeneratorLoader:
    """Prefetches batches in a thread and yields them as feeds.

    Args: as :meth:`DataLoader.from_generator`.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 2])
        >>> loader = fluid.io.DataLoader.from_generator(feed_list=[x], capacity=2)
        >>> rows = np.ones([5, 2], "float32")
        >>> loader = loader.set_sample_generator(  # a sample is a tuple
        ...     lambda: ((row,) for row in rows), 2, drop_last=False, places=fluid.CPUPlace()
        ... )
        >>> [np.array(feed[0]["x"]).shape for feed in loader]  # a feed for each place
        [(2, 2), (2, 2), (1, 2)]
    """

    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        drop_last: bool = True,
        use_multiprocess: bool = False,
    ) -> None:
        if not capacity:
            raise ValueError("Please give value to capacity.")
        if not feed_list:
            raise ValueError("Feed list must be given under static mode.")
        if not isinstance(feed_list, list | tuple) or any(
            not isinstance(var, Variable) for var in feed_list
        ):
            raise TypeError(f"feed_list must be a list of Variables, but is {feed_list!r}")
        if not isinstance(capacity, (int, np.integer)):
            raise TypeError(f"capacity is a number of batches, but received {capacity!r:.80}")
        self._feed_list = list(feed_list)
        self._capacity = capacity
        self._iterable = iterable
        self._return_list = return_list
        self._drop_last = drop_last
        self._use_double_buffer = use_double_buffer
        self._use_multiprocess = use_multiprocess
        self._source: Reader | None = None
        self._places: list[Place] | None = None
        self._started: Prefetch | None = None
        self._started_for: list[Place] | None = None
        if not iterable:
            self._append_to(default_main_program().global_block())

    def _append_to(self, block: Block) -> None:
        """Make a program read from this loader."""
        queue = _names("lod_tensor_blocking_queue")
        reader = create_reader(block, queue, _names("create_py_reader"), self._feed_list)
        if self._use_double_buffer:
            reader = create_double_buffer(reader, _names("double_buffer"))
        append_read(reader, self._feed_list, self._drop_last)
        block.program._loaders.append(self)

    @property
    def iterable(self) -> bool:
        """Whether the loader is iterated over, instead of started."""
        return self._iterable

    @property
    def queue(self) -> BatchQueue:
        """The queue of prefetched batches."""
        return BatchQueue(self)

    def _reading(self) -> Prefetch:
        """The current prefetcher; pushed batches need no generator."""
        if self._started is None:
            if self._iterable:
                raise AssertionError("an iterable DataLoader has a queue while it is read")
            self._started = Prefetch(None, self._capacity)
        return self._started

    @property
    def feed_names(self) -> list[str]:
        """The names of the variables that the loader feeds."""
        return [var.name for var in self._feed_list]

    # ---- where the data come from

    def set_sample_generator(
        self,
        reader: Reader,
        batch_size: int,
        drop_last: bool = True,
        places: Any = None,
    ) -> GeneratorLoader:
        """Set a generator of single samples, which are collected to batches.

        Args:
            reader: yields samples: a tuple with one field per variable.
            batch_size: number of samples per batch.
            drop_last: drop the last batch if it is smaller.
            places: the devices; needed when iterable.

        Returns:
            self.

        Raises:
            AssertionError: batch_size is not positive, or places are missing.
        """
        if batch_size <= 0:
            raise AssertionError("batch_size must be larger than 0")
        return self.set_sample_list_generator(batch(reader, batch_size, drop_last), places)

    def set_sample_list_generator(self, reader: Reader, places: Any = None) -> GeneratorLoader:
        """Set a generator of batches, each a list of samples.

        Args:
            reader: yields lists of samples.
            places: the devices; needed when iterable.

        Returns:
            self.

        Raises:
            AssertionError: places are missing.
        """
        check_readers(reader)
        feeder = DataFeeder(self._feed_list, CPUPlace())
        batches = partial(stacked, feeder, reader)
        return self.set_batch_generator(batches, places)

    _check_input_array = staticmethod(checked_array)  # fluid's name

    def set_batch_generator(self, reader: Reader, places: Any = None) -> GeneratorLoader:
        """Set a generator of batches, each a list of arrays.

        Args:
            reader: yields lists with one array or LoDTensor per variable.
            places: the devices; needed when iterable.

        Returns:
            self.

        Raises:
            TypeError: the generator is no function.
            AssertionError: places are missing.
        """
        check_readers(reader)
        if self._iterable:
            if places is None:
                raise AssertionError("Places cannot be None when DataLoader is iterable")
            self._places = list(places) if isinstance(places, (list, tuple)) else [places]
        self._source = reader
        return self

    # ---- iterable

    def __iter__(self) -> Iterator[list[Any]]:
        """Iterate over feeds: each a list with a dict (or a list of tensors) per device.

        Raises:
            AssertionError: not iterable, or no generator was set.
            EnforceNotMet: a batch has another number of fields than there are variables.
        """
        if not self._iterable:
            raise AssertionError("DataLoader is not iterable")
        if self._places is None:
            raise AssertionError("Data source of DataLoader has not set yet")
        batches = self._started = self._onto(self._prefetch(), self._places)
        return self._iterate(batches, len(self._places))

    def __call__(self) -> Iterator[list[Any]]:
        """The same as ``iter(loader)``."""
        return iter(self)

    def _iterate(self, batches: Prefetch, devices: int) -> Iterator[list[Any]]:
        try:
            while feeds := self._take(batches, devices):
                yield [list(feed.values()) for feed in feeds] if self._return_list else feeds
        finally:
            batches.close()

    # ---- not iterable: part of the program

    def start(self) -> None:
        """Start reading.

        Raises:
            AssertionError: the loader is iterable, or no generator was set.
            EnforceNotMet: the loader was started before and not reset since.
        """
        if self._iterable:
            raise AssertionError("start() cannot be called when DataLoader is iterable")
        if self._started is not None:
            raise EnforceNotMet(f"{self._described} is started already: call reset() first")
        self._started = self._prefetch()

    def reset(self) -> None:
        """Stop reading; :meth:`start` then begins anew.

        Raises:
            AssertionError: the loader is iterable.
        """
        if self._iterable:
            raise AssertionError("reset() cannot be called when DataLoader is iterable")
        if self._started is not None:
            self._started.close()
            self._started = self._started_for = None

    def next_feeds(
        self, places: Sequence[Place], prepare: Callable[..., dict[str, Any]] | None = None
    ) -> list[dict[str, Any]]:
        """A batch for each device, for the executor that runs the program.

        Args:
            places: the devices.
            prepare: called with every batch in the prefetching thread.

        Raises:
            EnforceNotMet: the loader was not started.
            EOFException: no batches are left, or with ``drop_last`` fewer than devices.
        """
        if self._started is None:
            raise EnforceNotMet(
                f"{self._described} is not started: call its start() before the program is run, "
                f"or feed {', '.join(self.feed_names)}"
            )
        if self._started_for is None:
            self._started_for = list(places)
            self._started = self._onto(self._started, places)
            if prepare is not None:
                self._started = Prefetch(partial(map, prepare, self._started), len(places))
        feeds = self._take(self._started, len(places))
        if not feeds:
            raise see("the-end-of-the-data", EOFException("There is no next data."))
        return feeds

    @property
    def _described(self) -> str:
        return f"the reader of {', '.join(self.feed_names)}"

    # ---- batches

    def _prefetch(self) -> Prefetch:
        source, names = self._source, self.feed_names
        if source is None:
            raise AssertionError("Data source of DataLoader has not set yet")
        read = in_process(source) if self._use_multiprocess else partial(items_of, source)
        return Prefetch(lambda: (feed(names, b) for b in read()), self._capacity)

    def _onto(self, batches: Prefetch, places: Sequence[Place]) -> Prefetch:
        """Copy batches to GPUs in advance, in turn."""
        if not (self._use_double_buffer and any(isinstance(p, CUDAPlace) for p in places)):
            return batches
        return Prefetch(partial(copied, batches, places), len(places))

    def _take(self, batches: Prefetch, devices: int) -> list[dict[str, Any]]:
        feeds = list(itertools.islice(batches, devices))
        for device, each in enumerate(feeds):
            hand_out(each, batches, device, devices)
        return [] if self._drop_last and len(feeds) < devices else feeds


class BatchQueue:
    """A loader's prefetched batches; programs can query its size, or push batches themselves.

    Args:
        loader: the loader that the queue belongs to.
    """

    def __init__(self, loader: GeneratorLoader) -> None:
        self._loader = loader

    def size(self) -> int:
        """The number of waiting batches; 0 before reading has started."""
        reading = self._loader._started
        return 0 if reading is None else reading.waiting()

    def capacity(self) -> int:
        """The largest number of waiting batches."""
        return self._loader._capacity

    def push(self, tensors: Iterable[Any]) -> bool:
        """Append a batch to the queue; blocks while the queue is full.

        A loader that was not started serves pushed batches only.

        Args:
            tensors: an array or LoDTensor for each variable of the loader.

        Returns:
            False if the queue is closed and the batch was dropped.

        Raises:
            AssertionError: the loader is iterable, and there is no running iteration.
            EnforceNotMet: the number of tensors differs from the number of variables.
        """
        return self._loader._reading().push(feed(self._loader.feed_names, list(tensors)))

    def close(self) -> None:
        """Accept no more batches; the data end after the waiting ones."""
        self._loader._reading().complete()

    kill = close
