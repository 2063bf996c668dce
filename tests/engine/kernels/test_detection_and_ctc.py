"""Detectors, texts in images, classes in trees: code of whole steps, gives what NumPy gives."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="kernels in machine code need numba")

import dpexec as fluid
from dpexec import layers
from dpexec.engine.compile.bindings.code_step import CodeStep
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.kernels.calls import run_call
from dpexec.engine.kernels.doubles import exp64, log64
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.machine import Count, Doubles, kernel

ANCHORS = [6, 8, 20, 22, 40, 30]


def rows(values, lengths):
    return fluid.create_lod_tensor(values, [[*map(int, lengths)]], fluid.CPUPlace())


def grid():
    """Convolutions, a map that is resized, predictions at its cells."""
    x = fluid.data("x", [None, 3, 16, 16])
    boxes, label = fluid.data("boxes", [None, 3, 4]), fluid.data("y", [None, 3], "int32")
    x = layers.conv2d(x, 6, 3, 2, 1, act="relu")
    x = layers.conv2d(layers.resize_nearest(layers.resize_bilinear(x, [6, 5]), [4, 4]), 16, 1)
    return layers.mean(
        layers.yolov3_loss(x, boxes, label, ANCHORS, [2, 0], 3, 0.3, 8, scale_x_y=1.1)
    )


def fed_grid(rng, batch):
    boxes = rng.uniform(0.05, 0.95, (batch, 3, 4)).astype("float32")
    boxes[rng.uniform(size=(batch, 3)) < 0.3] = 0  # padding
    return {
        "x": rng.normal(size=(batch, 3, 16, 16)).astype("float32"),
        "boxes": boxes,
        "y": rng.integers(0, 3, (batch, 3)).astype("int32"),
    }


def text():
    """Frames divided anew, and tags that they must give."""
    x, label = fluid.data("x", [None, 4]), fluid.data("y", [None, 1], "int32", lod_level=1)
    frames = fluid.data("frames", [None, 1], "int64", lod_level=1)
    scores = layers.lod_reset(layers.fc(x, 6, act="tanh"), frames)
    return layers.mean(layers.warpctc(layers.scale(scores, 4.0), label, 5, norm_by_times=True))


def fed_text(rng, batch):
    lengths = rng.integers(1, 30, batch)
    tags = np.minimum(rng.integers(0, 9, batch), lengths + 2)  # some are too many, some none
    return {
        "x": rng.normal(size=(lengths.sum(), 4)).astype("float32"),
        "frames": rows(np.zeros((lengths.sum(), 1), "int64"), lengths),
        "y": rows(rng.integers(0, 5, (max(tags.sum(), 1), 1)).astype("int32"), tags)
        if tags.sum()
        else rows(np.zeros((1, 1), "int32"), [1] + [0] * (batch - 1)),
    }


def detector():
    """Two maps with prior boxes, matched with objects."""
    image = fluid.data("x", [None, 3, 32, 32])
    boxes = fluid.data("boxes", [None, 4], lod_level=1)
    label = fluid.data("y", [None, 1], "int32", lod_level=1)
    first = layers.conv2d(image, 6, 3, 4, 1, act="relu")
    maps = [first, layers.conv2d(first, 6, 3, 2, 1, act="relu")]
    found = layers.multi_box_head(
        maps, image, 32, 4, [[2.0], [2.0]], min_sizes=[6.0, 14.0], max_sizes=[14.0, 28.0],
        flip=True,
    )  # fmt: skip
    places, scores, priors, variances = found
    return layers.mean(layers.ssd_loss(places, scores, boxes, label, priors, variances))


def fed_detector(rng, batch):
    lengths = rng.integers(0, 4, batch)  # some images have no objects
    lengths[0] = 3
    low = rng.uniform(0, 0.5, (lengths.sum(), 2))
    boxes = np.concatenate([low, low + rng.uniform(0.2, 0.5, low.shape)], 1).astype("float32")
    boxes[1] = boxes[0]  # equal overlaps
    boxes[2, 2:] = boxes[2, :2]  # no area
    return {
        "x": rng.normal(size=(batch, 3, 32, 32)).astype("float32"),
        "boxes": rows(boxes, lengths),
        "y": rows(rng.integers(1, 4, (len(boxes), 1)).astype("int32"), lengths),
    }


def regions():
    """Regions of maps, by their greatest pixels and by means."""
    x, rois = fluid.data("x", [None, 2, 9, 8]), fluid.data("rois", [None, 4], lod_level=1)
    x = layers.conv2d(x, 4, 3)
    greatest = layers.roi_pool(x, rois, 2, 3, 0.5)
    means = layers.roi_align(x, rois, 2, 3, 0.5) + layers.roi_align(x, rois, 2, 3, 0.3, 2)
    return layers.mean(layers.fc([greatest, means], 5, act="tanh"))


def fed_regions(rng, batch):
    lengths = rng.integers(0, 4, batch)
    lengths[0] += 1
    ends = np.sort(rng.uniform(-3, 22, (lengths.sum(), 2, 2)), axis=1)
    return {
        "x": rng.normal(size=(batch, 2, 9, 8)).astype("float32"),
        "rois": rows(ends.reshape(-1, 4).astype("float32"), lengths),
    }


def classes():
    """Classes by their decisions, in a complete tree and in another one."""
    x, label = fluid.data("x", [None, 5]), fluid.data("y", [None, 1], "int64")
    table, code = fluid.data("table", [None, 3], "int64"), fluid.data("code", [None, 3], "int64")
    x = layers.fc(x, 4)
    own = layers.hsigmoid(x, label, 6, path_table=table, path_code=code, is_custom=True)
    return layers.mean(layers.hsigmoid(x, label, 11) + own)


def fed_classes(rng, batch):
    table = rng.integers(0, 6, (batch, 3))
    table[rng.uniform(size=batch) < 0.5, 2] = -1
    return {
        "x": rng.normal(size=(batch, 5)).astype("float32"),
        "y": rng.integers(0, 11, (batch, 1)),
        "table": table,
        "code": rng.integers(0, 2, (batch, 3)),
    }


def moved():
    """Convolutions with moved windows, with and without a mask; the error function."""
    x = fluid.data("x", [None, 3, 6, 5])
    x = layers.erf(layers.conv2d(x, 4, 3, padding=1))
    offset, mask = layers.conv2d(x, 36, 3, padding=1), layers.conv2d(x, 18, 3, padding=1)
    x = layers.deformable_conv(x, offset, mask, 4, 3, padding=1, deformable_groups=2)
    offset = layers.conv2d(x, 18, 3, padding=1)
    x = layers.deformable_conv(x, offset, None, 6, 3, padding=1, modulated=False)
    return layers.reduce_mean(layers.square(x))


def fed_moved(rng, batch):
    return {"x": rng.normal(size=(batch, 3, 6, 5)).astype("float32")}


NETS = {
    "classes": (classes, fed_classes),
    "regions": (regions, fed_regions),
    "moved": (moved, fed_moved),
    "detector": (detector, fed_detector),
    "grid": (grid, fed_grid),
    "text": (text, fed_text),
}


class Trained:
    """Losses and parameters after batches of several sizes."""

    def __init__(self, net, native, monkeypatch, devices):
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 3
        loss_of, feed_of = NETS[net]
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            loss = loss_of()
            fluid.optimizer.SGD(0.1).minimize(loss)
        strategy = fluid.BuildStrategy()
        strategy.native_kernels = native
        self.whole, bring = 0, CodeStep.bring

        def counted(step, feeds):
            self.whole += 1
            return bring(step, feeds)

        monkeypatch.setattr(CodeStep, "bring", counted)
        exe, scope, rng = fluid.Executor(fluid.CPUPlace()), fluid.Scope(), np.random.default_rng(0)
        with fluid.scope_guard(scope):
            exe.run(startup)
            compiled = fluid.CompiledProgram(main).with_data_parallel(
                loss_name=loss.name, build_strategy=strategy, places=fluid.cpu_places(devices)
            )
            feeds = [feed_of(rng, batch) for batch in (6, 6, 4, 8, 5, 6)]
            self.losses = [exe.run(compiled, feed=f, fetch_list=[loss])[0] for f in feeds]
            self.parameters = [
                np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()
            ]


@pytest.mark.parametrize("net", NETS)
def test_code_of_whole_steps_gives_what_numpy_gives(net, monkeypatch):
    code, numpy = (Trained(net, native, monkeypatch, 1) for native in (True, False))
    assert code.whole >= 4, "steps were not code"
    assert numpy.whole == 0
    for found, wanted in zip(code.losses, numpy.losses, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5)
    for found, wanted in zip(code.parameters, numpy.parameters, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)


def refused(net, change):
    """The error of a batch that is wrong, after some that were right."""
    main, startup = fluid.Program(), fluid.Program()
    loss_of, feed_of = NETS[net]
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = loss_of()
    exe, rng = fluid.Executor(fluid.CPUPlace()), np.random.default_rng(0)
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        for _ in range(3):
            right = feed_of(rng, 4)
            before = exe.run(main, feed=right, fetch_list=[loss])[0]
        with pytest.raises(EnforceNotMet) as caught:
            exe.run(main, feed={**right, **change(right)}, fetch_list=[loss])
        assert np.array_equal(exe.run(main, feed=right, fetch_list=[loss])[0], before)
    return str(caught.value)


def test_what_code_refuses_is_told_as_by_numpy():
    def tags(feed):
        lengths = [feed["y"].lod()[0][i + 1] - feed["y"].lod()[0][i] for i in range(4)]
        return {"y": rows(np.full((sum(lengths), 1), 7, "int32"), lengths)}

    assert "Label must be tags from 0 to 5" in refused("text", tags)
    labels = refused("grid", lambda feed: {"y": np.full((4, 3), 9, "int32")})
    assert "yolov3_loss" in labels and "out of bounds" in labels


def test_negatives_are_as_many_as_there_are_wherever_they_are_read():
    """Inside code their array has room for more."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        loss, scores = fluid.data("loss", [None, 6]), fluid.data("scores", [None, 6])
        matches = fluid.data("matches", [None, 6], "int32")
        block = main.global_block()
        kinds = {"NegIndices": "int32", "UpdatedMatchIndices": "int32"}
        made = {slot: [block.create_var(name=slot, dtype=kind)] for slot, kind in kinds.items()}
        made["NegIndices"][0].lod_level = 1
        inputs = {"ClsLoss": [loss], "MatchIndices": [matches], "MatchDist": [scores]}
        attrs = {"neg_pos_ratio": 2.0, "neg_dist_threshold": 0.5, "mining_type": "max_negative"}
        block.append_op("mine_hard_examples", inputs, made, attrs)
    exe, rng = fluid.Executor(fluid.CPUPlace()), np.random.default_rng(0)
    for images in (2, 2, 3, 2, 4):
        given = rng.integers(-3, 2, (images, 6)).astype("int32").clip(-1)
        feed = {
            "loss": rng.integers(0, 4, (images, 6)).astype("float32"),  # with ties
            "scores": rng.uniform(0, 0.7, (images, 6)).astype("float32"),
            "matches": given,
        }
        found = exe.run(main, feed=feed, fetch_list=["NegIndices"], return_numpy=False)[0]
        wanted = [hardest(*parts) for parts in zip(*feed.values(), strict=True)]
        assert found.recursive_sequence_lengths() == [[len(part) for part in wanted]]
        assert np.array(found).ravel().tolist() == [n for part in wanted for n in part]


