"""The estimators of ``dpexec.sklearn`` on a cluster."""

import dask.array as da
import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score

from dpexec.sklearn import Classifier

X, Y = (array[:600] for array in load_digits(return_X_y=True))


def test_a_cluster_gives_the_same_bits(pair):
    rows, labels = da.from_array(X, chunks=(250, 64)), da.from_array(Y, chunks=250)
    here = Classifier(epochs=2, random_state=0, devices=2).fit(rows, labels)
    there = Classifier(epochs=2, random_state=0, devices=2, scheduler="distributed")
    with pair.as_current():
        there.fit(rows, labels)
        there_found = there.predict(rows).compute()
    for name, value in here.network_.state().items():
        np.testing.assert_array_equal(there.network_.state()[name], value)
    np.testing.assert_array_equal(there_found, here.predict(rows).compute())


def test_joblib_on_dask(pair):
    estimator = Classifier(epochs=2, random_state=0)
    expected = cross_val_score(estimator, X, Y, cv=2)
    with pair.as_current(), joblib.parallel_config("dask"):
        np.testing.assert_array_equal(cross_val_score(estimator, X, Y, cv=2, n_jobs=2), expected)
