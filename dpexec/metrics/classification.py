"""Metrics of classifiers: precision, recall, accuracy, area under the curve."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.metrics.base import MetricBase, is_number, require_arrays, require_numbers

__all__ = ["Accuracy", "Auc", "Precision", "Recall"]


def _binary(preds: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rounded predictions and labels, flattened, cut to the number of labels."""
    count = labels.shape[0]
    rounded = np.rint(preds[:count]).astype("int32").reshape(count)
    return rounded, labels.reshape(count)


class Precision(MetricBase):
    """The share of samples predicted as positive that are positive.

    Args:
        name: None takes the name of the class.

    Source: ``fluid.metrics.Precision``.

    See Also:
        :class:`~dpexec.metrics.Accuracy`: the share of right rows.
        :class:`~dpexec.metrics.Recall`: of the positive rows.
        :class:`~dpexec.metrics.Auc`: over all thresholds.
        :class:`~dpexec.metrics.CompositeMetric`: several at once.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> precision = fluid.metrics.Precision()
        >>> guesses, labels = np.array([[0.9], [0.6], [0.2]]), np.array([[1], [0], [1]])
        >>> precision.update(guesses, labels)
        >>> precision.eval()
        0.5
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp = 0
        self.fp = 0

    def update(self, preds: Any, labels: Any) -> None:
        """Add a batch.

        Args:
            preds: probabilities of being positive, shape ``(batch, 1)``.
            labels: 0 or 1, shape ``(batch, 1)``.

        Raises:
            ValueError: an argument is no array.
        """
        require_arrays(preds=preds, labels=labels)
        predicted, actual = _binary(preds, labels)
        positive = predicted == 1
        self.tp += int(np.sum(positive & (actual == 1)))
        self.fp += int(np.sum(positive & (actual != 1)))

    def eval(self) -> float:
        """Return the precision, 0 if nothing was predicted to be positive."""
        found = self.tp + self.fp
        return self.tp / found if found else 0.0


class Recall(MetricBase):
    """The share of positive samples that are predicted as positive.

    Args:
        name: None takes the name of the class.

    Source: ``fluid.metrics.Recall``.

    Raises:
        ValueError: in ``update``: an argument is no array, or their lengths differ.

    See Also:
        :class:`~dpexec.metrics.Accuracy`: the share of right rows.
        :class:`~dpexec.metrics.Precision`: of the positive guesses.
        :class:`~dpexec.metrics.Auc`: over all thresholds.
        :class:`~dpexec.metrics.CompositeMetric`: several at once.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> recall = fluid.metrics.Recall()
        >>> guesses, labels = np.array([[0.9], [0.6], [0.2]]), np.array([[1], [0], [1]])
        >>> recall.update(guesses, labels)
        >>> recall.eval()
        0.5
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp = 0
        self.fn = 0

    def update(self, preds: Any, labels: Any) -> None:
        """Add a batch; arguments and errors as for :meth:`Precision.update`."""
        require_arrays(preds=preds, labels=labels)
        predicted, actual = _binary(preds, labels)
        positive = actual == 1
        self.tp += int(np.sum(positive & (predicted == 1)))
        self.fn += int(np.sum(positive & (predicted != 1)))

    def eval(self) -> float:
        """Return the recall, 0 if no sample was positive."""
        positive = self.tp + self.fn
        return self.tp / positive if positive else 0.0


