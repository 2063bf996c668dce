"""The base of all metrics, several metrics as one, and checks of arguments."""

from __future__ import annotations

import copy
import numbers
from typing import Any

import numpy as np

__all__ = [
    "CompositeMetric",
    "MetricBase",
    "is_number",
    "is_number_or_array",
    "require_arrays",
    "require_numbers",
]


def is_number(value: Any) -> bool:
    """Whether a value is a real number, or an array of shape ``(1,)``."""
    if isinstance(value, np.ndarray):
        return value.shape == (1,)
    return isinstance(value, numbers.Real)


def is_number_or_array(value: Any) -> bool:
    """Whether a value is a real number or an array."""
    return isinstance(value, np.ndarray) or is_number(value)


def require_arrays(**arguments: Any) -> None:
    """Refuse arguments that are no arrays of NumPy, by name."""
    for name, value in arguments.items():
        if not isinstance(value, (np.ndarray, np.generic)):
            raise ValueError(
                f"The '{name}' must be a numpy ndarray, but received {type(value).__name__}."
            )


def require_numbers(**arguments: Any) -> None:
    """Refuse arguments that are neither numbers nor arrays, by name."""
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

    Raises:
        NotImplementedError: a class does not define ``update``.

    Example:
        >>> import dpexec as fluid
        >>> class Largest(fluid.metrics.MetricBase):
        ...     def __init__(self):
        ...         super().__init__("largest")
        ...         self.value = 0.0
        ...
        ...     def update(self, found):
        ...         self.value = max(self.value, found)
        ...
        ...     def eval(self):
        ...         return self.value
        >>> largest = Largest()
        >>> largest.update(3.0)
        >>> largest.eval()
        3.0
        >>> largest.reset()
        >>> largest.eval()
        0.0
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

    See Also:
        :class:`~dpexec.metrics.Accuracy`: the share of right rows.
        :class:`~dpexec.metrics.Precision`: of the positive guesses.
        :class:`~dpexec.metrics.Recall`: of the positive rows.
        :class:`~dpexec.metrics.Auc`: over all thresholds.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> both = fluid.metrics.CompositeMetric()
        >>> both.add_metric(fluid.metrics.Precision())
        >>> both.add_metric(fluid.metrics.Recall())
        >>> both.update(np.array([[0.9], [0.6], [0.2]]), np.array([[1], [0], [1]]))
        >>> [float(value) for value in both.eval()]
        [0.5, 0.5]
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
