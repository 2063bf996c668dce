"""Evaluators add up over batches what ``fluid.metrics`` adds up outside of programs."""

import numpy as np
import pytest

import dpexec as fluid


@pytest.fixture(autouse=True)
def program():
    scope, programs = fluid.Scope(), (fluid.Program(), fluid.Program())
    with fluid.scope_guard(scope), fluid.program_guard(*programs), fluid.unique_name.guard():
        yield


def tags(rng, *lengths, high):
    values = rng.integers(0, high, (sum(lengths), 1))
    return fluid.create_lod_tensor(values, [list(lengths)], fluid.CPUPlace())


def variables():
    names = ("found", "right")
    return [fluid.data(name, [None, 1], dtype="int64", lod_level=1) for name in names]


def batches(high, *lengths):
    rng = np.random.default_rng(4)
    return [{n: tags(rng, *lengths, high=high) for n in ("found", "right")} for _ in range(3)]


def test_chunks_count_over_batches():
    found, right = variables()
    with pytest.warns(UserWarning, match=r"use fluid\.metrics\.ChunkEvaluator"):
        evaluator = fluid.evaluator.ChunkEvaluator(found, right, "IOB", 2)
    counts = fluid.layers.chunk_eval(found, right, "IOB", 2)[3:]
    exe, metric = fluid.Executor(fluid.CPUPlace()), fluid.metrics.ChunkEvaluator()
    for _ in range(2):  # a reset forgets what was before
        evaluator.reset(exe)
        metric.reset()
        for feed in batches(5, 20, 9):
            fetched = exe.run(feed=feed, fetch_list=[*evaluator.metrics, *counts])
            metric.update(*fetched[3:])
        figures = [figure.item() for figure in evaluator.eval(exe)]
        np.testing.assert_allclose(figures, [float(f) for f in metric.eval()], rtol=1e-6)
        assert figures[2] > 0


def test_distances_count_over_batches():
    found, right = variables()
    with pytest.warns(UserWarning, match="EditDistance is deprecated"):
        evaluator = fluid.evaluator.EditDistance(found, right)
    distances, count = fluid.layers.edit_distance(found, right)
    exe, metric = fluid.Executor(fluid.CPUPlace()), fluid.metrics.EditDistance("distance")
    evaluator.reset(exe)
    for feed in batches(2, 1, 3, 4):
        *batch, wrong = exe.run(feed=feed, fetch_list=[distances, count, evaluator.instance_error])
        metric.update(*batch)
        assert wrong == metric.instance_error
    figures = [figure.item() for figure in evaluator.eval(exe)]
    np.testing.assert_allclose(figures, [float(f) for f in metric.eval()], rtol=1e-6)
    assert 0 < figures[1] < 1


def test_loops_have_no_evaluators():
    layers, (found, right) = fluid.layers, variables()
    step, last = layers.zeros([1], "int64"), layers.ones([1], "int64")
    going = layers.less_than(step, last)
    loop = layers.While(going)
    warned = pytest.warns(UserWarning, match="deprecated")
    refused = pytest.raises(ValueError, match="outside of loops")
    with loop.block():
        layers.less_than(layers.increment(step), last, cond=going)
        with warned, refused:
            fluid.evaluator.EditDistance(found, right)
