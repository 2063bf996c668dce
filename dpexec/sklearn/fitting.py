"""The base class of estimators: fitting a net to samples, and predicting with it."""

from __future__ import annotations

import contextlib
import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import dask
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)  # fmt: skip

from dpexec.sklearn import conversion, lazily
from dpexec.sklearn.callbacks import Callback, Record, run_epochs
from dpexec.sklearn.heads import Head
from dpexec.sklearn.inputs import (
    LABEL,
    SOLE,
    WEIGHT,
    Sparse,
    batches,
    fed,
    has_names,
    inputs_of,
    require_inputs,
    row_count,
    specs_of,
)  # fmt: skip
from dpexec.sklearn.network import Network, NetworkSpec, three_layers
from dpexec.sklearn.settings import check_settings

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NetEstimator"]

Array = np.ndarray[Any, Any]
_AT_ONCE = 1024  # samples per batch of predictions


class NetEstimator(BaseEstimator, ABC):
    """Base class of both estimators.

    Args:
        net: gets the input variable and returns logits (:class:`Classifier`) or values
            (:class:`Regressor`), one row for each sample; None takes one hidden layer of 100 units.
            If it has an argument ``outputs``, that gets the number of classes or targets. If X is a
            dictionary, its inputs are passed by name.
        optimizer: ``"adam"``, ``"sgd"``, ``"momentum"``, ``"rmsprop"``, ``"adagrad"``,
            ``"adamax"``, or a function from ``learning_rate`` to an optimizer, such as
            ``functools.partial(fluid.optimizer.Momentum, momentum=0.9)``.
        learning_rate: what the optimizer starts with; a callback may change it.
        batch_size: number of samples per step, over all devices.
        epochs: number of passes over the samples.
        devices: number of replicas of the net.
        scheduler: ``"threads"``, ``"sync"``, a ``distributed.Client``, or ``"distributed"`` for the
            current client; None follows ``dask.config``. A Client cannot be cloned or pickled.
        validation_fraction: share of the samples held out to evaluate each epoch.
        shuffle: draw a new order of the samples for each epoch.
        sparse: ``"dense"`` gives the net sparse matrices as dense variables, a batch at a time;
            ``"rows"`` gives it :class:`SparseRows`, for matrices with many columns.
        callbacks: objects of :class:`dpexec.sklearn.Callback`, which are called during a fit.
        random_state: seed of initial parameters, order, dropout and the choice of validation
            samples.
        warm_start: the next fit starts with the parameters of the last one.
        verbose: 1 shows a progress bar.
    """

    _head: Head
    network_: Network
    history_: list[Record]

    def __init__(
        self,
        net: Callable[..., Any] | None = None,
        *,
        optimizer: str | Callable[..., Any] = "adam",
        learning_rate: float = 1e-3,
        batch_size: int = 64,
        epochs: int = 20,
        devices: int = 1,
        scheduler: Any = None,
        validation_fraction: float = 0.0,
        shuffle: bool = True,
        sparse: Sparse = "dense",
        callbacks: Sequence[Callback] | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.net = net
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.epochs = epochs
        self.devices = devices
        self.scheduler = scheduler
        self.validation_fraction = validation_fraction
        self.shuffle = shuffle
        self.sparse = sparse
        self.callbacks = callbacks
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    @property
    def history(self) -> pd.DataFrame:
        """A row for each epoch: loss, seconds, and loss and score of the validation samples."""
        import pandas as pd  # estimators work without pandas

        check_is_fitted(self)
        return pd.DataFrame(self.history_).set_index("epoch")

    @property
    def n_iter_(self) -> int:
        """The number of epochs trained."""
        return len(self.history_)

    @property
    def graph(self) -> Any:
        """The training program; notebooks draw it."""
        check_is_fitted(self)
        return self.network_.main

    def report(self, X: Any, y: Any, path: str | None = None, steps: int = 5) -> Any:
        """Record training steps, and return all views of them: graph, timeline, memory, advice.

        A copy of the estimator makes the steps, so training is not affected.

        Args:
            X: samples as for ``fit``, but no Dask collection; the first ones are used.
            y: their targets.
            path: where to write the page, such as ``report.html``; None for nowhere.
            steps: number of recorded steps; the first one compiles.

        Returns:
            A :class:`dpexec.viz.Report`; notebooks show it.

        Raises:
            NotFittedError: the estimator was not fitted.
            TypeError: X is a Dask collection.
        """
        check_is_fitted(self)
        if conversion.is_lazy(X) or conversion.is_lazy(y):
            raise TypeError(
                "report takes arrays: compute some rows of both, such as X.partitions[0].compute()"
            )
        inputs, y = self._checked(X, y, first=False)
        classes = getattr(self, "classes_", None)
        target, _ = copy.copy(self)._outputs_of(y, classes)  # it stores the shape of y
        count = len(target)
        feeds = {**inputs, LABEL: target, WEIGHT: np.ones((count, 1), np.float32)}
        rows = np.arange(steps * self.batch_size) % count
        parts = [rows[part] for part in batches(len(rows), self.batch_size)]
        return self.network_.report([fed(feeds, self.network_.spec.fed, p) for p in parts], path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @abstractmethod
    def _outputs_of(self, y: Any, classes: Array | None) -> tuple[Any, int]:
        """The target in the form that is fed, and the number of the net's outputs per sample.

        Args:
            y: an array, or a Dask array.
            classes: labels known in advance.
        """

    def _weights(self, sample_weight: Any, X: Any, y: Array) -> Array:
        """The samples' weights, scaled to a mean of 1."""
        given = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return np.asarray(given / given.mean(), np.float32)

    def _lazy_weights(self, sample_weight: Any, target: Any) -> Any:
        """The weights of Dask collections' samples, scaled to a mean of 1."""
        return lazily.weights(sample_weight, target)

    def _checked(self, X: Any, y: Any, first: bool) -> tuple[dict[str, Any], Any]:
        """Check inputs and target as far as both kinds of estimators allow; inputs by name."""
        if has_names(X):
            inputs = inputs_of(X)
            if y is None:
                raise ValueError("requires y to be passed, but the target y is None")
            if row_count(y) not in (None, row_count(next(iter(inputs.values())))):
                raise ValueError(f"X and y must have as many samples, but y has {row_count(y)}")
            return inputs, y
        X, y = validate_data(
            self, X, y, reset=first, accept_sparse="csr", dtype=np.float32, allow_nd=True,
            multi_output=True,
        )  # fmt: skip
        return {SOLE: X}, y

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, epochs: int, fresh: bool,
        classes: Array | None = None,
    ) -> Self:  # fmt: skip
        check_settings(self)
        fit = self._fit_collections if conversion.is_lazy(X) else self._fit_arrays
        going_on = contextlib.nullcontext() if fresh else self.network_.restored_on_error(Exception)
        # An interrupted fit leaves what it has trained, a failed one the estimator as it was.
        with self._restored_on_error(Exception), going_on:
            return fit(X, y, sample_weight, epochs, fresh, classes)

    def _fit_arrays(
        self, X: Any, y: Any, sample_weight: Any, epochs: int, fresh: bool, classes: Array | None
    ) -> Self:
        with self._restored_on_error():
            inputs, y = self._checked(X, y, fresh)
            target, outputs = self._outputs_of(y, classes)
            weights = self._weights(sample_weight, next(iter(inputs.values())), y)
            random = check_random_state(self.random_state)
            self._begin(inputs, outputs, random, fresh)
            feeds = {**inputs, LABEL: target, WEIGHT: weights.reshape(-1, 1)}
            train, held = self._divided(len(weights), target, random)

        def epoch(number: int) -> dict[str, float]:
            order = random.permutation(train) if self.shuffle else train
            return {"loss": self._trained(feeds, order), **self._measured(feeds, held)}

        run_epochs(self, epoch, epochs)
        return self

    @contextlib.contextmanager
    def _restored_on_error(self, kind: type[BaseException] = BaseException) -> Iterator[None]:
        """Restore the estimator if a fit fails: scikit-learn's checks write to it."""
        before = dict(self.__dict__)
        try:
            yield
        except kind:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _begin(self, inputs: Mapping[str, Any], outputs: int, random: Any, fresh: bool) -> None:
        """Create the network, or check that the existing one accepts such samples."""
        specs, seed = specs_of(inputs, self.sparse), int(random.randint(1, 2**31 - 1))
        if not fresh:
            had = self.network_.spec
            if (had.inputs, had.outputs) != (specs, outputs):
                raise ValueError(
                    f"the estimator was fitted to inputs {had.inputs} and {had.outputs} outputs, "
                    f"and cannot go on with {specs} and {outputs}"
                )
            if (self.net or three_layers) != had.net:
                raise ValueError("the estimator has another net now, and cannot go on with it")
            self.network_ = self.network_.going_on(
                self.optimizer, self.learning_rate, self.devices, self.scheduler
            )
            self.history_ = [*self.history_]  # the list of before stays as it is if this fit fails
            return
        net = self.net or three_layers
        optimizer, rate = self.optimizer, self.learning_rate
        spec = NetworkSpec(
            net, self._head, specs, outputs, optimizer, rate, self.devices, self.scheduler,
            seed,
        )  # fmt: skip
        self.network_, self.history_ = Network(spec), []

    def _divided(self, count: int, target: Array, random: Any) -> tuple[Array, Array]:
        """The indices of training samples and of validation samples."""
        every = np.arange(count)
        if not self.validation_fraction:
            return every, every[:0]
        strata = target if isinstance(self, ClassifierMixin) else None
        train, held = train_test_split(
            every, test_size=self.validation_fraction, random_state=random, stratify=strata
        )
        return train, held

    def _trained(self, feeds: Mapping[str, Any], order: Array) -> float:
        """Train on samples in a given order; returns their mean loss."""
        specs = self.network_.spec.fed
        parts = [order[rows] for rows in batches(len(order), self.batch_size)]
        totals = [self.network_.train(fed(feeds, specs, rows)) for rows in parts]
        found = [np.array(total).sum() for total in totals]  # steps need not wait
        return float(sum(found) / len(order))

    def _measured(self, feeds: Mapping[str, Any], held: Array) -> dict[str, float]:
        """Loss and score of the validation samples, if there are any."""
        if not len(held):
            return {}
        found = self._predicted(feeds, held)
        target, weight = feeds[LABEL][held], feeds[WEIGHT][held, 0]
        loss, score = self._judged(found, target, weight)
        return {"valid_loss": loss, "valid_score": score}

    @abstractmethod
    def _judged(self, found: Array, target: Array, weight: Array) -> tuple[float, float]:
        """Loss and score of predictions."""

    def _fit_collections(
        self, X: Any, y: Any, sample_weight: Any, epochs: int, fresh: bool, classes: Array | None
    ) -> Self:
        """Fit to Dask collections without moving their partitions here."""
        if self.sparse == "rows":
            raise ValueError("sparse='rows' is for arrays, but X is a Dask collection")
        with self._restored_on_error():
            inputs = conversion.inputs_of(X)
            self._check_columns(X, first=fresh)
            some = next(iter(inputs.values()))
            if y is None:
                raise ValueError("requires y to be passed, but the target y is None")
            y = conversion.array_of(y, some)
            conversion.require_rows([*(a.shape[0] for a in inputs.values()), y.shape[0]])
            conversion.require_parts({**inputs, "y": y})
            target, outputs = self._outputs_of(y, classes)
            weights = self._lazy_weights(sample_weight, target)
            self._begin(inputs, outputs, check_random_state(self.random_state), fresh)
        seed = self.network_.spec.seed
        train: Mapping[str, Any] = {**inputs, LABEL: target, WEIGHT: weights}
        held: Mapping[str, Any] = {}
        if self.validation_fraction:
            train, held = lazily.divided(train, self.validation_fraction, seed, self.scheduler)

        def epoch(number: int) -> dict[str, float]:
            loss = self.network_.train_on(
                train, number, batch_size=self.batch_size, shuffle=self.shuffle, seed=seed
            )
            return {"loss": loss, **self._measured_lazily(held)}

        run_epochs(self, epoch, epochs)
        return self

    def _check_columns(self, X: Any, first: bool) -> None:
        """Note the number and the names of a collection's columns, or compare them with the fit's.

        Raises:
            ValueError: they are others, or in another order.
        """
        if not first and (has_names(X) or [*self.network_.spec.inputs] != [SOLE]):
            found = X if has_names(X) else {SOLE: X}
            require_inputs(found, self.network_.spec.inputs, type(self).__name__)
        if has_names(X):
            return
        columns = conversion.meta_of(X)
        _check_feature_names(self, columns, reset=first)
        if columns.ndim > 1:
            _check_n_features(self, columns, reset=first)

    def _measured_lazily(self, held: Mapping[str, Any]) -> dict[str, float]:
        """Loss and score of the validation rows of collections, if there are any."""
        if not held:
            return {}
        inputs = {name: held[name] for name in self.network_.spec.inputs}
        X = inputs if list(inputs) != [SOLE] else inputs[SOLE]
        outputs = self.network_.spec.outputs
        found = lazily.predicted(self, "_found", X, np.dtype(np.float32), outputs)
        loss, score = self._judged(*dask.compute(
            found, held[LABEL], held[WEIGHT][:, 0], scheduler=self.scheduler
        ))  # fmt: skip
        return {"valid_loss": loss, "valid_score": score}

    def _predicting(self) -> Self:
        """A copy for predictions, without the values that cannot be pickled or are not needed."""
        found = copy.copy(self)
        found.callbacks, found.scheduler, found.history_ = None, None, []
        found.__dict__.pop("feature_names_in_", None)  # blocks have no names
        found.network_ = self.network_.predicting()
        return found

    def _predicted(self, inputs: Mapping[str, Any], rows: Array) -> Array:
        """The net's predictions for samples given by index, a batch at a time.

        A single sample is predicted in a batch of two copies: products of one row with a matrix are
        summed in another order than those of several rows, so results would depend on batch sizes.
        """
        specs, size = self.network_.spec.inputs, max(self.batch_size, _AT_ONCE)
        parts = [rows[part] for part in batches(len(rows), size)]
        if len(parts[-1]) == 1:
            parts[-1] = parts[-1].repeat(2)
        return self.network_.predict(fed(inputs, specs, part) for part in parts)[: len(rows)]

    def _found(self, X: Any) -> Array:
        """The net's predictions for samples."""
        check_is_fitted(self)
        specs = self.network_.spec.inputs
        if has_names(X):
            inputs = inputs_of(X)
            require_inputs(inputs, specs, type(self).__name__)
        else:
            if [*specs] != [SOLE]:
                require_inputs({SOLE: X}, specs, type(self).__name__)
            inputs = {SOLE: validate_data(
                self, X, reset=False, accept_sparse="csr", dtype=np.float32, allow_nd=True
            )}  # fmt: skip
        return self._predicted(inputs, np.arange(row_count(next(iter(inputs.values()))) or 0))
