"""Boxes with offsets, which assign them to images, in suppression of overlaps."""

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


LOW = np.zeros((2, 3, 4), np.float32)
FEW = np.tile(np.array([[0, 0, 2, 2], [3, 3, 5, 5]], np.float32), (2, 2, 1))
SETTINGS = {"score_threshold": 0.5, "nms_top_k": 7, "keep_top_k": 6}


def applied(type, outputs, boxes, scores, **attrs):
    """The outputs of an operator on boxes ``(N, M, 4)`` and scores ``(N, classes, M)``."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        block = main.global_block()
        inputs = {
            "BBoxes": fluid.data("boxes", list(boxes.shape)),
            "Scores": fluid.data("scores", list(scores.shape)),
        }
        made = {name: block.create_var(name=name) for name in outputs}
        block.append_op(type, inputs, made, {**SETTINGS, **attrs})
    feed = {"boxes": boxes, "scores": scores}
    exe = fluid.Executor(fluid.CPUPlace())
    return exe.run(main, feed=feed, fetch_list=list(outputs), return_numpy=False)


NOTHING = [
    (FEW, LOW, {}),
    (FEW, LOW + 1, {"keep_top_k": 0}),
    (FEW, LOW + 1, {"nms_top_k": 0}),
    (FEW[:, :0], LOW[:, :, :0], {}),
]


@pytest.mark.parametrize(("boxes", "scores", "attrs"), NOTHING)
@pytest.mark.parametrize("type", ["multiclass_nms", "locality_aware_nms"])
def test_where_nothing_is_left_there_is_one_row_of_minus_one(type, boxes, scores, attrs):
    scores = scores[:, :1] if type == "locality_aware_nms" else scores
    (out,) = applied(type, ["Out"], boxes, scores, background_label=-1, **attrs)
    np.testing.assert_array_equal(np.array(out), np.full((1, 1), -1, np.float32))
    assert out.lod() == [[0, 1]]


@pytest.mark.parametrize(("boxes", "scores", "attrs"), NOTHING)
@pytest.mark.parametrize("type", ["multiclass_nms2", "matrix_nms"])
def test_where_nothing_is_left_operators_with_an_index_have_no_rows(type, boxes, scores, attrs):
    out, index = applied(type, ["Out", "Index"], boxes, scores, **attrs)
    assert (np.array(out).shape, np.array(index).shape) == ((0, 6), (0, 1))
    assert out.lod() == index.lod() == [[0, 0, 0]]


def test_an_image_without_boxes_has_no_rows_beside_one_with_some():
    scores = LOW + np.array([0, 1], np.float32)[:, None, None]
    (out,) = applied("multiclass_nms", ["Out"], FEW, scores)
    assert out.lod() == [[0, 0, 4]]


@pytest.mark.parametrize("background", [0, 1])
def test_detections_leave_out_the_given_background(background):
    layers = fluid.layers
    offsets, scores = fluid.data("offsets", [1, 1, 4]), fluid.data("scores", [1, 1, 2])
    box, variances = fluid.data("box", [1, 4]), fluid.data("variances", [1, 4])
    best = layers.detection_output(offsets, scores, box, variances, background_label=background)
    feed = {name: np.zeros((1, 4), "float32") for name in ("box", "variances")}
    feed |= {"offsets": np.zeros((1, 1, 4), "float32"), "scores": np.zeros((1, 1, 2), "float32")}
    exe = fluid.Executor(fluid.CPUPlace())
    found = exe.run(feed=feed, fetch_list=[best], return_numpy=False)[0]
    assert np.array(found)[:, 0].tolist() == [1 - background]  # Paddle: always 1
