"""Layers of ``fluid.contrib.layers`` in programs."""

import numpy as np
import pytest

import dpexec as fluid

contrib = fluid.contrib.layers


@pytest.fixture(autouse=True)
def program():
    scope, programs = fluid.Scope(), (fluid.Program(), fluid.Program())
    with fluid.scope_guard(scope), fluid.program_guard(*programs), fluid.unique_name.guard():
        yield


def run(feed, *fetches):
    exe, startup = fluid.Executor(fluid.CPUPlace()), fluid.default_startup_program()
    if startup.global_block().ops:
        exe.run(startup)
    return exe.run(feed=feed, fetch_list=list(fetches))


def texts(*lengths):
    ids = np.arange(sum(lengths)).reshape(-1, 1) % 7
    return fluid.create_lod_tensor(ids, [list(lengths)], fluid.CPUPlace())


def test_contrib_has_the_names_of_its_layers():
    assert [name for name in contrib.__all__ if not hasattr(fluid.contrib, name)] == []


def test_matches_of_two_texts_train_their_embeddings():
    layers, pooled = fluid.layers, []
    for name in ("x", "y"):
        ids = fluid.data(name, [None, 1], dtype="int64", lod_level=1)
        pooled.append(layers.embedding(ids, [7, 4], param_attr=fluid.ParamAttr(name="words")))
    scores, _ = contrib.match_matrix_tensor(*pooled, channel_num=2, act="tanh")
    best = contrib.sequence_topk_avg_pooling(scores, *pooled, topks=[1, 2], channel_num=2)
    loss = layers.mean(layers.sequence_pool(best, "sum"))
    fluid.optimizer.SGD(0.5).minimize(loss)
    feed = {"x": texts(3, 2), "y": texts(2, 4)}
    (first,) = run(feed, loss)
    exe = fluid.Executor(fluid.CPUPlace())
    later = [exe.run(feed=feed, fetch_list=[loss])[0] for _ in range(5)]
    assert later[-1] < first


@pytest.mark.parametrize("padding", [None, 2, -1])
def test_pooled_embeddings_are_sums_of_embeddings(padding):
    ids = fluid.data("ids", [None, 1], dtype="int64", lod_level=1)
    attr = fluid.ParamAttr(name="words")
    fused = contrib.fused_embedding_seq_pool(ids, [7, 3], padding_idx=padding, param_attr=attr)
    rows = fluid.layers.embedding(ids, [7, 3], padding_idx=padding, param_attr=attr)
    plain = fluid.layers.sequence_pool(rows, "sum")
    found, expected = run({"ids": texts(4, 3)}, fused, plain)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_columns_are_put_together():
    x = np.arange(12, dtype="float32").reshape(2, 6)
    var = fluid.data("x", [None, 6])
    found = run(
        {"x": x},
        contrib.partial_concat([var, var], start_index=-2),
        contrib.partial_sum([var, var], start_index=1, length=3),
    )
    np.testing.assert_array_equal(found[0], np.hstack([x[:, 4:]] * 2))
    np.testing.assert_array_equal(found[1], 2 * x[:, 1:4])


def test_an_addition_and_its_activation():
    x = np.array([[-3, 1], [2, -1]], "float32")
    var = fluid.data("x", [None, 2])
    (found,) = run({"x": x}, contrib.fused_elemwise_activation(var, var, "relu,elementwise_add"))
    np.testing.assert_array_equal(found, np.maximum(2 * x, 0))
    with pytest.raises(ValueError, match="list of two names"):
        contrib.fused_elemwise_activation(var, var, "relu")


def test_images_of_different_sizes_train_their_filters():
    words = [fluid.data(name, [None, 3], lod_level=1) for name in ("x", "y")]
    layers = fluid.layers
    scores, _ = contrib.match_matrix_tensor(*words, channel_num=2)
    maps = contrib.var_conv_2d(scores, *words, 2, 3, [3, 2], act="relu")
    loss = layers.mean(contrib.sequence_topk_avg_pooling(maps, *words, [2], 3))
    fluid.optimizer.SGD(0.1).minimize(loss)
    rng = np.random.default_rng(0)
    feed = {
        name: fluid.create_lod_tensor(
            rng.normal(size=(sum(lengths), 3)).astype("float32"), [lengths], fluid.CPUPlace()
        )
        for name, lengths in (("x", [3, 2]), ("y", [4, 5]))
    }
    (first,) = run(feed, loss)
    exe = fluid.Executor(fluid.CPUPlace())
    (found,) = exe.run(feed=feed, fetch_list=[maps], return_numpy=False)
    assert found.lod() == [[0, 3 * 3 * 4, 3 * 3 * 4 + 3 * 2 * 5]]
    assert exe.run(feed=feed, fetch_list=[loss])[0] < first


