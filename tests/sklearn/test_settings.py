"""Arguments of estimators that change between fits, that are wrong, or that let a fit fail."""

import functools

import dask.array as da
import numpy as np
import pytest
from sklearn.datasets import load_iris

import dpexec as fluid
from dpexec.sklearn import Callback, Classifier, Regressor

X, Y = load_iris(return_X_y=True)


def small(**arguments):
    return Classifier(epochs=2, random_state=0, warm_start=True, **arguments)


def test_a_warm_fit_has_the_new_learning_rate_and_devices():
    found = small(learning_rate=0.02).fit(X, Y)
    found.set_params(learning_rate=0.5, devices=2).fit(X, Y)
    assert found.network_.state()["learning_rate"] == [0.5]
    again = small(learning_rate=0.02).fit(X, Y).set_params(learning_rate=0.5).fit(X, Y)
    np.testing.assert_allclose(found.predict_proba(X), again.predict_proba(X), atol=1e-4)


class Doubled(Callback):
    def on_epoch_end(self, estimator, record):
        (rate,) = estimator.network_.state()["learning_rate"]
        estimator.network_.set_learning_rate(2 * rate)


def test_a_rate_that_callbacks_set_stays_if_the_argument_does():
    found = small(learning_rate=0.25, callbacks=[Doubled()]).fit(X, Y).fit(X, Y)
    assert found.network_.state()["learning_rate"] == [4.0]


def test_another_optimizer_goes_on_with_the_parameters():
    found = small(learning_rate=0.02).fit(X, Y)
    before = found.predict_proba(X)
    found.set_params(optimizer="sgd", learning_rate=0.0).fit(X, Y)
    np.testing.assert_array_equal(found.predict_proba(X), before)
    assert not any("moment" in name for name in found.network_.state())


def test_another_net_is_refused():
    found = small().fit(X, Y)
    before = found.predict_proba(X)
    found.set_params(net=lambda x, outputs: fluid.layers.fc(x, outputs))
    with pytest.raises(ValueError, match="another net now"):
        found.fit(X, Y)
    np.testing.assert_array_equal(found.predict_proba(X), before)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("learning_rate", -1.0, "learning_rate must be a number of at least 0, but is -1.0"),
        ("learning_rate", "fast", "learning_rate must be a number of at least 0, but is 'fast'"),
        ("validation_fraction", "x", "validation_fraction must be from 0 to below 1, but is 'x'"),
        ("net", 3, "net must be a function of the input variable, but is 3"),
        ("callbacks", 5, "callbacks must be Callback objects, but one is 5"),
        ("callbacks", [print], "callbacks must be Callback objects, but one is <built-in"),
    ],
)
def test_wrong_arguments(name, value, problem):
    with pytest.raises(ValueError, match=problem):
        Classifier(**{name: value}).fit(X, Y)


def test_a_net_must_return_a_variable():
    with pytest.raises(TypeError, match="net must return a Variable, but returned None"):
        Classifier(lambda x: None).fit(X, Y)


def test_a_fit_that_diverges_is_an_error_and_leaves_the_last_one():
    found = Regressor(epochs=2, random_state=0).fit(X, Y)
    before, rows = found.predict(X), found.history
    found.set_params(learning_rate=1e30, optimizer="sgd")
    with pytest.raises(ValueError, match=r"the loss of epoch \d is (nan|inf): the training diverg"):
        found.fit(X * 1e3, Y)
    np.testing.assert_array_equal(found.predict(X), before)
    assert found.history.equals(rows)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("devices", [1, 2])
def test_a_part_of_a_stream_that_fails_is_as_if_it_never_came(lazy, devices):
    rows = da.from_array(X, chunks=(50, 4)) if lazy else X
    streams = [Regressor(random_state=0, devices=devices, warm_start=True) for _ in range(2)]
    for found in streams:
        found.partial_fit(rows, Y)
    with pytest.raises(ValueError, match="the training diverged"):
        streams[0].partial_fit(rows * 1e30, Y)
    fails = Fails()
    fails.kind = ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        streams[0].set_params(callbacks=[fails], devices=1, learning_rate=0.1).fit(rows, Y)
    streams[0].set_params(callbacks=None, devices=devices, learning_rate=1e-3)
    for found in streams:
        found.partial_fit(rows, Y)
        assert found.n_iter_ == 2
    np.testing.assert_array_equal(streams[0].predict(X), streams[1].predict(X))


class Fails(Callback):
    def on_epoch_end(self, estimator, record):
        raise self.kind


def test_a_fit_that_is_interrupted_leaves_what_it_trained():
    fails = Fails()
    found = functools.partial(Classifier, epochs=3, random_state=0, callbacks=[fails])()
    fails.kind = ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        found.fit(X, Y)
    assert not hasattr(found, "network_")
    fails.kind = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        found.fit(X, Y)
    assert found.n_iter_ == 1


def test_several_labels_for_a_sample_are_refused_in_collections_too():
    several = np.eye(3, dtype=int)[Y]
    for y in (several, da.from_array(several, chunks=(50, 3))):
        with pytest.raises(ValueError, match=r"y should be a 1d array, got an array of shape"):
            Classifier().fit(da.from_array(X, chunks=(50, 4)) if y is not several else X, y)


def test_weights_of_classes_that_a_part_does_not_tell_are_refused():
    with pytest.raises(ValueError, match="'balanced' is not supported for partial_fit"):
        Classifier(class_weight="balanced").partial_fit(X, Y, classes=[0, 1, 2])
    rows, labels = da.from_array(X, chunks=(50, 4)), da.from_array(Y, chunks=50)
    for X_, y in ((X, Y), (rows, labels)):
        with pytest.raises(ValueError, match=r"not in class_weight"):
            Classifier(class_weight={7: 5}).fit(X_, y)
        with pytest.raises(ValueError, match="Got 'even'"):
            Classifier(class_weight="even").fit(X_, y)


def both(u, v, outputs):
    return fluid.layers.fc([u, v], outputs)


@pytest.mark.parametrize("lazy", [False, True])
def test_predictions_ask_for_the_inputs_of_the_fit(lazy):
    rows = da.from_array(X, chunks=(50, 4)) if lazy else X
    found = Classifier(both, epochs=1, random_state=0).fit({"u": rows, "v": X[:, :2]}, Y)
    right = found.predict({"u": rows, "v": X[:, :2]})
    assert right.shape == Y.shape
    for wrong, problem in (
        ({"u": rows}, r"X has the inputs \['u'\], but Classifier was fitted to .*'u', 'v'"),
        ({"u": rows, "v": rows, "w": rows}, r"'u', 'v', 'w'"),
        ({"u": rows, "v": rows}, r"input 'v' has samples of the shape \(4,\).*to \(2,\)"),
        (rows, "no names of inputs"),
    ):
        with pytest.raises(ValueError, match=problem):
            found.predict(wrong)


def test_samples_at_the_end_may_weigh_nothing():
    weight = np.repeat([1.0, 0.0], [100, 50])
    rows = da.from_array(X, chunks=(50, 4))
    found = Classifier(epochs=2, random_state=0, batch_size=25, shuffle=False)
    losses = found.fit(rows, Y, sample_weight=weight).history.loss
    assert np.isfinite(losses).all()
