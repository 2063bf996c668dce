"""Boxes per image that are rows of all images: the boxes say which rows are whose."""

import numpy as np
import pytest

import dpexec as fluid

BOXES = (
    np.array([[0, 0, 4, 4], [0, 0, 4, 5], [5, 5, 9, 9]], "float32").repeat(2, 0).reshape(3, 2, 4)
)
SCORES = np.array([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]], "float32")


def found(boxes, lod_level):
    """What is found among ``boxes``; the scores are no sequences."""
    layers, main = fluid.layers, fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        places = fluid.data("boxes", [None, 2, 4], lod_level=lod_level)
        scores = fluid.data("scores", [None, 2])
        best = layers.multiclass_nms(places, scores, 0.5, nms_top_k=-1, keep_top_k=-1)
    feed = {"boxes": boxes, "scores": SCORES}
    exe = fluid.Executor(fluid.CPUPlace())
    return exe.run(main, feed=feed, fetch_list=[best], return_numpy=False)[0]


def test_boxes_say_whose_the_rows_are():
    boxes = fluid.create_lod_tensor(BOXES, [[1, 2]], fluid.CPUPlace())
    best = found(boxes, lod_level=1)
    np.testing.assert_allclose(np.array(best)[:, 1], [0.9, 0.8, 0.7])
    assert best.recursive_sequence_lengths() == [[1, 2]]


def test_rows_of_nobody_are_refused():
    with pytest.raises(fluid.core.EnforceNotMet, match="BBoxes must be sequences, one per image"):
        found(BOXES, lod_level=0)
