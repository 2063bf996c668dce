"""The parts of an example."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import dpexec as fluid
from dpexec.engine.core.light_dataclasses import dataclass

Batch = dict[str, np.ndarray]


class MissingPackageError(RuntimeError):
    """An example needs a package that is not installed."""


@dataclass(frozen=True)
class Net:
    """The programs of an example.

    Args:
        main: One training step.
        startup: Gives every parameter its first value.
        test: The forward part of main, for held-out data.
        loss: What is minimised.
        metric: What is reported on held-out data; the loss itself where there is nothing better.
    """

    main: fluid.Program
    startup: fluid.Program
    test: fluid.Program
    loss: fluid.Variable
    metric: fluid.Variable


@dataclass(frozen=True)
class Data:
    """Arrays by the name of the variable they feed; the first dimension counts samples."""

    train: Batch
    test: Batch
    source: str

    @property
    def samples(self) -> int:
        """Number of training samples."""
        return len(next(iter(self.train.values())))


@dataclass(frozen=True)
class Example:
    """A net, its data, and how long to train.

    Args:
        name: What the command line calls it.
        summary: One line.
        build: Makes the programs.
        load: Reads the data.
        batch_size: Samples of a step, over all devices.
        epochs: How often the data is gone through.
        metric_name: "accuracy" or "loss".
    """

    name: str
    summary: str
    build: Callable[[], Net]
    load: Callable[[], Data]
    batch_size: int
    epochs: int
    metric_name: str


def split(arrays: Batch, test_share: float, seed: int = 0) -> tuple[Batch, Batch]:
    """Shuffle the samples and hold some out.

    Returns:
        The training part and the held-out part.
    """
    count = len(next(iter(arrays.values())))
    order = np.random.default_rng(seed).permutation(count)
    held_out = int(count * test_share)
    test, train = order[:held_out], order[held_out:]
    return (
        {name: array[train] for name, array in arrays.items()},
        {name: array[test] for name, array in arrays.items()},
    )