def hardest(loss, scores, matches):
    """Two for each match, the greatest losses first, of equal ones the first."""
    free = [i for i in range(6) if matches[i] < 0 and scores[i] < 0.5]
    chosen = sorted(free, key=lambda i: -loss[i])[: 2 * int((matches >= 0).sum())]
    return sorted(chosen)


def test_a_shape_that_follows_from_others_keeps_a_step_code(monkeypatch):
    calls, bring = [], CodeStep.bring
    monkeypatch.setattr(CodeStep, "bring", lambda *a: calls.append(1) or bring(*a))
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x, like = fluid.data("x", [None, 4]), fluid.data("like", [None, None, 2])
        sizes = layers.slice(layers.shape(like), axes=[0], starts=[0], ends=[2])
        joined = layers.concat([layers.slice(layers.shape(like), [0], [0], [1]), sizes])
        y = layers.reshape(x, [1, 1, 1], actual_shape=joined)
        total = layers.reduce_sum(y, dim=2)
    exe = fluid.Executor(fluid.CPUPlace())
    for n, m in ((2, 4), (2, 4), (3, 4), (4, 4), (2, 4)):
        feed = {"x": np.ones((n * n, 4), "float32"), "like": np.ones((n, m, 2), "float32")}
        found = exe.run(main, feed=feed, fetch_list=[total])[0]
        assert found.shape == (n, n)
        assert (found == 4).all()
    assert calls


@kernel
def _powers(n: Count, x: Doubles, powers: Doubles, logs: Doubles) -> int:
    for i in range(n):
        powers[i] = exp64(x[i])
        logs[i] = log64(powers[i])
    return 0


def test_exponentials_and_logarithms_of_doubles_are_right_to_two_units():
    x = np.concatenate([np.linspace(-700, 700, 20001), np.linspace(-1, 1, 20001), [0, np.nan]])
    powers, logs = np.empty_like(x), np.empty_like(x)
    run_call((_powers, (len(x), *map(address, (x, powers, logs)))))
    np.testing.assert_allclose(powers, np.exp(x), rtol=5e-16)
    np.testing.assert_allclose(logs, np.log(powers), rtol=5e-16, atol=1e-16)
    outside = np.array([-1e30, -709.5, -np.inf])
    run_call((_powers, (3, *map(address, (outside, powers, logs)))))
    assert not powers[:3].any()