def test_convolutions_over_trees_train():
    layers = fluid.layers
    nodes, edges = fluid.data("nodes", [None, 4, 3]), fluid.data("edges", [None, 3, 2], "int32")
    hidden = contrib.tree_conv(nodes, edges, 5, 2)
    assert hidden.shape == (-1, 4, 5, 2)
    out = contrib.tree_conv(layers.reshape(hidden, [0, 4, 10]), edges, 2, max_depth=3, act=None)
    loss = layers.mean(layers.square(out - 1.0))
    fluid.optimizer.SGD(0.2).minimize(loss)
    feed = {
        "nodes": np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32"),
        "edges": np.array([[[1, 2], [1, 3], [3, 4]], [[1, 2], [0, 0], [0, 0]]], "int32"),
    }
    (first,) = run(feed, loss)
    exe = fluid.Executor(fluid.CPUPlace())
    later = [exe.run(feed=feed, fetch_list=[loss])[0] for _ in range(5)]
    assert later[-1] < first
    feed["edges"][0, 0] = [1, 5]
    with pytest.raises(fluid.core.EnforceNotMet, match="nodes from 1 to 4"):
        exe.run(feed=feed, fetch_list=[loss])


def constant(values):
    return fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(values))


def test_children_of_nodes_of_a_tree():
    tree = [[0, 0, 0, 1, 2], [0, 1, 0, 3, 4], [0, 1, 0, 5, 0], [4, 2, 1, 0, 0], [1, 2, 1, 0, 0],
            [2, 2, 2, 0, 0]]  # fmt: skip
    nodes = fluid.data("nodes", [None, 1], "int64")
    made = contrib.tdm_child(nodes, 6, 2, constant(np.array(tree, "int32")))
    children, leaves = run({"nodes": np.array([[1], [2], [5]])}, *made)
    assert children.tolist() == [[[3, 4]], [[5, 0]], [[0, 0]]]
    assert leaves.tolist() == [[[1, 1]], [[1, 0]], [[0, 0]]]


def test_nodes_of_every_level_are_drawn_with_the_one_that_leads_to_an_item():
    items = fluid.data("items", [None, 1], "int64")
    travel = constant(np.array([[1, 3], [1, 4], [2, 5], [2, 0]], "int32"))
    layer = constant(np.array([[1], [2], [3], [4], [5]], "int32"))
    made = contrib.tdm_sampler(items, [1, 2], [2, 3], 4, travel, layer, dtype="int64")
    feed = {"items": np.array([[0], [3]] * 20)}
    top, bottom, label, _, _, mask = run(feed, *[part for parts in made for part in parts])
    assert top.shape == (40, 2, 1) and bottom.shape == (40, 3, 1)
    assert top[:2, :, 0].tolist() == [[1, 2], [2, 1]]
    assert (bottom[::2, 0] == 3).all() and not bottom[1::2].any()
    assert {tuple(row) for row in bottom[::2, 1:, 0].tolist()} == {(4, 5), (5, 4)}
    assert (label == [[1], [0]]).all() and mask[:2, :, 0].tolist() == [[1, 1, 1], [0, 0, 0]]


def test_figures_of_click_through_rates_add_up_over_batches():
    rates, clicks = fluid.data("rates", [None, 1]), fluid.data("clicks", [None, 1])
    sums = contrib.ctr_metric_bundle(rates, clicks)
    assert [total.name[-1] for total in sums] == ["1", "0", "2", "3", "4", "5"]  # as in Paddle
    rng = np.random.default_rng(0)
    given, happened = rng.uniform(size=(7, 1)), rng.integers(0, 2, (7, 1))
    for part in (slice(0, 4), slice(4, 7)):
        feed = {"rates": given[part].astype("float32"), "clicks": happened[part].astype("float32")}
        exe = fluid.Executor(fluid.CPUPlace())
        if not part.start:
            exe.run(fluid.default_startup_program())
        found = exe.run(feed=feed, fetch_list=list(sums))
    errors, q = given - happened, 1 / (1 + np.exp(-given))
    expected = [(errors**2).sum(), abs(errors).sum(), given.sum(), q.sum(), happened.sum(), 7]
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-5)


def test_batches_are_shuffled_anew_in_every_run():
    x = fluid.data("x", [None, 2])
    x.stop_gradient = False
    out = contrib.shuffle_batch(x, seed=7)
    (grad,) = fluid.gradients(fluid.layers.reduce_sum(out * out), x)
    feed = {"x": np.arange(10, dtype="float32").reshape(5, 2)}
    first, d_x = run(feed, out, grad)
    assert (first[:, 0] / 2).tolist() == [3, 0, 2, 4, 1]  # as in the real Paddle
    np.testing.assert_array_equal(d_x, 2 * feed["x"])
    (second,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out])
    assert not np.array_equal(first, second)
    assert sorted(map(tuple, second)) == sorted(map(tuple, first))


def test_what_is_refused_says_what_to_use():
    with pytest.raises(
        AttributeError, match=r"rank_attention is not supported by dpexec: .*layers\.gather"
    ):
        contrib.rank_attention  # noqa: B018
    assert not hasattr(contrib, "nobody")
