"""Columns, lengths and scores of Dask collections, in the words of scikit-learn."""

import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import r2_score

from dpexec.sklearn import Classifier, Regressor

R = np.random.default_rng(0)
X = R.normal(size=(90, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
FRAME = pd.DataFrame(X, columns=list("abc"))
ROWS, LABELS = da.from_array(X, chunks=(30, 3)), da.from_array(Y, chunks=30)


def lazy(frame):
    return dd.from_pandas(frame, npartitions=3)


def small(**given):
    return Classifier(epochs=1, random_state=0, **given)


def test_columns_have_the_names_and_the_order_of_the_fit():
    found = small().fit(lazy(FRAME), lazy(FRAME.assign(y=Y)).y)
    assert [*found.feature_names_in_] == ["a", "b", "c"]
    assert found.n_features_in_ == 3
    for method in (found.predict, found.predict_proba):
        with pytest.raises(ValueError, match="must be in the same order"):
            method(lazy(FRAME[["c", "b", "a"]]))
    with pytest.raises(ValueError, match="yet now missing"):
        found.predict(lazy(FRAME[["a", "b"]]))
    with pytest.raises(ValueError, match="X has 2 features, but Classifier is expecting 3"):
        small().fit(ROWS, LABELS).predict(ROWS[:, :2])


@pytest.mark.parametrize("kind", ["Float64", "float32[pyarrow]"])
def test_nullable_columns_are_those_of_numpy(kind):
    kinds = {"Float64": "Int64"}.get(kind, "int64[pyarrow]")
    frame = FRAME.astype(kind).assign(y=pd.array(Y, kinds))
    found = small().fit(lazy(frame[list("abc")]), lazy(frame).y)
    assert found.classes_.dtype == np.int64
    made = found.predict(lazy(frame[list("abc")])).compute()
    plain = small().fit(lazy(FRAME), lazy(FRAME.assign(y=Y)).y)
    np.testing.assert_array_equal(made, plain.predict(FRAME))
    frame.loc[3, "b"] = pd.NA
    with pytest.raises(ValueError, match="Input X contains NaN"):
        small().fit(lazy(frame[list("abc")]), LABELS)
    frame.loc[3, "y"] = pd.NA
    with pytest.raises(ValueError, match="contains NaN"):
        small().fit(ROWS, lazy(frame).y)


def test_columns_without_numbers_are_named():
    kinds = pd.Categorical(R.choice(["u", "v"], 90))
    frame = FRAME.assign(kind=kinds, day=pd.date_range("2020", periods=90), word="w")
    with pytest.raises(ValueError, match=r"'kind' \(category\), 'day' \(datetime.*'word'"):
        small().fit(lazy(frame), LABELS)
    numbers = FRAME.assign(kind=pd.Categorical(R.integers(0, 3, 90)))
    small().fit(lazy(numbers), LABELS)


def test_what_lies_in_memory_is_divided_as_the_collection():
    one = small().fit(ROWS, LABELS, sample_weight=da.ones(90, chunks=30))
    two = small().fit(ROWS, Y, sample_weight=np.ones(90))
    assert one.history.loss.equals(two.history.loss)
    unknown = ROWS[ROWS[:, 0] > -9]
    with pytest.raises(
        ValueError, match=r"a ndarray cannot be divided like X.*compute_chunk_sizes"
    ):
        small().fit(unknown, Y)
    with pytest.raises(ValueError, match="same partitions, but they have 3 of X, 2 of y"):
        small().fit(lazy(FRAME), dd.from_pandas(pd.Series(Y), npartitions=2))


def test_wrong_collections_are_refused_as_scikit_learn_does():
    before = small().fit(ROWS, LABELS)
    names = {**before.__dict__}
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[90, 60\]"):
        before.fit(ROWS, LABELS[:60])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        before.fit(ROWS, LABELS, sample_weight=da.ones(60, chunks=30))
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        before.fit(ROWS, ROWS[:, 0])
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array instead"):
        before.fit(ROWS[:, 0], LABELS)
    with pytest.raises(ValueError, match="0 sample"):
        before.fit(ROWS[ROWS[:, 0] > 99], LABELS[ROWS[:, 0] > 99])
    with pytest.raises(ValueError, match="target y is None"):
        before.fit(ROWS, None)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        Regressor(epochs=1).fit(ROWS, da.where(ROWS[:, 0] > 0, ROWS[:, 0], np.nan))
    for other in (dask.delayed(X), dask.bag.from_sequence([1, 2])):
        with pytest.raises(TypeError, match="all must be Dask arrays, dataframes or series"):
            before.fit(other, LABELS)
        with pytest.raises(TypeError, match="all must be Dask arrays, dataframes or series"):
            before.predict(other)
    assert before.__dict__ == names


def test_scores_of_collections_are_those_of_arrays():
    found = small().fit(ROWS, LABELS)
    weights = da.from_array(R.uniform(size=90), chunks=30)
    kept = ROWS[:, 1] > -0.5  # blocks of unknown sizes
    assert found.score(ROWS, LABELS) == pytest.approx(found.score(X, Y))
    wanted = found.score(X, Y, np.array(weights))
    assert found.score(ROWS, LABELS, weights) == pytest.approx(wanted)
    assert found.score(ROWS[kept], LABELS[kept]) == pytest.approx(found.score(X[kept], Y[kept]))
    frame = lazy(FRAME.assign(y=Y))
    named = small().fit(frame[list("abc")], frame.y)
    assert named.score(frame[list("abc")], frame.y) == pytest.approx(named.score(FRAME, Y))
    both = X[:, :2] * 2 + 1
    line = Regressor(epochs=1, random_state=0).fit(ROWS, da.from_array(both, chunks=(30, 2)))
    for weight in (None, np.array(weights)):
        wanted = r2_score(both, line.predict(X), sample_weight=weight)
        assert line.score(ROWS, both, weight) == pytest.approx(wanted, rel=1e-5)


def test_blocks_are_trained_on_one_after_another_in_a_graph():
    def trained(estimator, rows, labels):
        return clone(estimator).partial_fit(rows, labels, classes=[0, 1]) if not hasattr(
            estimator, "classes_") else estimator.partial_fit(rows, labels)  # fmt: skip

    whole = small()
    for rows, labels in zip(ROWS.to_delayed().ravel(), LABELS.to_delayed().ravel(), strict=True):
        whole = dask.delayed(trained)(whole, rows, labels)
    assert whole.compute().n_iter_ == 3


def test_parameters_of_both_estimators_are_stated_once():
    names = set(Regressor().get_params())
    assert set(Classifier().get_params()) == names | {"class_weight"}
    assert Classifier(None, epochs=3, class_weight="balanced").get_params()["epochs"] == 3
    with pytest.raises(TypeError, match="depth"):
        Classifier(depth=3)
