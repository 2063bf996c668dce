"""Layers on regions of images, in programs."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet

layers = fluid.layers
ROIS = np.array([[0, 0, 7, 5], [2, 1, 6, 6], [1, 2, 3, 7]], "float32")


def sequences(rows, *lengths):
    return fluid.create_lod_tensor(np.asarray(rows), [list(n) for n in lengths], fluid.CPUPlace())


def run(feed, *fetches, **options):
    exe, startup = fluid.Executor(fluid.CPUPlace()), fluid.default_startup_program()
    if startup.global_block().ops:
        exe.run(startup)
    return exe.run(feed=feed, fetch_list=list(fetches), **options)


def test_moved_bins_train_what_moves_them():
    x = fluid.data("x", [2, 8, 8, 8])
    rois = fluid.data("rois", [None, 4], lod_level=1)
    pooled = {"pooled_height": 2, "pooled_width": 2, "sample_per_part": 2}
    fixed = fluid.data("zeros", [None, 2, 2, 2])
    first = layers.deformable_roi_pooling(x, rois, fixed, no_trans=True, **pooled)
    moves = layers.reshape(layers.fc(first, 8, param_attr="moves"), [-1, 2, 2, 2])
    out = layers.deformable_roi_pooling(x, rois, moves, **pooled)
    parts = layers.deformable_roi_pooling(
        x, rois, moves, group_size=[2, 2], position_sensitive=True, **pooled
    )
    assert out.shape == (-1, 8, 2, 2) and parts.shape == (-1, 2, 2, 2)
    fluid.optimizer.SGD(0.1).minimize(layers.mean(out))
    feed = {
        "x": np.random.default_rng(0).normal(size=(2, 8, 8, 8)).astype("float32"),
        "rois": sequences(ROIS, [2, 1]),
        "zeros": np.zeros((3, 2, 2, 2), "float32"),
    }
    found = run(feed, first, out, parts, "moves@GRAD")
    assert [array.shape[:2] for array in found[:3]] == [(3, 8), (3, 8), (3, 2)]
    assert np.abs(found[3]).max() > 0


def test_deformable_pooling_says_which_parts_it_wants():
    x = fluid.data("x", [2, 8, 8, 8])
    rois = fluid.data("rois", [None, 4], lod_level=1)
    with pytest.raises(EnforceNotMet, match="two numbers for every class and part"):
        layers.deformable_roi_pooling(x, rois, fluid.data("moves", [None, 2, 3, 3]))


def test_a_retinanet_finds_the_best_of_all_levels():
    counts, feed = (3, 2), {"info": np.array([[40, 40, 1]], "float32")}
    for level, count in enumerate(counts):
        corner = np.arange(count)[:, None] * 12 + level * 20
        feed[f"anchors{level}"] = np.hstack([corner, corner, corner + 9, corner + 9])
        feed[f"moves{level}"] = np.zeros((1, count, 4))
        feed[f"scores{level}"] = np.array([[[0.1, 0.9], [0.6, 0.2], [0.3, 0.4]][:count]])
    feed = {name: array.astype("float32") for name, array in feed.items()}
    given = {
        kind: [fluid.data(f"{kind}{i}", feed[f"{kind}{i}"].shape) for i in range(2)]
        for kind in ("moves", "scores", "anchors")
    }
    info = fluid.data("info", [1, 3])
    out = layers.retinanet_detection_output(
        given["moves"], given["scores"], given["anchors"], info, score_threshold=0.5, keep_top_k=3
    )
    (found,) = run(feed, out, return_numpy=False)
    assert found.lod() == [[0, 3]]
    expected = [[2, 0.9, 0, 0, 9, 9], [2, 0.9, 20, 20, 29, 29], [1, 0.6, 12, 12, 21, 21]]
    np.testing.assert_allclose(np.array(found), expected, rtol=1e-6)
    with pytest.raises(EnforceNotMet, match="one for every level"):
        layers.retinanet_detection_output(
            given["moves"][:1], given["scores"], given["anchors"], info
        )


def test_masks_of_objects_in_the_columns_of_their_classes():
    info = fluid.data("info", [None, 3])
    integers = {
        name: fluid.data(name, [None, 1], "int32", lod_level=1)
        for name in ("classes", "crowds", "labels")
    }
    points = fluid.data("points", [None, 2], lod_level=3)
    rois = fluid.data("rois", [None, 4], lod_level=1)
    made = layers.generate_mask_labels(
        info, integers["classes"], integers["crowds"], points, rois, integers["labels"], 3, 4
    )
    assert made[2].shape == (-1, 48) and [one.lod_level for one in made] == [1, 1, 1]
    square = [[2, 2], [8, 2], [8, 10], [2, 10]]
    feed = {
        "info": np.array([[20, 20, 1]], "float32"),
        "classes": sequences(np.array([[2]], "int32"), [1]),
        "crowds": sequences(np.array([[0]], "int32"), [1]),
        "points": sequences(np.array(square, "float32"), [1], [1], [4]),
        "rois": sequences(np.array([[11, 11, 19, 19], [0, 2, 8, 10]], "float32"), [2]),
        "labels": sequences(np.array([[0], [2]], "int32"), [2]),
    }
    boxes, numbers, masks = run(feed, *made, return_numpy=False)
    assert boxes.lod() == masks.lod() == [[0, 1]]
    np.testing.assert_array_equal(np.array(boxes), [[0, 2, 8, 10]])
    np.testing.assert_array_equal(np.array(numbers), [[1]])
    expected = np.full((3, 4, 4), -1)
    expected[2] = [[0, 1, 1, 1]] * 4
    np.testing.assert_array_equal(np.array(masks).reshape(3, 4, 4), expected)
    feed["points"] = sequences(np.array(square, "float32"), [2], [1, 1], [2, 2])
    with pytest.raises(EnforceNotMet, match=r"GtSegms must have as many rows .*\[1\].*\[2\]"):
        run(feed, *made)


def test_a_slanted_region_becomes_upright():
    x = fluid.data("x", [1, 1, 9, 9])
    x.stop_gradient = False
    rois = fluid.data("rois", [None, 8], lod_level=1)
    out, mask, matrix = layers.roi_perspective_transform(x, rois, 3, 3)
    (grad,) = fluid.gradients(layers.mean(out), x)
    image = np.arange(81, dtype="float32").reshape(1, 1, 9, 9)
    corners = [[4, 0, 8, 4, 4, 8, 0, 4]]
    feed = {"x": image, "rois": sequences(np.array(corners, "float32"), [1])}
    made = run(feed, out, mask, matrix, grad, return_numpy=False)
    found, inside, matrices, d_x = map(np.array, made)
    np.testing.assert_allclose(found[0, 0], [[4, 24, 44], [20, 40, 60], [36, 56, 76]], rtol=1e-4)
    assert inside.all() and matrices.shape == (1, 9)
    np.testing.assert_allclose(d_x.sum(), 1, rtol=1e-5)


@pytest.mark.parametrize(("threshold", "kept"), [(0.2, [0.9, 0.8]), (0.6, [0.9, 0.8, 0.7])])
def test_polygons_cover_each_other_by_their_areas(threshold, kept):
    cup = [[0, 0], [9, 0], [9, 9], [6, 9], [6, 3], [3, 3], [3, 9], [0, 9]]
    hollow = [[3.5, 4], [5.5, 4], [5.5, 8], [5, 8], [4.5, 8], [4, 8], [3.5, 8], [3.5, 6]]
    slanted = [
        [4.5, -4],
        [13, 4.5],
        [4.5, 13],
        [4, 12.5],
        [3, 11.5],
        [2, 10.5],
        [1, 9.5],
        [-4, 4.5],
    ]
    boxes, scores = fluid.data("boxes", [1, 3, 16]), fluid.data("scores", [1, 1, 3])
    out = layers.multiclass_nms(
        boxes, scores, 0.1, -1, -1, nms_threshold=threshold, background_label=-1
    )
    feed = {
        "boxes": np.array([cup, hollow, slanted], "float32").reshape(1, 3, 16),
        "scores": np.array([[[0.9, 0.8, 0.7]]], "float32"),
    }
    (found,) = run(feed, out, return_numpy=False)
    assert np.array(found)[:, 1].tolist() == pytest.approx(kept)
