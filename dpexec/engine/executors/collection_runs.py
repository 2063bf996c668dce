"""Epochs over Dask collections: the loop of ``Executor.train_from_dask``."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, Protocol

from dpexec.engine.arguments.converted import as_integer
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.interrupts import Uninterrupted
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.executors.dataset_runs import BatchWatcher
from dpexec.engine.feeds.partition_stream import PartitionStream, batches_of

__all__ = ["Epochs", "Steps", "run_epochs"]

Batch = Mapping[str, Any]

_AT_ONCE = 0.3
"""Seconds that steps sent together should take: an interrupt waits for them."""


class Steps(Protocol):
    """Runs steps of a program."""

    most: int
    """How many steps can run in one call."""

    def ahead(self, batches: Sequence[Batch]) -> None:
        """Announces the next batches; called in a thread while steps run on others."""

    def run(self, batches: Sequence[Batch], names: Sequence[str]) -> list[Any]:
        """Run a step with each batch; returns the last step's values of some names."""


@dataclass(frozen=True)
class Epochs:
    """How to iterate over a collection.

    Args:
        numbers: how many epochs, or their numbers in order.
        batch_size: rows of a batch, of all devices together.
        drop_last: leave out the last batch of an epoch if it is smaller.
        period: values are fetched after every so many batches; 0: after any.
        progress: whether to show a progress bar.
        after_epoch: called with the number of each epoch that has ended.

    Raises:
        TypeError: ``batch_size`` is no integer, or ``numbers`` neither a number nor numbers.
        ValueError: ``batch_size`` is not positive, or the number of epochs is negative.
    """

    numbers: int | Iterable[int]
    batch_size: int
    drop_last: bool
    period: int
    progress: bool
    after_epoch: Callable[[int], object] | None

    def __post_init__(self) -> None:
        if as_integer(self.batch_size, "batch_size") < 1:
            raise ValueError(f"batch_size must be positive, but received {self.batch_size}")
        if not isinstance(self.numbers, (int, Iterable)):
            raise TypeError(f"epochs is a number of epochs, or their numbers: not {self.numbers!r}")
        if isinstance(self.numbers, int) and self.numbers < 0:
            raise ValueError(f"epochs must not be negative, but received {self.numbers}")


def run_epochs(
    steps: Steps, stream: PartitionStream, how: Epochs, watching: Sequence[BatchWatcher]
) -> None:
    """Train on all batches of a collection.

    Args:
        steps: runs the steps.
        stream: yields the partitions.
        how: the epochs, and their batches.
        watching: they get the last one of batches that run together.

    Raises:
        EnforceNotMet: an epoch has no batch.
    """
    from tqdm import tqdm  # imported when it is used; tqdm.auto would warn in notebooks

    names = list(dict.fromkeys(name for watcher in watching for name in watcher.names))
    size, done, runs = how.batch_size, 0, _Runs(steps, how.period)
    with tqdm(unit="batch", disable=not how.progress) as bar:
        for epoch in range(how.numbers) if isinstance(how.numbers, int) else how.numbers:
            bar.set_description_str(f"epoch {epoch}")
            before = done
            batches = batches_of(stream.epoch(epoch), size, how.drop_last)
            with closing(runs.of(batches)) as found:
                for run in found:
                    began = time.monotonic()
                    values = dict(zip(names, steps.run(run, names), strict=True))
                    runs.took(len(run), time.monotonic() - began)
                    done += len(run)
                    bar.update(len(run))
                    for watcher in watching:
                        watcher.see(done - 1, values)
            if done == before:
                few = f"less than the {size} rows of a batch" if how.drop_last else "no rows"
                raise EnforceNotMet(f"there is nothing to train on: the collection has {few}")
            if how.after_epoch is not None:
                how.after_epoch(epoch)


class _Runs:
    """Groups batches that run together, which does not change results.

    Args:
        steps: runs them.
        period: a run must end after every so many batches, as values are fetched; 0: anywhere.
    """

    def __init__(self, steps: Steps, period: int) -> None:
        self._steps, self._period = steps, period
        self._count = 1
        self._done = 0

    def of(self, batches: Generator[list[Batch], None, None]) -> Generator[list[Batch], None, None]:
        """The groups of batches of an epoch.

        Args:
            batches: lists of batches that are computed together; a thread computes the next list
                meanwhile.
        """
        with closing(batches), ThreadPoolExecutor(1, "dpexec-partitions") as pool:
            context = contextvars.copy_context()  # in which a client of dask may be the current one

            def begin() -> Future[list[Batch]]:
                with Uninterrupted():  # the pool would not wait for a thread that it did not note
                    return pool.submit(context.run, self._next, batches)

            coming = begin()
            while found := coming.result():
                coming = begin()
                while found:
                    left = self._period - self._done % self._period if self._period else len(found)
                    run = found[: min(self._count, left)]
                    del found[: len(run)]
                    self._done += len(run)
                    yield run

    def _next(self, batches: Iterator[list[Batch]]) -> list[Batch]:
        """The next list of batches; empty at the end of the epoch."""
        found = next(filter(None, batches), [])
        if found:
            self._steps.ahead(found)
        return found

    def took(self, count: int, seconds: float) -> None:
        """Note the duration of a run of some batches, which limits the size of the next run."""
        fit = int(_AT_ONCE * count / max(seconds, 1e-6))
        self._count = max(1, min(fit, 2 * self._count, self._steps.most))
