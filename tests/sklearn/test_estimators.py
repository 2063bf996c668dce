"""Nets as estimators: scikit-learn's own checks, and their use with its tools."""

import functools
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import dpexec as fluid
from dpexec.sklearn import (
    Callback,
    Checkpoints,
    Classifier,
    EarlyStopping,
    LearningRateSchedule,
    Regressor,
)
from tests.guides import programs

layers = fluid.layers

EXPECTED = {
    f"check_sample_weight_equivalence_on_{kind}_data": "sums of float32 are rounded otherwise"
    for kind in ("dense", "sparse")
}
ORDER = "check_methods_sample_order_invariance"
ESTIMATORS = [
    Classifier(epochs=40, learning_rate=0.01, random_state=0),
    Regressor(epochs=40, learning_rate=0.01, random_state=0),
]


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: EXPECTED)
def test_checks_of_scikit_learn(estimator, check):
    try:
        check(estimator)
    except AssertionError:
        if check.func.__name__ != ORDER:
            raise
        # Exact on some processors. The test below allows what others differ by.
        pytest.xfail("products of float32 round by their place in the batch")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_predictions_hardly_depend_on_the_order_of_rows(estimator):
    X, y = make_regression(20, 3, random_state=0)
    made = clone(estimator).fit(X, y if isinstance(estimator, Regressor) else y > 0)
    method = made.predict if isinstance(estimator, Regressor) else made.predict_proba
    order = np.random.default_rng(0).permutation(20)
    found, expected = method(X[order]), method(X)[order]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@functools.cache
def digits():
    X, y = load_digits(return_X_y=True)
    return (X / 16)[:600].astype("float32"), y[:600]


def fitted(**arguments):
    return Classifier(random_state=0, epochs=8, **arguments).fit(*digits())


def test_results_do_not_depend_on_devices_or_schedulers():
    one = fitted(devices=2, scheduler="sync")
    two = fitted(devices=2, scheduler="threads")
    assert one.history.loss.equals(two.history.loss)
    for name, value in one.network_.state().items():
        np.testing.assert_array_equal(two.network_.state()[name], value)
    assert one.score(*digits()) > 0.9


def test_names_of_labels_come_back():
    X, y = digits()
    names = np.array(["even", "odd"])[y % 2]
    found = Classifier(lambda x: layers.fc(x, 1), learning_rate=0.05, random_state=0, epochs=8).fit(
        X, names
    )
    assert set(found.predict(X)) == {"even", "odd"}
    np.testing.assert_allclose(found.predict_proba(X).sum(axis=1), 1)
    assert found.score(X, names) > 0.8


def conv(x, outputs):
    image = layers.reshape(x, [-1, 1, 8, 8])
    return layers.fc(layers.conv2d(image, 4, 3, act="relu"), outputs)


def test_a_net_and_an_optimizer_of_ones_own():
    momentum = functools.partial(fluid.optimizer.Momentum, momentum=0.9)
    found = fitted(net=conv, optimizer=momentum, learning_rate=0.05)
    assert found.score(*digits()) > 0.9
    assert "conv2d" in {op.type for op in found.graph.global_block().ops}


def test_errors_name_what_does_not_fit():
    X, y = digits()
    with pytest.raises(ValueError, match="there are 10 classes, but the net returns 3 numbers"):
        Classifier(lambda x: layers.fc(x, 3)).fit(X, y)
    with pytest.raises(ValueError, match="optimizer must be one of adagrad, adam"):
        Classifier(optimizer="adamw").fit(X, y)
    with pytest.raises(ValueError, match="batch_size must be a positive integer, but is 0"):
        Classifier(batch_size=0).fit(X, y)
    with pytest.raises(ValueError, match="at least one non-zero"):
        Classifier().fit(X, y, sample_weight=np.zeros(len(y)))
    with pytest.raises(NotFittedError):
        _ = Classifier().history


