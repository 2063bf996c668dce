"""Layers on tags: training, metrics and errors."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers

PLACE = fluid.CPUPlace()


def sequences(values, lengths, dtype="int64"):
    return fluid.create_lod_tensor(
        np.array(values, dtype).reshape(sum(lengths), -1), [lengths], PLACE
    )


def tokens(name, dtype="int64"):
    return fluid.data(name, [None, 1], dtype=dtype, lod_level=1)


def run(feed, *fetch, program=None):
    return fluid.Executor(PLACE).run(program, feed, list(fetch), return_numpy=False)


@pytest.mark.parametrize("devices", [1, 2])
def test_random_field_learns_which_tags_follow_each_other(devices):
    """Words say nothing: every other word has tag 1, so all depends on the transitions."""
    words, tags = fluid.data("words", [None, 2], lod_level=1), tokens("tags")
    scores, attr = layers.fc(words, 2), fluid.ParamAttr(name="transitions")
    loss = layers.mean(layers.linear_chain_crf(scores, tags, attr))
    right = layers.crf_decoding(scores, attr, label=tags)
    test = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(0.1).minimize(loss)
    lengths = [3, 6, 2, 5]
    feed = {
        "words": sequences(np.ones(32), lengths, "float32"),
        "tags": sequences([i % 2 for n in lengths for i in range(n)], lengths),
    }
    run({}, program=fluid.default_startup_program())
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, places=[PLACE] * devices
    )
    losses = [np.mean(run(feed, loss, program=compiled)[0]) for _ in range(60)]
    assert losses[-1] < 0.1 * losses[0]
    assert np.array(run(feed, right, program=test)[0]).all()


def test_sequences_of_the_tags_are_enough():
    """As in the original, which looks at no others: layers between may have lost them."""
    words, tags = fluid.data("words", [None, 2], lod_level=1), tokens("tags")
    rows = fluid.data("rows", [None, 2])
    words.stop_gradient = rows.stop_gradient = False
    costs = [layers.linear_chain_crf(x, tags, fluid.ParamAttr(name="t")) for x in (words, rows)]
    grads = fluid.gradients([layers.reduce_sum(cost) for cost in costs], [words, rows])
    scores, lengths = np.arange(10.0, dtype="float32").reshape(5, 2), [3, 2]
    feed = {
        "words": sequences(scores, lengths, "float32"),
        "rows": scores,
        "tags": sequences([0, 1, 0, 1, 1], lengths),
    }
    run({}, program=fluid.default_startup_program())
    own, of_tags, *found = map(np.array, run(feed, *costs, *grads))
    assert own.tolist() == of_tags.tolist() and own.shape == (2, 1)
    assert found[0].tolist() == found[1].tolist() and found[0].any()


def test_temporal_classification_learns_to_name_the_tags():
    steps, tags = fluid.data("steps", [None, 6], lod_level=1), tokens("tags", "int32")
    scores = layers.fc(steps, 4)
    loss = layers.mean(layers.warpctc(scores, tags, blank=3))
    found = layers.ctc_greedy_decoder(scores, blank=3)
    distance, count = layers.edit_distance(found, layers.cast(tags, "int64"), normalized=False)
    test = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(0.1).minimize(loss)
    feed = {
        "steps": sequences(np.eye(6), [2, 4], "float32"),
        "tags": sequences([1, 0, 0], [1, 2], "int32"),
    }
    run({}, program=fluid.default_startup_program())
    losses = [np.mean(run(feed, loss)[0]) for _ in range(80)]
    assert losses[-1] < 0.05 * losses[0]
    metric = fluid.metrics.EditDistance(None)
    metric.update(*map(np.array, run(feed, distance, count, program=test)))
    assert metric.eval() == (0.0, 0.0)


def test_chunks_of_batches_add_up():
    found, right = tokens("found"), tokens("right")
    counts = layers.chunk_eval(found, right, "IOB", num_chunk_types=2)[3:]
    metric = fluid.metrics.ChunkEvaluator()
    for guess in ([0, 1, 4, 2], [0, 4, 4, 2]):
        feed = {"found": sequences(guess, [3, 1]), "right": sequences([0, 1, 4, 2], [3, 1])}
        metric.update(*map(np.array, run(feed, *counts)))
    assert metric.eval() == (0.75, 0.75, 0.75)


def test_tokens_are_ignored():
    found, right = tokens("found"), tokens("right")
    distance, _ = layers.edit_distance(found, right, normalized=False, ignored_tokens=[0, 9])
    feed = {"found": sequences([0, 1, 2, 0], [3, 1]), "right": sequences([1, 9, 3, 9], [3, 1])}
    assert np.array(run(feed, distance)[0]).tolist() == [[1.0], [0.0]]


def test_nothing_but_blanks_is_one_row_that_is_no_tag():
    found = layers.ctc_greedy_decoder(fluid.data("x", [None, 3], lod_level=1), blank=0)
    rows = np.tile([1.0, 0.0, 0.0], 3)
    (tags,) = run({"x": sequences(rows, [2, 1], "float32")}, found)
    assert np.array(tags).tolist() == [[-1]] and tags.lod() == [[0, 0, 0]]


def nested():
    rows = np.ones((3, 8), "float32")
    return fluid.create_lod_tensor(rows, [[1, 1], [2, 1]], PLACE)


def memory():
    return layers.dynamic_lstm(fluid.data("x", [None, 8], lod_level=2), 8)[0]


def field(length=None):
    tags = tokens("tags") if length is None else fluid.data("tags", [None, 2], dtype="int64")
    scores = (
        fluid.data("x", [None, 2], lod_level=1) if length is None else fluid.data("x", [None, 2, 2])
    )
    return layers.linear_chain_crf(scores, tags, length=length)


@pytest.mark.parametrize(
    ("make", "feed", "message"),
    [
        (memory, {"x": nested()}, "must not be nested"),
        (
            field,
            {"x": sequences(np.ones(6), [2, 1], "float32"), "tags": sequences([0, 1, 1], [1, 2])},
            "has the sequences",
        ),
        (
            field,
            {"x": sequences(np.ones(6), [2, 1], "float32"), "tags": sequences([0, 2, 1], [2, 1])},
            "got 2",
        ),
        (
            lambda: field(fluid.data("length", [None], dtype="int64")),
            {
                "x": np.ones((1, 2, 2), "float32"),
                "tags": np.zeros((1, 2), "int64"),
                "length": np.array([3]),
            },
            "between 0 and 2",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make, feed, message):
    out = make()
    executor = fluid.Executor(PLACE)
    executor.run(fluid.default_startup_program())
    with pytest.raises(fluid.core.EnforceNotMet, match=message):
        executor.run(feed=feed, fetch_list=[out], return_numpy=False)


def test_cudnn_memories_are_refused_by_name():
    x = fluid.data("x", [None, 3, 4])
    with pytest.raises(NotImplementedError, match="dynamic_lstm"):
        layers.lstm(x, x, x, 3, 4, 1)