class Accuracy(MetricBase):
    """The weighted mean of the batches' accuracies.

    Args:
        name: None takes the name of the class.

    Source: ``fluid.metrics.Accuracy``.

    See Also:
        :func:`~dpexec.layers.accuracy`: of one batch.
        :class:`~dpexec.metrics.Precision`: of the positive guesses.
        :class:`~dpexec.metrics.Recall`: of the positive rows.
        :class:`~dpexec.metrics.Auc`: over all thresholds.

    Example:
        >>> import dpexec as fluid
        >>> accuracy = fluid.metrics.Accuracy()
        >>> accuracy.update(value=0.5, weight=10)
        >>> accuracy.update(value=1.0, weight=30)
        >>> accuracy.eval()
        0.875
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.value: Any = 0.0
        self.weight: Any = 0.0

    def update(self, value: Any, weight: Any) -> None:
        """Add a batch.

        Args:
            value: the batch's accuracy, a number or an array.
            weight: a number, usually the size of the batch.

        Raises:
            ValueError: an argument is of another type, or the weight is negative.
        """
        require_numbers(value=value)
        if not is_number(weight):
            raise ValueError("The 'weight' must be a number(int, float).")
        if weight < 0:
            raise ValueError("The 'weight' can not be negative")
        self.value = self.value + value * weight
        self.weight = self.weight + weight

    def eval(self) -> Any:
        """Return the mean.

        Raises:
            ValueError: nothing was added.
        """
        if self.weight == 0:
            raise ValueError(
                "There is no data in Accuracy Metrics. Please check that the output of "
                "layers.accuracy was added to it."
            )
        return self.value / self.weight


class Auc(MetricBase):
    """The area under the ROC curve of a binary classifier, from a histogram of its predictions.

    Args:
        name: None takes the name of the class.
        curve: "ROC"; as in fluid, other values change nothing here.
        num_thresholds: number of thresholds; the histogram has one bucket more.

    Source: ``fluid.metrics.Auc``. As in fluid, ``reset`` does not empty the histogram.

    See Also:
        :class:`~dpexec.metrics.Accuracy`: the share of right rows.
        :class:`~dpexec.metrics.Precision`: of the positive guesses.
        :class:`~dpexec.metrics.Recall`: of the positive rows.
        :class:`~dpexec.metrics.CompositeMetric`: several at once.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> area = fluid.metrics.Auc("auc")
        >>> guesses = np.array([[0.1, 0.9], [0.8, 0.2], [0.4, 0.6], [0.7, 0.3]])
        >>> area.update(guesses, np.array([[1], [0], [0], [1]]))
        >>> round(float(area.eval()), 4)
        0.75
    """

    def __init__(self, name: str | None, curve: str = "ROC", num_thresholds: int = 4095) -> None:
        super().__init__(name)
        self._curve = curve
        self._num_thresholds = num_thresholds
        self._stat_pos = np.zeros(num_thresholds + 1)
        self._stat_neg = np.zeros(num_thresholds + 1)

    def update(self, preds: Any, labels: Any) -> None:
        """Add a batch.

        Args:
            preds: probabilities of the classes 0 and 1, shape ``(batch, 2)``.
            labels: 0 or 1, shape ``(batch, 1)``.

        Raises:
            ValueError: an argument is no array, or a probability lies outside of 0 to 1.
        """
        require_arrays(labels=labels, preds=preds)
        count = len(labels)
        buckets = (preds[:count, 1] * self._num_thresholds).astype("int64")
        if count and not (buckets.min() >= 0 and buckets.max() <= self._num_thresholds):
            raise ValueError("Auc: the probabilities in preds[:, 1] must lie between 0 and 1")
        positive = labels.reshape(count).astype(bool)
        size = self._num_thresholds + 1
        self._stat_pos += np.bincount(buckets[positive], minlength=size)
        self._stat_neg += np.bincount(buckets[~positive], minlength=size)

    def eval(self) -> float:
        """Return the area, 0 as long as one of the two classes has no sample."""
        positive = np.concatenate([[0.0], np.cumsum(self._stat_pos[::-1])])
        negative = np.concatenate([[0.0], np.cumsum(self._stat_neg[::-1])])
        area = np.sum(np.diff(negative) * (positive[1:] + positive[:-1])) / 2
        total = positive[-1] * negative[-1]
        return float(area / positive[-1] / negative[-1]) if total else 0.0
