"""The layers ``accuracy`` and ``auc``."""

import numpy as np

import dpexec as fluid


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
