"""Estimators on Dask collections: fitted partition by partition, predicting lazily."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import make_regression

import dpexec as fluid
from dpexec.sklearn import Classifier, EarlyStopping, Regressor
from tests.sklearn.test_estimators import digits


def collections(chunks):
    X, y = digits()
    return da.from_array(X, chunks=(chunks, 64)), da.from_array(y, chunks=chunks)


def test_collections_are_trained_on_and_predicted_lazily():
    X, y = digits()
    found = Classifier(epochs=8, random_state=0, devices=2).fit(*collections(250))
    assert found.score(X, y) > 0.9
    lazy = found.predict(collections(250)[0])
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute(), found.predict(X))
    shares = found.predict_proba(collections(250)[0])
    assert shares.shape == (600, 10)
    np.testing.assert_allclose(shares.compute(), found.predict_proba(X), rtol=1e-5)


def test_dataframes():
    X, y = make_regression(300, 3, random_state=0)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y / y.std()})
    lazy = dd.from_pandas(frame, npartitions=3)
    found = Regressor(epochs=40, learning_rate=0.02, random_state=0)
    found.fit(lazy[["a", "b", "c"]], lazy.y, sample_weight=lazy.y * 0 + 1)
    assert found.score(frame[["a", "b", "c"]], frame.y) > 0.9
    assert len(found.predict(lazy[["a", "b", "c"]]).compute()) == 300


def test_validation_rows_are_drawn_in_every_partition():
    X, y = collections(250)
    stop = EarlyStopping("valid_score", patience=2)
    given = {"validation_fraction": 0.2, "learning_rate": 0.02, "random_state": 0}
    found = Classifier(epochs=40, callbacks=[stop], **given).fit(X, y)
    history = found.history
    assert found.n_iter_ == history.valid_score.idxmax() + 4 < 40
    assert history.valid_score.max() > 0.9
    # 50 + 50 + 20 of 600 rows, whatever order blocks are computed in
    with dask.config.set(scheduler="sync"):
        again = Classifier(epochs=2, **given).fit(X, y)
    pd.testing.assert_frame_equal(
        again.history.drop(columns="seconds"), history[:2].drop(columns="seconds")
    )
    with pytest.raises(ValueError, match="of every partition is less than a row"):
        Classifier(validation_fraction=0.1).fit(*(part.rechunk({0: 5}) for part in (X, y)))


def test_classes_have_weights():
    X, y = da.zeros((40, 1), chunks=10), da.from_array(np.arange(40) % 4 == 0, chunks=10)
    found = Classifier(
        lambda x: fluid.layers.fc(x, 2),  # without features it learns how frequent the classes are
        optimizer=fluid.optimizer.SGD, learning_rate=2.0, epochs=10, random_state=0,
        class_weight="balanced",
    )  # fmt: skip
    found.fit(X, y.astype(int))
    np.testing.assert_allclose(found.predict_proba(np.zeros((1, 1))), [[0.5, 0.5]], atol=1e-4)
    thrice = found.set_params(class_weight={1: 9}).fit(X, y.astype(int), sample_weight=y * 0 + 1)
    np.testing.assert_allclose(thrice.predict_proba(np.zeros((1, 1))), [[0.25, 0.75]], atol=1e-4)


def test_several_collections_predict_lazily():
    def net(kind, price):
        return fluid.layers.fc([fluid.embedding(kind, [5, 3]), price], 2)

    random = np.random.default_rng(0)
    kind, price = random.integers(0, 5, (300, 1)), random.normal(size=(300, 2))
    y = ((kind[:, 0] > 2) ^ (price[:, 0] > 2)).astype(int)
    whole = {"kind": kind, "price": price}
    lazy = {name: da.from_array(value, chunks=(120, 1)) for name, value in whole.items()}
    found = Classifier(net, epochs=10, learning_rate=0.05, random_state=0)
    found.fit(lazy, da.from_array(y, chunks=120))
    predicted = found.predict(lazy)
    assert isinstance(predicted, da.Array)
    np.testing.assert_array_equal(predicted.compute(), found.predict(whole))
    assert found.predict_proba(lazy).compute().shape == (300, 2)
    with pytest.raises(ValueError, match=r"the same partitions, but they have {'kind': 3, 'pr"):
        found.predict({"kind": lazy["kind"], "price": lazy["price"].rechunk((300, 2))})


def test_empty_partitions_are_left_out():
    X, y = digits()
    frame = pd.DataFrame(X).assign(y=y)
    lazy = dd.from_pandas(frame, npartitions=3)
    lazy = lazy.map_partitions(lambda part: part[part.index >= 200])  # nothing of the first
    rows = lazy[list(range(64))]
    found = Classifier(epochs=2, random_state=0).fit(rows, lazy.y)
    assert len(found.predict(rows).compute()) == 400
    assert found.predict_proba(rows).compute().shape == (400, 10)


def test_sparse_blocks_become_dense():
    X, y = collections(250)
    thin = X.map_blocks(sparse.csr_matrix, meta=sparse.csr_matrix((0, 0), dtype=np.float32))
    found = Classifier(epochs=2, random_state=0).fit(thin, y)
    dense = Classifier(epochs=2, random_state=0).fit(X, y)
    np.testing.assert_array_equal(found.predict(thin).compute(), dense.predict(X).compute())
    with pytest.raises(ValueError, match="sparse='rows' is for arrays, but X is a Dask collection"):
        Classifier(sparse="rows").fit(thin, y)


@pytest.mark.parametrize(("value", "message"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_values_that_are_not_finite_are_refused(value, message):
    X, y = digits()
    bad = np.array(X)
    bad[300, 3] = value
    estimator = Classifier(epochs=1)
    with pytest.raises(ValueError, match=f"Input X contains {message}"):
        estimator.fit(da.from_array(bad, chunks=(250, 64)), da.from_array(y, chunks=250))
    gaps = np.where(np.arange(len(y)) == 7, np.nan, y)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        estimator.fit(da.from_array(X, chunks=(250, 64)), da.from_array(gaps, chunks=250))


def test_labels_that_partial_fit_does_not_know():
    X, y = collections(250)
    estimator = Classifier(random_state=0).partial_fit(X, y, classes=np.arange(10))
    with pytest.raises(ValueError, match=r"none of the classes .*: \[10\]"):
        estimator.partial_fit(X, y + 1)
