"""Runs over data sets of files: ``Executor.train_from_dataset`` is a loop over ``Executor.run``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

import numpy as np

from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.ir.variable import Variable
from dpexec.engine.run.fetch import fetch_names

__all__ = ["BatchWatcher", "Dataset", "FetchHandler", "run_dataset", "watchers"]

Feed = dict[str, LoDTensor]


class Dataset(Protocol):
    """A data set that can be iterated over, such as those of :mod:`dpexec.dataset`."""

    thread_num: int

    def _feeds(self, threads: int) -> Generator[Feed, None, None]: ...


class BatchWatcher(Protocol):
    """Gets the values fetched after a batch.

    Attributes:
        names: names of variables to fetch for it.
    """

    names: Sequence[str]

    def see(self, number: int, values: Mapping[str, LoDTensor]) -> None:
        """Receive the number of a batch, and tensors by name."""


class FetchHandler:
    """Gets the values of variables from time to time; override :meth:`handler`.

    Args:
        var_dict: variables by the names under which the handler gets them.
        period_secs: seconds between two calls of the handler.

    Raises:
        TypeError: a value is not a variable.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> class Shows(fluid.executor.FetchHandler):
        ...     def handler(self, res_dict):
        ...         print({name: float(value[0]) for name, value in res_dict.items()})
        >>> with fluid.program_guard(fluid.Program()):
        ...     loss = fluid.layers.mean(fluid.data("x", [None, 2]))
        >>> shows = Shows({"loss": loss}, period_secs=10)  # for Executor.train_from_dataset
        >>> shows.handler({"loss": np.array([0.5])})
        {'loss': 0.5}
    """

    def __init__(self, var_dict: Mapping[str, Variable], period_secs: float = 60) -> None:
        for key, var in var_dict.items():
            if not isinstance(var, Variable):
                raise TypeError(f"the value of {key!r} is not a Variable, but {var!r}")
        self.var_dict = var_dict
        self.period_secs = period_secs

    def handler(self, res_dict: dict[str, np.ndarray[Any, Any]]) -> None:
        """Receive the values; this implementation prints the first element of each."""
        print(*(f"{key}[0]: {value[0]}" for key, value in res_dict.items()))


class Printing:
    """Prints the values of the last of every ``period`` batches, as the original does."""

    def __init__(self, names: Sequence[str], infos: Sequence[str], period: int) -> None:
        self.names = names
        self._infos = infos
        self._period = period

    def see(self, number: int, values: Mapping[str, LoDTensor]) -> None:
        if (number + 1) % self._period == 0:
            for name, info in zip(self.names, self._infos, strict=True):
                sys.stdout.write(f"{info}\t{name}\t{values[name]}\t\n")


class Handling:
    """Calls a handler every ``period_secs`` seconds, after a batch: its values are of one batch."""

    def __init__(self, handler: FetchHandler) -> None:
        self.names: Sequence[str] = [var.name for var in handler.var_dict.values()]
        self._handler = handler
        self._last = time.monotonic()

    def see(self, number: int, values: Mapping[str, LoDTensor]) -> None:
        if time.monotonic() - self._last < self._handler.period_secs:
            return
        tensors = {key: values[var.name] for key, var in self._handler.var_dict.items()}
        for key, tensor in tensors.items():
            if tensor.lod():
                raise RuntimeError(
                    f"{key!r} holds sequences, which no array can show: choose another variable"
                )
        self._handler.handler({key: np.array(tensor) for key, tensor in tensors.items()})
        self._last = time.monotonic()


class Pace:
    """Prints batches per second, every ``period`` batches."""

    names: Sequence[str] = ()

    def __init__(self, period: int) -> None:
        self._period = period
        self._last = time.perf_counter()

    def see(self, number: int, values: Mapping[str, LoDTensor]) -> None:
        if (number + 1) % self._period == 0:
            now = time.perf_counter()
            pace = self._period / (now - self._last)
            print(f"batch {number + 1}: {pace:.1f} batches per second")
            self._last = now


def watchers(
    fetch_list: Any,
    fetch_info: Sequence[str] | None,
    print_period: int,
    debug: bool,
    fetch_handler: FetchHandler | None,
) -> list[BatchWatcher]:
    """The watchers for the arguments of ``Executor.train_from_dataset``.

    Raises:
        AssertionError: ``fetch_info`` is not as long as ``fetch_list``.
        TypeError: an item of ``fetch_list`` is neither Variable nor name.
        ValueError: ``print_period`` is not positive.
    """
    names, infos = fetch_names(fetch_list), list(fetch_info or ())
    if len(names) != len(infos):
        raise AssertionError(
            "fetch_info must have a text for each variable of fetch_list: received "
            f"{len(infos)} for {len(names)}"
        )
    if print_period < 1:
        raise ValueError(f"print_period must be positive, but received {print_period}")
    found: list[BatchWatcher] = [Printing(names, infos, print_period)]
    if debug:
        found.append(Pace(print_period))
    if fetch_handler is not None:
        found.append(Handling(fetch_handler))
    return found


def run_dataset(
    run: Callable[[Feed, list[str]], list[Any]],
    dataset: Dataset | None,
    thread: int,
    watching: Sequence[BatchWatcher],
) -> None:
    """Run all batches of a data set, in order.

    Args:
        run: takes a feed and names to fetch, and returns tensors.
        dataset: the data set.
        thread: number of files to read at once; 0 takes that of the data set.
        watching: they get the values of batches.

    Raises:
        RuntimeError: there is no data set, or it has no threads.
        TypeError: it is something else.
    """
    if dataset is None:
        raise RuntimeError("dataset is need and should be initialized")
    if not hasattr(dataset, "thread_num"):
        raise TypeError(
            f"dataset is one of fluid.DatasetFactory, but received {type(dataset).__name__}: "
            "train_from_dask takes Dask collections, run takes arrays and what a DataLoader yields"
        )
    threads = thread if thread > 0 else dataset.thread_num
    if threads <= 0:
        raise RuntimeError(
            "You should set thread num first, either in Dataset or in Executor.train_from_dataset"
        )
    names = list(dict.fromkeys(name for watcher in watching for name in watcher.names))
    with closing(dataset._feeds(threads)) as feeds:
        for number, feed in enumerate(feeds):
            values = dict(zip(names, run(feed, names), strict=True))
            for watcher in watching:
                watcher.see(number, values)