def test_a_failed_fit_leaves_the_last_one():
    found = fitted()
    before = found.predict_proba(digits()[0])
    with pytest.raises(ValueError, match="NaN"):
        found.fit(np.full((4, 64), np.nan), [0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"fitted|sample_weight"):
        found.fit(np.zeros((3, 2)), ["a", "b", "c"], sample_weight=[1, 2])
    np.testing.assert_array_equal(found.predict_proba(digits()[0]), before)


def test_pickles_and_clones():
    found = fitted(net=conv)
    again = pickle.loads(pickle.dumps(found))
    X, y = digits()
    np.testing.assert_array_equal(again.predict_proba(X), found.predict_proba(X))
    more = [e.set_params(warm_start=True, epochs=1).fit(X, y) for e in (found, again)]
    np.testing.assert_array_equal(more[0].predict_proba(X), more[1].predict_proba(X))
    assert not hasattr(clone(found), "network_")


def test_tools_of_scikit_learn():
    X, y = digits()
    whole = make_pipeline(
        StandardScaler(), Classifier(epochs=8, learning_rate=0.01, random_state=0)
    )
    assert cross_val_score(whole, X, y, cv=2).min() > 0.8
    search = GridSearchCV(
        Classifier(epochs=4, random_state=0), {"learning_rate": [1e-5, 1e-2]}, cv=2
    )
    assert search.fit(X, y).best_params_ == {"learning_rate": 0.01}


def test_parts_of_a_data_set_one_after_another():
    X, y = digits()
    found = Classifier(random_state=0, learning_rate=0.01)
    for start in range(0, 600, 200):
        found.partial_fit(X[start : start + 200], y[start : start + 200], classes=np.arange(10))
    assert found.n_iter_ == 3
    with pytest.raises(ValueError, match=r"y has labels that are none of the classes .*: \[11\]"):
        found.partial_fit(X[:2], [11, 0])
    with pytest.raises(ValueError, match="classes are"):
        found.partial_fit(X[:2], y[:2], classes=[1, 2])


def test_weights_count():
    X = np.zeros((4, 1))
    y = [0, 0, 0, 1]
    plain = Classifier(epochs=200, learning_rate=0.05, random_state=0)
    shares = plain.fit(X, y, sample_weight=[1, 1, 1, 9]).predict_proba(X[:1])
    np.testing.assert_allclose(shares, [[0.25, 0.75]], atol=0.01)
    balanced = clone(plain).set_params(class_weight="balanced").fit(X, y)
    np.testing.assert_allclose(balanced.predict_proba(X[:1]), [[0.5, 0.5]], atol=0.01)


def test_several_inputs_and_sequences():
    def net(words, price):
        rows = fluid.embedding(words, [20, 8])
        text = layers.sequence_pool(rows, "average")
        return layers.fc([text, price], 2)

    random = np.random.default_rng(0)
    words = [random.integers(0, 20, random.integers(1, 6)) for _ in range(200)]
    y = np.array([w.mean() > 10 for w in words]).astype(int)
    X = {"words": words, "price": random.normal(size=(200, 1))}
    found = Classifier(net, epochs=30, learning_rate=0.05, random_state=0, devices=2).fit(X, y)
    assert found.score(X, y) > 0.9
    with pytest.raises(ValueError, match=r"as many samples, but they have \{'words': 3, 'price'"):
        found.predict({"words": words[:3], "price": X["price"]})
    with pytest.raises(TypeError, match="input 'words' is a list, so it must hold a sequence"):
        found.predict({"words": [1, 2], "price": X["price"][:2]})


def test_sparse_rows_are_rows():
    X, y = digits()
    dense = Classifier(epochs=3, random_state=0).fit(X, y)
    thin = Classifier(epochs=3, random_state=0).fit(sparse.csc_array(X), y)
    np.testing.assert_array_equal(thin.predict_proba(sparse.csr_array(X)), dense.predict_proba(X))


def product(words, outputs):
    return words.product(outputs)


def test_sparse_rows_read_what_they_need():
    random = np.random.default_rng(0)
    X = sparse.random_array((300, 5000), density=0.002, rng=random, format="csr")
    y = np.asarray(X[:, :2500].sum(axis=1) > X[:, 2500:].sum(axis=1)).astype(int)
    thin = {"words": X}
    found = Classifier(product, sparse="rows", epochs=40, learning_rate=0.05, random_state=0)
    found.fit(thin, y)
    assert found.score(thin, y) > 0.95
    empty = sparse.csr_array((1, 5000))
    np.testing.assert_array_equal(found.predict_proba({"words": empty}), [[0.5, 0.5]])
    (table,) = [v for v in found.graph.list_vars() if v.shape == (5000, 2) and v.persistable][:1]
    before = found.network_.state()[table.name]
    found.set_params(optimizer="sgd", warm_start=True)
    with pytest.raises(ValueError, match="sparse must be 'dense' or 'rows', but is 'thin'"):
        found.set_params(sparse="thin").fit(thin, y)
    np.testing.assert_array_equal(found.network_.state()[table.name], before)


def test_sparse_rows_multiply_as_matrices_do():
    random = np.random.default_rng(1)
    X = sparse.random_array((50, 30), density=0.2, rng=random, format="coo", dtype=np.float32)
    y = random.normal(size=50)

    def dense(x, outputs):
        return layers.fc(x, outputs, bias_attr=False)

    def thin(x, outputs):
        return x.product(outputs)

    given = {"optimizer": "sgd", "learning_rate": 0.1, "epochs": 3, "random_state": 0}
    one = Regressor(dense, **given, sparse="dense").fit(X, y)
    two = Regressor(thin, **given, sparse="rows").fit(X, y)
    np.testing.assert_allclose(two.predict(X), one.predict(X), rtol=1e-4, atol=1e-5)


def test_reports_leave_the_estimator_as_it_is(tmp_path):
    found = fitted(devices=2)
    X, y = digits()
    before = found.network_.state()
    report = found.report(X[:100], y[:100], str(tmp_path / "report.html"))
    assert any("Timeline" in repr(view) for view in report.views)
    assert (tmp_path / "report.html").stat().st_size > 10_000
    for name, value in found.network_.state().items():
        np.testing.assert_array_equal(value, before[name])


def test_several_targets():
    X, y = make_regression(300, 5, n_targets=2, random_state=0)
    y /= y.std(axis=0)
    found = Regressor(epochs=60, learning_rate=0.01, random_state=0).fit(X, y)
    assert found.predict(X).shape == y.shape
    assert found.score(X, y) > 0.9


class Rates(Callback):
    def __init__(self):
        self.seen = []

    def on_epoch_end(self, estimator, record):
        (rate,) = estimator.network_.state()["learning_rate"]
        self.seen.append(float(rate))


def test_callbacks(tmp_path):
    rates, path = Rates(), str(tmp_path / "net-{epoch}.pkl")
    schedule = LearningRateSchedule(lambda epoch: 0.5**epoch)
    X, y = make_regression(100, 3, random_state=0)
    estimator = Regressor(
        epochs=4, random_state=0, callbacks=[schedule, rates, Checkpoints(path, every=2)]
    )
    estimator.fit(X, y / y.std())
    assert rates.seen == [1, 0.5, 0.25, 0.125]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net-1.pkl", "net-3.pkl"]
    last = pickle.loads((tmp_path / "net-3.pkl").read_bytes())
    np.testing.assert_array_equal(last.predict(X), estimator.predict(X))


def test_early_stopping_gives_the_best_epoch_back():
    X, y = digits()
    stop = EarlyStopping("valid_score", patience=2)
    found = Classifier(
        epochs=60, learning_rate=0.05, validation_fraction=0.3, random_state=0, callbacks=[stop]
    ).fit(X[:200], y[:200])
    assert found.n_iter_ == found.history.valid_score.idxmax() + 4 < 60
    with pytest.raises(KeyError, match="monitors 'valid_loss', but an epoch has epoch, loss"):
        Classifier(callbacks=[EarlyStopping()]).fit(X, y)


def test_the_guide(capsys):
    names: dict = {}
    for program in programs("docs/estimators.md"):
        exec(program, names)
    first, *_, thin, last = capsys.readouterr().out.splitlines()
    assert float(first) > 0.95
    assert float(thin) > 0.9
    assert float(last) > 0.9
    names["lazy"].set_params(callbacks=[names["PrintLoss"]()], epochs=1)
    names["lazy"].fit(names["rows"], names["target"])
    assert capsys.readouterr().out.startswith("0 0.")


def test_fits_in_threads_are_those_made_one_after_the_other():
    x = np.random.default_rng(0).normal(size=(60, 4))

    def fitted(seed):
        model = Regressor(epochs=2, random_state=seed).fit(x, x[:, seed % 4])
        return model.predict(x)

    one_by_one = [fitted(seed) for seed in range(6)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(fitted, range(6)))
    np.testing.assert_array_equal(together, one_by_one)
