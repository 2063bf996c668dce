"""``fluid.average``: a running weighted mean."""

from __future__ import annotations

import warnings
from typing import Any

from dpexec.metrics.base import is_number, is_number_or_array

__all__ = ["WeightedAverage"]


class WeightedAverage:
    """The weighted mean of the values added. Deprecated in fluid: see ``fluid.metrics.Accuracy``.

    Source: ``fluid.average.WeightedAverage``.

    Example:
        >>> import dpexec as fluid, warnings
        >>> with warnings.catch_warnings():  # Paddle calls it deprecated
        ...     warnings.simplefilter("ignore")
        ...     average = fluid.average.WeightedAverage()
        >>> average.add(value=2.0, weight=1)
        >>> average.add(value=4.0, weight=3)
        >>> float(average.eval())
        3.5
    """

    def __init__(self) -> None:
        warnings.warn(
            "WeightedAverage is deprecated, please use fluid.metrics.Accuracy instead.",
            Warning,
            stacklevel=2,
        )
        self.reset()

    def reset(self) -> None:
        """Forget all added values."""
        self.numerator: Any = None
        self.denominator: Any = None

    def add(self, value: Any, weight: Any) -> None:
        """Add a value.

        Args:
            value: a number or an array.
            weight: a number, or an array of shape ``(1,)``.

        Raises:
            ValueError: an argument has the wrong type.
        """
        if not is_number_or_array(value):
            raise ValueError("The 'value' must be a number(int, float) or a numpy ndarray.")
        if not is_number(weight):
            raise ValueError("The 'weight' must be a number(int, float).")
        first = self.numerator is None
        self.numerator = value * weight if first else self.numerator + value * weight
        self.denominator = weight if first else self.denominator + weight

    def eval(self) -> Any:
        """Return the mean.

        Raises:
            ValueError: nothing was added.
        """
        if self.numerator is None:
            raise ValueError("There is no data to be averaged in WeightedAverage.")
        return self.numerator / self.denominator
