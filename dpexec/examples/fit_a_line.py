"""Linear regression: how a disease progresses, from ten measurements of 442 patients."""

from __future__ import annotations

import numpy as np

import dpexec as fluid
from dpexec.examples.example import Data, Example, MissingPackageError, Net, split


def build() -> Net:
    """One fully connected layer, squared error, SGD."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data(name="x", shape=[None, 10], dtype="float32")
        y = fluid.data(name="y", shape=[None, 1], dtype="float32")
        predicted = fluid.layers.fc(x, size=1)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(input=predicted, label=y))
        test = main.clone(for_test=True)
        fluid.optimizer.SGD(learning_rate=0.02).minimize(loss)
    return Net(main, startup, test, loss, loss)


def load() -> Data:
    """354 patients to train with, 88 held out; every column has mean 0 and deviation 1.

    Raises:
        MissingPackageError: scikit-learn, which ships the table, is not installed.
    """
    try:
        from sklearn.datasets import load_diabetes
    except ImportError:
        raise MissingPackageError("the patients' data come with scikit-learn") from None
    table = load_diabetes()
    columns = {"x": table.data, "y": table.target[:, None]}
    arrays = {
        name: ((values - values.mean(axis=0)) / values.std(axis=0)).astype(np.float32)
        for name, values in columns.items()
    }
    return Data(*split(arrays, 0.2), "scikit-learn's diabetes data")


EXAMPLE = Example(
    name="fit_a_line",
    summary="linear regression on medical data",
    build=build,
    load=load,
    batch_size=64,
    epochs=40,
    metric_name="loss",
)
