"""``Classifier`` and ``Regressor``: nets as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from dask.base import is_dask_collection
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_array,
    check_is_fitted,
    column_or_1d,
)  # fmt: skip

from dpexec.sklearn import conversion, lazily, lazy_scores
from dpexec.sklearn.fitting import NetEstimator
from dpexec.sklearn.heads import PROBABILITIES, VALUES
from dpexec.sklearn.signatures import documented_with, extends

__all__ = ["Classifier", "Regressor"]

Array = np.ndarray[Any, Any]


@documented_with(NetEstimator)
class Classifier(ClassifierMixin, NetEstimator):
    """A net that predicts classes.

    The net returns a logit for each class, or a single logit for two classes.

    Args:
        class_weight: ``"balanced"``, or a dict from label to weight; None gives all classes the
            same weight.

    Attributes:
        classes_: the labels, sorted.
        history: a table of the epochs.

    Example:
        >>> from dpexec.sklearn import Classifier
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> Classifier(epochs=50, learning_rate=0.01, random_state=0).fit(X, y).score(X, y) > 0.9
        True
    """

    _head = PROBABILITIES

    @extends(NetEstimator)
    def __init__(
        self, net: Callable[..., Any] | None = None, *, class_weight: Any = None, **arguments: Any
    ) -> None:
        super().__init__(net, **arguments)
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train for all epochs.

        Args:
            X: an array, dataframe, sparse matrix or Dask collection, ``(samples, ...)``; or a
                dictionary of inputs, in which a list holds sequences.
            y: a label for each sample.
            sample_weight: weight of each sample.

        Raises:
            ValueError: the lengths of X, y and weights differ, or the net does not fit the data.
        """
        fresh = not (self.warm_start and hasattr(self, "network_"))
        classes = None if fresh else self.classes_
        return self._fit(X, y, sample_weight, self.epochs, fresh, classes)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train for one epoch, continuing from earlier calls.

        Args:
            X: as for :meth:`fit`.
            y: as for :meth:`fit`.
            classes: all labels that can occur; required in the first call.
            sample_weight: as for :meth:`fit`.

        Raises:
            ValueError: a label is not among the classes, the classes differ from the first
                call's, or ``class_weight`` is ``"balanced"``: a part does not tell the weights.
        """
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            raise ValueError(
                "class_weight 'balanced' is not supported for partial_fit. In order to use "
                "'balanced' weights, use compute_class_weight('balanced', classes=classes, y=y) "
                "with a large enough sample of all targets as y, and pass a dict of the resulting "
                "weights as the class_weight parameter."
            )
        first = not hasattr(self, "network_")
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        known = np.unique(classes) if first else self.classes_
        if classes is not None and not np.array_equal(np.unique(classes), known):
            raise ValueError(f"classes are {np.unique(classes)}, but were {known} before")
        return self._fit(X, y, sample_weight, 1, first, known)

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class, ``(samples, classes)``; lazily for a Dask collection."""
        if conversion.is_lazy(X):
            width = len(self._fitted_classes())
            self._check_columns(X, first=False)
            return lazily.predicted(self, "predict_proba", X, np.dtype(np.float64), width)
        found = self._found(X).astype(np.float64)
        return found / found.sum(axis=1, keepdims=True)  # so that the sum is 1 in float64, too

    def predict(self, X: Any) -> Any:
        """The most probable label of each sample; lazily for a Dask collection."""
        classes = self._fitted_classes()
        if conversion.is_lazy(X):
            self._check_columns(X, first=False)
            return lazily.predicted(self, "predict", X, classes.dtype)
        return classes[self.predict_proba(X).argmax(axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of samples whose label is predicted; Dask collections stay where they are."""
        if not conversion.is_lazy(X):
            return float(super().score(X, y, sample_weight))
        return lazy_scores.accuracy(self.predict(X), y, sample_weight)

    def _fitted_classes(self) -> Array:
        check_is_fitted(self)
        return self.classes_

    def _outputs_of(self, y: Any, classes: Array | None) -> tuple[Any, int]:
        if is_dask_collection(y):
            if y.ndim > 1 and y.shape[1] != 1:
                raise ValueError(
                    f"y should be a 1d array, got an array of shape {y.shape} instead."
                )
            found = lazily.unique(y)
        else:
            check_classification_targets(y)
            y = column_or_1d(y, warn=True)
            found = np.unique(y)
        known = found if classes is None else classes
        unknown = np.setdiff1d(found, known)
        if len(unknown):
            raise ValueError(f"y has labels that are none of the classes {known}: {unknown}")
        self.classes_ = known
        if is_dask_collection(y):
            return lazily.numbers_of(y, known), len(known)
        return np.searchsorted(known, y).reshape(-1, 1), len(known)

    def _weights(self, sample_weight: Any, X: Any, y: Array) -> Array:
        weights = super()._weights(sample_weight, X, y)
        if self.class_weight is None:
            return weights
        weights = weights * compute_sample_weight(self.class_weight, np.ravel(y))
        return np.asarray(weights / weights.mean(), np.float32)

    def _lazy_weights(self, sample_weight: Any, target: Any) -> Any:
        if self.class_weight is not None:
            sample_weight = lazily.weighted_by_class(
                sample_weight, target, self.class_weight, self.classes_
            )
        return super()._lazy_weights(sample_weight, target)

    def _judged(self, found: Array, target: Array, weight: Array) -> tuple[float, float]:
        chosen = np.take_along_axis(found, target, axis=1)[:, 0]
        losses = -np.log(np.maximum(chosen, np.finfo(np.float32).tiny))
        right = found.argmax(axis=1) == target[:, 0]
        return float(np.average(losses, weights=weight)), float(np.average(right, weights=weight))


@documented_with(NetEstimator)
class Regressor(RegressorMixin, NetEstimator):
    """A net that predicts one or several numbers per sample.

    The net returns a number for each target; the loss is half the squared error.

    Attributes:
        history: a table of the epochs.

    Example:
        >>> from dpexec.sklearn import Regressor
        >>> from sklearn.datasets import make_regression
        >>> from sklearn.preprocessing import scale
        >>> X, y = make_regression(200, 4, random_state=0)
        >>> Regressor(epochs=50, learning_rate=0.01, random_state=0).fit(X, scale(y)).n_iter_
        50
    """

    _head = VALUES

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train for all epochs.

        Args:
            X: an array, dataframe, sparse matrix or Dask collection, ``(samples, ...)``; or a
                dictionary of inputs, in which a list holds sequences.
            y: ``(samples,)`` or ``(samples, targets)``; nets learn best if its scale is near 1.
            sample_weight: weight of each sample.

        Raises:
            ValueError: the lengths of X, y and weights differ, or the net does not fit the data.
        """
        fresh = not (self.warm_start and hasattr(self, "network_"))
        return self._fit(X, y, sample_weight, self.epochs, fresh)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train for one epoch, continuing from earlier calls; arguments as for :meth:`fit`."""
        return self._fit(X, y, sample_weight, 1, not hasattr(self, "network_"))

    def predict(self, X: Any) -> Any:
        """The predicted targets, in the shape of the training ones; lazy for a Dask collection."""
        if conversion.is_lazy(X):
            check_is_fitted(self)
            self._check_columns(X, first=False)
            width = 0 if self._flat else self.network_.spec.outputs
            return lazily.predicted(self, "predict", X, np.dtype(np.float64), width)
        found = self._found(X).astype(np.float64)  # like scikit-learn's regressors
        return found[:, 0] if self._flat else found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R squared of the predictions; Dask collections stay where they are."""
        if not conversion.is_lazy(X):
            return float(super().score(X, y, sample_weight))
        return lazy_scores.determination(self.predict(X), y, sample_weight)

    def _outputs_of(self, y: Any, classes: Array | None) -> tuple[Any, int]:
        if is_dask_collection(y):
            y = conversion.targets_of(y)
        else:
            y = check_array(y, ensure_2d=False, dtype=np.float32)
        self._flat = y.ndim == 1
        target = y[:, None] if y.ndim == 1 else y
        return target.astype(np.float32), int(target.shape[1])

    def _judged(self, found: Array, target: Array, weight: Array) -> tuple[float, float]:
        losses = 0.5 * np.mean((found - target) ** 2, axis=1)
        return float(np.average(losses, weights=weight)), float(
            r2_score(target, found, sample_weight=weight)
        )
