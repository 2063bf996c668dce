"""The layers ``accuracy``, ``auc`` and ``mean_iou``, and the logic of masks."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers


def test_auc_without_slide_steps_counts_all_batches():
    score = fluid.data("score", [None, 1], "float32")
    label = fluid.data("label", [None, 1], "int64")
    of_all, of_latest, counts = fluid.layers.auc(score, label, num_thresholds=7, slide_steps=0)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    batch = {"score": np.array([[0.1], [0.8]], "float32"), "label": np.array([[1], [0]])}
    for hits in (1, 2):
        area, latest, positive, *_ = exe.run(feed=batch, fetch_list=[of_all, of_latest, *counts])
        assert area == latest == 0.0
        np.testing.assert_array_equal(positive, [[hits, 0, 0, 0, 0, 0, 0, 0]])


def test_accuracy_is_of_single_precision_whatever_it_judges():
    scores = fluid.data("score", [None, 2], "float64")
    share = fluid.layers.accuracy(scores, fluid.data("label", [None, 1], "int64"))
    batch = {"score": np.array([[0.1, 0.9], [0.8, 0.2]]), "label": np.array([[1], [1]])}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed=batch, fetch_list=[share])
    assert (found, found.dtype, share.dtype) == (0.5, "float32", fluid.core.VarDesc.VarType.FP32)


def test_overlap_of_a_vector_of_predictions_with_a_column_of_labels():
    predicted = layers.assign(np.array([0, 1, 2, 2], "int32"))
    label = layers.assign(np.array([[0], [1], [1], [2]], "int32"))
    found = fluid.Executor(fluid.CPUPlace()).run(
        fetch_list=list(layers.mean_iou(predicted, label, 3))
    )
    np.testing.assert_allclose(found[0], [2 / 3], rtol=1e-6)  # Paddle's numbers
    assert [value.tolist() for value in found[1:]] == [[0, 1, 1], [1, 1, 1]]
    with pytest.raises(fluid.core.EnforceNotMet, match="equally many"):
        layers.mean_iou(predicted, layers.assign(np.zeros((3, 1), "int32")), 3)


def test_logic_of_a_vector_and_a_column_goes_element_by_element():
    vector, column = fluid.data("v", [None]), fluid.data("c", [None, 1])
    row = layers.logical_and(vector > 0.0, column > 0.0)
    stood = layers.logical_or(column > 0.0, vector > 0.0)
    assert (row.shape, stood.shape) == ((-1,), (-1, 1))  # Paddle's shapes
    feed = {"v": np.array([1, 1, 0], "f4"), "c": np.array([[1], [0], [0]], "f4")}
    found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[row, stood])
    assert [value.tolist() for value in found] == [[True, False, False], [[True], [True], [False]]]
