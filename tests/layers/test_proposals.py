"""Programs of two-stage detectors, step by step."""

import numpy as np
import pytest

import dpexec as fluid

ANCHORS = np.array(
    [[x, y, x + 15, y + s] for y in (0, 16) for x in (0, 16, 32) for s in (15, 23)], "float32"
).reshape(2, 3, 2, 4)


def truth():
    """Boxes, classes and crowds of two images, and what is known of the images."""
    boxes = fluid.data("boxes", [None, 4], lod_level=1)
    classes = fluid.data("classes", [None, 1], dtype="int32", lod_level=1)
    crowds = fluid.data("crowds", [None, 1], dtype="int32", lod_level=1)
    return boxes, classes, crowds, fluid.data("info", [None, 3])


def feeds():
    def tensor(rows, dtype):
        return fluid.create_lod_tensor(np.array(rows, dtype), [[2, 1]], fluid.CPUPlace())

    rng = np.random.default_rng(0)
    return {
        "boxes": tensor([[1, 2, 14, 17], [17, 14, 33, 30], [30, 15, 47, 39]], "float32"),
        "classes": tensor([[1], [2], [1]], "int32"),
        "crowds": tensor([[0], [0], [0]], "int32"),
        "info": np.array([[40, 48, 1], [40, 48, 1]], "float32"),
        "features": rng.uniform(-1, 1, (2, 4, 2, 3)).astype("float32"),
    }


def network(use_random=False):
    """Losses of the first stage; boxes, classes and shifts for the second one."""
    layers, (boxes, classes, crowds, info) = fluid.layers, truth()
    features = fluid.data("features", [None, 4, 2, 3])
    scores = layers.conv2d(features, 2, 1)
    shifts = layers.conv2d(features, 8, 1)
    anchors = layers.assign(ANCHORS)
    flat = layers.reshape(anchors, [-1, 4])
    logits, moves, labels, wanted, weights = layers.rpn_target_assign(
        layers.reshape(layers.transpose(shifts, [0, 2, 3, 1]), [0, -1, 4]),
        layers.reshape(layers.transpose(scores, [0, 2, 3, 1]), [0, -1, 1]),
        flat, flat, boxes, crowds, info,
        rpn_batch_size_per_im=8, rpn_straddle_thresh=-1.0, use_random=use_random,
    )  # fmt: skip
    labels = layers.cast(labels, "float32")
    loss = layers.mean(layers.sigmoid_cross_entropy_with_logits(logits, labels))
    loss += layers.mean(layers.smooth_l1(moves, wanted, weights, weights, sigma=3.0))
    variances = layers.fill_constant([2, 3, 2, 4], "float32", 1.0)
    rois, _ = layers.generate_proposals(
        layers.sigmoid(scores), shifts, info, anchors, variances, post_nms_top_n=5
    )
    labelled = layers.generate_proposal_labels(
        rois, classes, crowds, boxes, info, batch_size_per_im=4, class_nums=3,
        use_random=use_random,
    )  # fmt: skip
    levels, restore = layers.distribute_fpn_proposals(labelled[0], 3, 4, 3, 20)
    return loss, labelled, levels, restore


@pytest.mark.parametrize("use_random", [False, True])
def test_first_stage_learns_and_feeds_the_second(use_random):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        main.random_seed = startup.random_seed = 3
        loss, labelled, levels, restore = network(use_random)
        fluid.optimizer.SGD(0.2).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        fetches = [loss, *labelled, *levels, restore]
        runs = [exe.run(main, feeds(), fetches, return_numpy=False) for _ in range(8)]
        assert np.array(runs[-1][0]) < 0.8 * np.array(runs[0][0])
        rois, classes, *rest = runs[-1][1:]
        assert rois.lod() == classes.lod() != []
        rois, classes = np.array(rois), np.array(classes)
        assert len(rois) == len(classes) and set(classes[:, 0]) <= {0, 1, 2}
        joined = np.concatenate([np.array(level) for level in rest[3:5]])
        np.testing.assert_array_equal(joined[np.array(rest[5])[:, 0]], rois)


def test_later_stages_of_a_cascade_take_all_boxes_that_have_an_area():
    given = [[1, 2, 14, 17], [20, 20, 19, 30], [0, 30, 9, 44], [16, 14, 33, 30]]
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        boxes, classes, crowds, info = truth()
        rois = fluid.data("rois", [None, 4], lod_level=1)
        made = fluid.layers.generate_proposal_labels(
            rois, classes, crowds, boxes, info, class_nums=3, is_cascade_rcnn=True
        )
        feed = {name: value for name, value in feeds().items() if name != "features"}
        feed["info"][:, 2] = 2  # the original leaves some boxes as if the scale were 1
        array = np.array(given, "float32") * 2
        feed["rois"] = fluid.create_lod_tensor(array, [[4, 0]], fluid.CPUPlace())
        exe = fluid.Executor(fluid.CPUPlace())
        found = exe.run(feed=feed, fetch_list=list(made[:2]), return_numpy=False)
    np.testing.assert_array_equal(np.array(found[0]), array[[0, 3, 2]])
    np.testing.assert_array_equal(np.array(found[1])[:, 0], [1, 2, 0])
    assert found[0].lod() == [[0, 3, 3]]
