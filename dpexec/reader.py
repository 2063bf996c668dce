"""``fluid.io.DataLoader`` and ``fluid.io.PyReader``: loaders that prefetch batches in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from dpexec.data_feeder import DataFeeder
from dpexec.dataset import DatasetBase
from dpexec.engine.arguments.converted import as_integer
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.places import CPUPlace, Place
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.ir.variable import Variable
from dpexec.reading.batches import default_collate_fn, stacked
from dpexec.reading.datasets import DatasetLoader
from dpexec.reading.loaders import GeneratorLoader, Reader
from dpexec.reading.operators import append_read
from dpexec.reading.samples import BatchSampler, Dataset, batches_of

__all__ = ["DataLoader", "GeneratorLoader", "ProgramReader", "PyReader", "default_collate_fn"]


class DataLoader:
    """Iterates over batches of a data set as feeds; its methods create other kinds of loaders.

    Args:
        dataset: the data set that holds the samples.
        feed_list: the variables that are fed.
        places: the devices that are fed.
        return_list: yield lists of tensors instead of dicts.
        batch_sampler: yields the indices of each batch; None makes one from the next three options.
        batch_size: number of samples per batch.
        shuffle: draw a new order with ``np.random`` for every iteration.
        drop_last: drop the last batch if it is smaller.
        collate_fn: turns a list of samples into one array per variable; None stacks the samples.
        num_workers: number of processes that load samples; 0 loads them in a thread of this
            process. The order of batches does not depend on it.
        use_buffer_reader: copy batches to GPUs in advance.
        use_shared_memory: ignored; accepted for compatibility.
        timeout: seconds to wait for a batch of a process; 0 waits without limit.
        worker_init_fn: called with the worker's number at the start of each process.

    Raises:
        AssertionError: an argument has a wrong type or value.

    See Also:
        :class:`~dpexec.io.PyReader`: the older one.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 2])
        ...     total = fluid.layers.reduce_sum(x)
        ...     loader = fluid.io.DataLoader.from_generator(feed_list=[x], capacity=4)
        ...     batches = lambda: ([np.full((3, 2), n, "float32")] for n in range(2))
        ...     _ = loader.set_batch_generator(batches, places=fluid.CPUPlace())
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     [exe.run(feed=feed, fetch_list=[total])[0].tolist() for feed in loader()]
        [[0.0], [6.0]]
    """

    def __init__(
        self,
        dataset: Dataset,
        feed_list: Sequence[Variable] | None = None,
        places: Any = None,
        return_list: bool = False,
        batch_sampler: BatchSampler | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        use_buffer_reader: bool = True,
        use_shared_memory: bool = True,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
    ) -> None:
        if not isinstance(dataset, Dataset):
            raise AssertionError(f"dataset is a fluid.io.Dataset, not {dataset!r}")
        if feed_list is None:
            raise AssertionError("feed_list should be set: programs are fed by name")
        if as_integer(num_workers, "num_workers") < 0:
            raise AssertionError("num_workers should be a non-negative value")
        if timeout < 0:
            raise AssertionError("timeout should be a non-negative value")
        self.dataset = dataset
        self.batch_sampler = _sampler(dataset, batch_sampler, batch_size, shuffle, drop_last)
        self.num_workers, self.return_list = num_workers, return_list
        collate = collate_fn or default_collate_fn
        batches = partial(
            batches_of,
            dataset,
            self.batch_sampler,
            collate,
            num_workers,
            timeout,
            worker_init_fn,
        )
        self._alone = not isinstance(places, (list, tuple)) or len(places) == 1
        capacity = 2 * max(num_workers, 1 if self._alone else len(places))
        self._loader = GeneratorLoader(
            feed_list, capacity, use_buffer_reader, True, return_list
        ).set_batch_generator(batches, places)

    def __len__(self) -> int:
        """The number of batches."""
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[list[Any]]:
        """Iterate over feeds: each a list with a dict (or a list of tensors) per device.

        As in fluid, with worker processes and one device the list of tensors is not nested.
        """
        feeds = iter(self._loader)
        if self.return_list and self.num_workers and self._alone:
            return (feed[0] for feed in feeds)
        return feeds

    def __call__(self) -> Iterator[list[Any]]:
        """The same as ``iter(loader)``."""
        return iter(self)

    @staticmethod
    def from_generator(
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> GeneratorLoader:
        """A loader whose data comes from a Python generator.

        Args:
            feed_list: the variables that are fed.
            capacity: number of batches to read ahead.
            use_double_buffer: also copy batches to GPUs in advance; no effect on CPUs.
            iterable: the loader is iterated over. If False, the default main program reads from the
                loader between ``start()`` and ``reset()`` when it is run without a feed.
            return_list: yield lists of tensors instead of dicts.
            use_multiprocess: run the generator in its own process (in fluid only in eager mode);
                the generator's function and the values it yields must be picklable.
            drop_last: drop the last batches if there are fewer than devices.

        Raises:
            ValueError: no capacity, or no feed_list.
            EnforceNotMet: a variable holds sequences.
        """
        return GeneratorLoader(
            feed_list,
            capacity,
            use_double_buffer,
            iterable,
            return_list,
            drop_last,
            use_multiprocess,
        )

    @staticmethod
    def from_dataset(
        dataset: DatasetBase, places: Sequence[Place], drop_last: bool = True
    ) -> DatasetLoader:
        """A loader for a data set of files; see :class:`DatasetLoader`."""
        return DatasetLoader(dataset, places, drop_last)


def _sampler(
    dataset: Dataset, given: BatchSampler | None, batch_size: int, shuffle: bool, drop_last: bool
) -> BatchSampler:
    if given is None:
        return BatchSampler(dataset, None, shuffle, batch_size, drop_last)
    if not isinstance(given, BatchSampler):
        raise AssertionError(f"batch_sampler is a BatchSampler, not {given!r}")
    if (batch_size, shuffle, drop_last) != (1, False, False):
        raise AssertionError(
            "batch_size/shuffle/drop_last should not be set when batch_sampler is given"
        )
    return given


class PyReader(GeneratorLoader):
    """The older form of :class:`DataLoader`.

    Args: as :meth:`DataLoader.from_generator`.

    Raises:
        TypeError: ``feed_list`` is no list of variables, or ``capacity`` no integer.
        ValueError: ``feed_list`` or ``capacity`` is missing.

    See Also:
        :class:`~dpexec.io.DataLoader`: the newer one.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 2])
        ...     total = fluid.layers.reduce_sum(x)
        ...     reader = fluid.io.PyReader(feed_list=[x], capacity=4, iterable=True)
        ...     samples = lambda: ([np.full(2, n, "float32")] for n in range(4))
        ...     reader.decorate_sample_generator(samples, batch_size=2, places=fluid.CPUPlace())
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     [exe.run(feed=feed, fetch_list=[total])[0].tolist() for feed in reader()]
        [[2.0], [10.0]]
    """

    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        super().__init__(feed_list, capacity, use_double_buffer, iterable, return_list)

    def decorate_sample_generator(
        self, sample_generator: Reader, batch_size: int, drop_last: bool = True, places: Any = None
    ) -> None:
        """See :meth:`GeneratorLoader.set_sample_generator`."""
        self.set_sample_generator(sample_generator, batch_size, drop_last, places)

    def decorate_sample_list_generator(self, reader: Reader, places: Any = None) -> None:
        """See :meth:`GeneratorLoader.set_sample_list_generator`."""
        self.set_sample_list_generator(reader, places)

    def decorate_batch_generator(self, reader: Reader, places: Any = None) -> None:
        """See :meth:`GeneratorLoader.set_batch_generator`."""
        self.set_batch_generator(reader, places)


class ProgramReader(PyReader):
    """The reader of ``layers.py_reader``: a :class:`PyReader` that belongs to a program.

    Args:
        reader: the program's variable that represents the reader.
        capacity: number of batches to read ahead.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     reader = fluid.layers.py_reader(4, shapes=[(-1, 2)], dtypes=["float32"])
        ...     x = fluid.layers.read_file(reader)
        ...     type(reader).__name__, x.shape
        ('ProgramReader', (-1, 2))
    """

    def __init__(self, reader: Variable, capacity: int) -> None:
        super().__init__([reader], capacity)
        self._iterable = False
        self._feed_list = []  # what it feeds is known when the program reads it
        self.reader = reader

    @property
    def name(self) -> str:
        """Name of the variable that represents the reader."""
        return self.reader.name

    def read_into(self, variables: Sequence[Variable]) -> None:
        """Let the program read a batch into variables.

        Raises:
            EnforceNotMet: the program already reads it into other variables.
        """
        if self._feed_list:
            raise EnforceNotMet(f"{self._described} is read already: a batch goes to one place")
        append_read(self.reader, variables, self._drop_last)
        self._feed_list = list(variables)
        self.reader.block.program._loaders.append(self)

    def set_sample_list_generator(self, reader: Reader, places: Any = None) -> ProgramReader:
        """See :meth:`GeneratorLoader.set_sample_list_generator`; may come before ``read_file``."""

        def batches() -> Iterator[list[LoDTensor]]:
            return stacked(DataFeeder(self._feed_list, CPUPlace()), reader)

        self.set_batch_generator(batches, places)
        return self

    def decorate_paddle_reader(self, reader: Reader) -> None:
        """See :meth:`GeneratorLoader.set_sample_list_generator`."""
        self.set_sample_list_generator(reader)

    def decorate_tensor_provider(self, func: Reader) -> None:
        """See :meth:`GeneratorLoader.set_batch_generator`."""
        self.set_batch_generator(func)
