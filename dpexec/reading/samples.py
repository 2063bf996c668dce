"""Data sets with indexed samples: ``fluid.io.Dataset``, ``BatchSampler``, and their batches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dpexec.reading.processes import in_process

__all__ = ["BatchSampler", "Dataset", "batches_of"]


class Dataset:
    """A data set accessed by index; subclasses define ``__getitem__`` and ``__len__``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> class Squares(fluid.io.Dataset):
        ...     def __getitem__(self, number):
        ...         return np.array([number], "float32"), np.array([number**2], "float32")
        ...
        ...     def __len__(self):
        ...         return 4
        >>> with fluid.program_guard(fluid.Program()):
        ...     x, y = fluid.data("x", [None, 1]), fluid.data("y", [None, 1])
        ...     loader = fluid.io.DataLoader(
        ...         Squares(), [x, y], places=fluid.CPUPlace(), batch_size=2, return_list=False
        ...     )
        ...     [np.array(feed[0]["y"]).ravel().tolist() for feed in loader()]
        [[0.0, 1.0], [4.0, 9.0]]
    """

    def __getitem__(self, idx: int) -> Any:
        """The sample with index ``idx``: a sequence of arrays or numbers, or one array."""
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def __len__(self) -> int:
        """The number of samples."""
        raise NotImplementedError(f"{type(self).__name__} has no __len__")


class BatchSampler:
    """Divides the indices of samples into batches.

    Args:
        dataset: the data set whose samples to divide.
        indices: indices to divide instead; give either ``dataset`` or ``indices``.
        shuffle: draw a new order with ``np.random`` for every iteration.
        batch_size: number of indices per batch.
        drop_last: drop the last batch if it is smaller.

    Raises:
        AssertionError: an argument has a wrong type or value.

    Example:
        >>> list(BatchSampler(indices=[5, 6, 7], batch_size=2))
        [[5, 6], [7]]
    """

    def __init__(
        self,
        dataset: Dataset | None = None,
        indices: Sequence[int] | None = None,
        shuffle: bool = False,
        batch_size: int = 1,
        drop_last: bool = False,
    ) -> None:
        if dataset is None:
            if indices is None:
                raise AssertionError("either dataset or indices should be set")
            if not isinstance(indices, (list, tuple)):
                raise AssertionError(f"indices are a list, not {type(indices)}")
            self.indices = list(indices)
        else:
            if not isinstance(dataset, Dataset):
                raise AssertionError(f"dataset is a fluid.io.Dataset, not {dataset!r}")
            if indices is not None:
                raise AssertionError("should not set both dataset and indices")
            self.indices = list(range(len(dataset)))
        if not isinstance(batch_size, int):
            raise AssertionError(f"batch_size is a positive int, not {batch_size!r}")
        if batch_size <= 0:
            raise AssertionError(f"batch_size is a positive int, not {batch_size}")
        for name, flag in (("shuffle", shuffle), ("drop_last", drop_last)):
            if not isinstance(flag, bool):
                raise AssertionError(f"{name} is a bool, not {flag!r}")
        self.batch_size, self.shuffle, self.drop_last = batch_size, shuffle, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate over batches of indices."""
        if self.shuffle:
            np.random.shuffle(self.indices)  # noqa: NPY002  it is what scripts seed
        end = len(self) * self.batch_size
        for begin in range(0, end, self.batch_size):
            yield self.indices[begin : begin + self.batch_size]

    def __len__(self) -> int:
        """The number of batches."""
        rest = 0 if self.drop_last else self.batch_size - 1
        return (len(self.indices) + rest) // self.batch_size


def batches_of(
    dataset: Dataset,
    sampler: BatchSampler,
    collate: Callable[[list[Any]], Any],
    workers: int = 0,
    timeout: float = 0,
    worker_init: Callable[[int], Any] | None = None,
) -> Generator[Any, None, None]:
    """The batches of a data set, in the order of the sampler.

    Args:
        dataset: the data set that holds the samples.
        sampler: yields the indices of each batch.
        collate: turns a list of samples into a batch.
        workers: number of processes, which load batches in turn; 0 loads them in this process.
        timeout: seconds to wait for a batch of a process; 0 waits without limit.
        worker_init: called with the worker's number at the start of each process.

    Raises:
        RuntimeError: a process died, or a timeout expired.
    """
    batches = list(sampler)
    if not workers:
        yield from _made(dataset, batches, collate)
        return
    parts = [batches[number::workers] for number in range(workers)]
    with contextlib.ExitStack() as stack:
        readers = []
        for number, part in enumerate(parts):
            read = in_process(
                partial(_begin, dataset, part, collate, worker_init, number), timeout=timeout
            )
            readers.append(stack.enter_context(contextlib.closing(read())))
        for index in range(len(batches)):
            yield next(readers[index % workers])


def _begin(
    dataset: Dataset,
    batches: Sequence[Sequence[int]],
    collate: Callable[[list[Any]], Any],
    worker_init: Callable[[int], Any] | None,
    number: int,
) -> Iterator[Any]:
    """Initialise a worker process."""
    if worker_init is not None:
        worker_init(number)
    return _made(dataset, batches, collate)


def _made(
    dataset: Dataset, batches: Sequence[Sequence[int]], collate: Callable[[list[Any]], Any]
) -> Iterator[Any]:
    return (collate([dataset[index] for index in batch]) for batch in batches)
