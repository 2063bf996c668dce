"""Callbacks of estimators: early stopping, checkpoints, learning rates, progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Literal

import cloudpickle
import fsspec

__all__ = [
    "Callback",
    "Checkpoints",
    "EarlyStopping",
    "LearningRateSchedule",
    "ProgressBar",
    "run_epochs",
]

Record = dict[str, Any]
"""An epoch's metrics: ``epoch``, ``loss``, ``seconds``, and ``valid_loss`` and ``valid_score`` if
samples are held out for validation."""


class Callback:
    """Base class: called while an estimator is fitted; subclasses override its methods.

    Example:
        >>> from dpexec.sklearn import Callback
        >>> class Losses(Callback):
        ...     def on_fit_begin(self, estimator):
        ...         self.seen = []
        ...     def on_epoch_end(self, estimator, record):
        ...         self.seen.append(record["loss"])
        ...         return record["loss"] < 1e-3  # True ends the training
        >>> losses = Losses()
        >>> losses.on_fit_begin(None)
        >>> [losses.on_epoch_end(None, {"epoch": n, "loss": x}) for n, x in enumerate([0.5, 1e-4])]
        [False, True]
    """

    def on_fit_begin(self, estimator: Any) -> None:
        """Before the first epoch of a call of ``fit``."""

    def on_epoch_begin(self, estimator: Any, epoch: int) -> None:
        """Before an epoch; the first one is 0."""

    def on_epoch_end(self, estimator: Any, record: Record) -> bool | None:
        """After an epoch; True ends the training."""

    def on_fit_end(self, estimator: Any) -> None:
        """After the last epoch."""


class EarlyStopping(Callback):
    """Ends training when a metric no longer improves.

    Args:
        monitor: name of the metric, a column of the estimator's ``history``.
        patience: number of epochs without improvement to tolerate.
        min_delta: smallest change that counts as an improvement.
        mode: whether smaller is better; with ``auto`` it is, except for scores.
        restore_best: give the estimator the parameters of the best epoch.

    Example:
        >>> from dpexec.sklearn import EarlyStopping
        >>> early = EarlyStopping(monitor="loss", patience=1, restore_best=False)
        >>> early.on_fit_begin(None)
        >>> [early.on_epoch_end(None, {"loss": loss}) for loss in (0.5, 0.3, 0.4, 0.4)]
        [False, False, False, True]
    """

    def __init__(
        self,
        monitor: str = "valid_loss",
        patience: int = 5,
        min_delta: float = 0.0,
        mode: Literal["auto", "min", "max"] = "auto",
        restore_best: bool = True,
    ) -> None:
        self.monitor, self.patience, self.min_delta = monitor, patience, min_delta
        self.mode, self.restore_best = mode, restore_best

    def on_fit_begin(self, estimator: Any) -> None:
        """Forget earlier fits."""
        self._best: float | None = None
        self._state: dict[str, Any] | None = None
        self._worse = 0

    def on_epoch_end(self, estimator: Any, record: Record) -> bool:
        """Compare the metric with the best epoch's.

        Raises:
            KeyError: there is no such metric.
        """
        if self.monitor not in record:
            known = ", ".join(sorted(record))
            raise KeyError(
                f"EarlyStopping monitors {self.monitor!r}, but an epoch has {known}; "
                "validation_fraction makes valid_loss and valid_score"
            )
        largest = self.mode == "max" or (self.mode == "auto" and self.monitor.endswith("score"))
        value = -record[self.monitor] if largest else record[self.monitor]
        if self._best is None or value < self._best - self.min_delta:
            self._best, self._worse = value, 0
            self._state = estimator.network_.state() if self.restore_best else None
        else:
            self._worse += 1
        return self._worse > self.patience

    def on_fit_end(self, estimator: Any) -> None:
        """Restore the parameters of the best epoch."""
        if self._state is not None:
            estimator.network_.restore(self._state)
            self._state = None


class Checkpoints(Callback):
    """Writes the estimator after epochs; ``pickle.load`` reads it.

    Args:
        path: path or fsspec URL of the files; ``{epoch}`` stands for the epoch's number.
        every: number of epochs between checkpoints.

    Example:
        >>> from dpexec.sklearn import Checkpoints
        >>> callback = Checkpoints("run/epoch-{epoch}.pkl", every=5)  # after 5, 10 ... epochs
        >>> callback.path.format(epoch=4)
        'run/epoch-4.pkl'
    """

    def __init__(self, path: str, every: int = 1) -> None:
        self.path, self.every = path, every

    def on_epoch_end(self, estimator: Any, record: Record) -> None:
        """Write a checkpoint if one is due."""
        if (record["epoch"] + 1) % self.every == 0:
            with fsspec.open(self.path.format(epoch=record["epoch"]), "wb") as file:
                cloudpickle.dump(estimator, file)  # pickle cannot write nets that are lambdas


class LearningRateSchedule(Callback):
    """Sets the learning rate before every epoch.

    Args:
        rate: function from the epoch's number to the learning rate.

    Example:
        >>> from dpexec.sklearn import LearningRateSchedule
        >>> halved = LearningRateSchedule(lambda epoch: 0.1 * 0.5**epoch)
        >>> [halved.rate(epoch) for epoch in range(3)]
        [0.1, 0.05, 0.025]
    """

    def __init__(self, rate: Callable[[int], float]) -> None:
        self.rate = rate

    def on_epoch_begin(self, estimator: Any, epoch: int) -> None:
        """Set the epoch's learning rate."""
        estimator.network_.set_learning_rate(self.rate(epoch))


