"""``fluid.metrics``: metrics of a whole data set, accumulated over batches."""

from __future__ import annotations

import copy
import numbers
from typing import Any

import numpy as np

from dpexec.detection_metric import DetectionMAP

__all__ = [
    "Accuracy",
    "Auc",
    "ChunkEvaluator",
    "CompositeMetric",
    "DetectionMAP",
    "EditDistance",
    "MetricBase",
    "Precision",
    "Recall",
]


def is_number(value: Any) -> bool:
    """Whether a value is a real number, or an array of shape ``(1,)``."""
    if isinstance(value, np.ndarray):
        return value.shape == (1,)
    return isinstance(value, numbers.Real)


def is_number_or_array(value: Any) -> bool:
    """Whether a value is a real number or an array."""
    return isinstance(value, np.ndarray) or is_number(value)


def _require_arrays(**arguments: Any) -> None:
    for name, value in arguments.items():
        if not isinstance(value, (np.ndarray, np.generic)):
            raise ValueError(
                f"The '{name}' must be a numpy ndarray, but received {type(value).__name__}."
            )


def _require_numbers(**arguments: Any) -> None:
    for name, value in arguments.items():
        if not is_number_or_array(value):
            raise ValueError(
                f"The '{name}' must be a number or a numpy ndarray, but received "
                f"{type(value).__name__}."
            )


class MetricBase:
    """Base class: a name, and states (all attributes whose names begin without underscore).

    Args:
        name: None takes the name of the class.
    """

    def __init__(self, name: str | None) -> None:
        self._name = type(self).__name__ if name is None else str(name)

    def __str__(self) -> str:
        return self._name

    def _states(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if not key.startswith("_")}

    def reset(self) -> None:
        """Set every number and array among the states to zero, and other states to None."""
        for key, value in self._states().items():
            if isinstance(value, (int, float)):
                setattr(self, key, type(value)(0))
            elif isinstance(value, (np.ndarray, np.generic)):
                setattr(self, key, np.zeros_like(value))
            else:
                setattr(self, key, None)

    def get_config(self) -> dict[str, Any]:
        """Return ``{"name": ..., "states": ...}``, the states copied."""
        return {"name": self._name, "states": copy.deepcopy(self._states())}

    def update(self, preds: Any, labels: Any) -> None:
        """Add a batch; defined by subclasses."""
        raise NotImplementedError(f"{type(self).__name__} must define update(preds, labels)")

    def eval(self) -> Any:
        """Return the metric over all batches so far; defined by subclasses."""
        raise NotImplementedError(f"{type(self).__name__} must define eval()")


class CompositeMetric(MetricBase):
    """Several metrics updated with the same arguments.

    Args:
        name: None takes the name of the class.
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._metrics: list[MetricBase] = []

    def add_metric(self, metric: MetricBase) -> None:
        """Add a metric.

        Raises:
            ValueError: the argument is no metric.
        """
        if not isinstance(metric, MetricBase):
            raise ValueError("SubMetric should be inherit from MetricBase.")
        self._metrics.append(metric)

    def update(self, preds: Any, labels: Any) -> None:
        """Add a batch to every metric."""
        for metric in self._metrics:
            metric.update(preds, labels)

    def eval(self) -> list[Any]:
        """Return the metrics' values in the order in which the metrics were added."""
        return [metric.eval() for metric in self._metrics]


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
        _require_arrays(preds=preds, labels=labels)
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
        _require_arrays(preds=preds, labels=labels)
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
        _require_numbers(value=value)
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


class ChunkEvaluator(MetricBase):
    """Precision, recall and F1 score of chunks, from the counts of ``layers.chunk_eval``.

    Args:
        name: None takes the name of the class.

    Source: ``fluid.metrics.ChunkEvaluator``.
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.num_infer_chunks: Any = 0
        self.num_label_chunks: Any = 0
        self.num_correct_chunks: Any = 0

    def update(  # type: ignore[override]
        self, num_infer_chunks: Any, num_label_chunks: Any, num_correct_chunks: Any
    ) -> None:
        """Add the counts of a batch, numbers or arrays of one element.

        Raises:
            ValueError: an argument is neither.
        """
        _require_numbers(
            num_infer_chunks=num_infer_chunks,
            num_label_chunks=num_label_chunks,
            num_correct_chunks=num_correct_chunks,
        )
        self.num_infer_chunks = self.num_infer_chunks + num_infer_chunks
        self.num_label_chunks = self.num_label_chunks + num_label_chunks
        self.num_correct_chunks = self.num_correct_chunks + num_correct_chunks

    def eval(self) -> tuple[float, float, float]:
        """Return (precision, recall, F1 score); 0 where there is nothing to divide by."""
        counts = (self.num_infer_chunks, self.num_label_chunks, self.num_correct_chunks)
        inferred, labelled, correct = (np.asarray(count).item() for count in counts)
        precision = correct / inferred if inferred else 0.0
        recall = correct / labelled if labelled else 0.0
        f1 = 2 * precision * recall / (precision + recall) if correct else 0.0
        return precision, recall, f1


class EditDistance(MetricBase):
    """The mean edit distance, and the share of sequences with errors.

    Args:
        name: None takes the name of the class.

    Source: ``fluid.metrics.EditDistance``.
    """

    def __init__(self, name: str | None) -> None:
        super().__init__(name)
        self.total_distance: Any = 0.0
        self.seq_num: Any = 0
        self.instance_error: Any = 0

    def update(self, distances: Any, seq_num: Any) -> None:
        """Add a batch.

        Args:
            distances: an array of shape ``(batch, 1)``.
            seq_num: number of sequences in the batch.

        Raises:
            ValueError: an argument has the wrong type.
        """
        _require_arrays(distances=distances)
        if not is_number(seq_num):
            raise ValueError("The 'seq_num' must be a number(int, float).")
        self.seq_num = self.seq_num + seq_num
        self.instance_error = self.instance_error + seq_num - int(np.sum(distances == 0))
        self.total_distance = self.total_distance + float(np.sum(distances))

    def eval(self) -> tuple[Any, Any]:
        """Return (mean distance, share of sequences with a distance other than 0).

        Raises:
            ValueError: nothing was added.
        """
        if self.seq_num == 0:
            raise ValueError(
                "There is no data in EditDistance Metric. Please check that the output of "
                "layers.edit_distance was added to it."
            )
        return self.total_distance / self.seq_num, self.instance_error / self.seq_num


class Auc(MetricBase):
    """The area under the ROC curve of a binary classifier, from a histogram of its predictions.

    Args:
        name: None takes the name of the class.
        curve: "ROC"; as in fluid, other values change nothing here.
        num_thresholds: number of thresholds; the histogram has one bucket more.

    Source: ``fluid.metrics.Auc``. As in fluid, ``reset`` does not empty the histogram.
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
        _require_arrays(labels=labels, preds=preds)
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
