"""Checks of estimators' arguments, which scikit-learn wants in ``fit``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from dpexec.sklearn.callbacks import Callback

__all__ = ["check_settings"]


def check_settings(estimator: Any) -> None:
    """Check an estimator's arguments.

    Raises:
        ValueError: one of them is none that it takes.
    """
    for name in ("batch_size", "epochs", "devices"):
        value = getattr(estimator, name)
        if not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be a positive integer, but is {value!r}")
    rate, net, held = estimator.learning_rate, estimator.net, estimator.validation_fraction
    if not isinstance(held, Real) or not 0 <= float(held) < 1:
        raise ValueError(f"validation_fraction must be from 0 to below 1, but is {held!r}")
    if estimator.sparse not in ("dense", "rows"):
        raise ValueError(f"sparse must be 'dense' or 'rows', but is {estimator.sparse!r}")
    if not isinstance(rate, Real) or not 0 <= float(rate) < math.inf:
        raise ValueError(f"learning_rate must be a number of at least 0, but is {rate!r}")
    if net is not None and not callable(net):
        raise ValueError(f"net must be a function of the input variable, but is {net!r}")
    given = estimator.callbacks or ()
    for callback in given if isinstance(given, Iterable) else [given]:
        if not isinstance(callback, Callback):
            raise ValueError(f"callbacks must be Callback objects, but one is {callback!r}")