class ProgressBar(Callback):
    """Shows a progress bar with epochs and metrics, in terminals and notebooks.

    Example:
        >>> import numpy as np
        >>> from dpexec.sklearn import ProgressBar, Regressor
        >>> x = np.arange(8, dtype="float32").reshape(8, 1)
        >>> model = Regressor(epochs=2, callbacks=[ProgressBar()]).fit(x, 2 * x[:, 0])  # on stderr
        >>> len(model.history_)
        2
    """

    def on_fit_begin(self, estimator: Any) -> None:
        """Start a progress bar."""
        from tqdm import tqdm  # imported when it is used; tqdm.auto would warn in notebooks

        self._bar = tqdm(total=estimator.epochs, unit="epoch")

    def on_epoch_end(self, estimator: Any, record: Record) -> None:
        """Show the epoch's metrics."""
        shown = {k: f"{v:.4g}" for k, v in record.items() if k not in ("epoch", "seconds")}
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update()

    def on_fit_end(self, estimator: Any) -> None:
        """End the bar."""
        self._bar.close()
        del self._bar


def run_epochs(estimator: Any, epoch: Callable[[int], Record], epochs: int) -> None:
    """Run epochs until a callback ends them.

    Args:
        estimator: its callbacks watch, and its history grows.
        epoch: trains for the epoch of a number; returns its metrics.
        epochs: how many at most.
    """
    watching = [*(estimator.callbacks or ()), *([ProgressBar()] if estimator.verbose else [])]
    begun: list[Callback] = []
    done = len(estimator.history_)
    try:
        for callback in watching:
            callback.on_fit_begin(estimator)
            begun.append(callback)
        for number in range(done, done + epochs):
            for callback in watching:
                callback.on_epoch_begin(estimator, number)
            began = time.perf_counter()
            numbers = epoch(number)
            record: Record = {"epoch": number, **numbers}
            record["seconds"] = time.perf_counter() - began
            estimator.history_.append(record)
            if not math.isfinite(record["loss"]):
                raise ValueError(
                    f"the loss of epoch {number} is {record['loss']}: the training diverged; a "
                    "smaller learning_rate, or features of a scale near 1, may help"
                )
            ends = [callback.on_epoch_end(estimator, record) for callback in watching]
            if any(ends):
                break
    finally:
        for callback in begun:
            callback.on_fit_end(estimator)
