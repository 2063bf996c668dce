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


@pytest.mark.parametrize("names", ["elementwise_add,relu", "tanh,elementwise_mul"])
def test_gradients_need_no_intermediate_result(names):
    x = fluid.data("x", [None, 2])
    x.stop_gradient = False
    made = [
        fluid.gradients(
            contrib.fused_elemwise_activation(x, x, names, save_intermediate_out=kept), x
        )[0]
        for kept in (True, False)
    ]
    with_it, without = run({"x": np.array([[-3, 1], [2, -1]], "float32")}, *made)
    np.testing.assert_array_equal(without, with_it)


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


def test_levels_of_trees_are_named_and_checked_as_in_paddle():
    items = fluid.data("items", [None, 1], "int64")
    drawn, labels, mask = contrib.tdm_sampler(items, [0, 1], [2, 3], 4)
    names = [[part.name for part in parts] for parts in (drawn, labels, mask)]
    numbers = [[int(name.split(".")[0].split("_")[1]) for name in row] for row in names]
    assert numbers == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(ValueError, match=r"level 1 .* neg_samples_num_list has 3 .* 3"):
        contrib.tdm_sampler(items, [0, 3], [2, 3], 4)


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


def test_names_that_no_module_has_are_refused():
    assert not hasattr(contrib, "nobody")


WHITE, BLACK = (
    np.frombuffer(np.array([17070416, 512, 2, count], "uint64").tobytes() + bits, "float32")
    for count, bits in (
        (
            8,
            bytes.fromhex(
                "0018040000020100000000210000810000000001000810000400081002000021"
                "0040000008101000000400000000010040000002102020200000000000000000"
            ),
        ),
        (
            1,
            bytes.fromhex(
                "0000040000000000000000000000000000000000000000000000000000000000"
                "0000000000100000000000000000010000000000100000000000000000000000"
            ),
        ),
    )
)
"""Filters of the runs 3 7, 7 1, 3 7 1, 3 7 1 9, 2 5, 2 5 8 6, 2 2 5 8 6, 1 9; and of 7 1."""


def hashed(is_training, use_filter, stop_gradient):
    """A step's loss three times, sequences and sum of the last embeddings, and the table."""
    words = fluid.layers.data("words", [1], dtype="int32", lod_level=1)
    words.stop_gradient = stop_gradient
    attrs = [fluid.ParamAttr(name=name) for name in ("table", "white", "black")]
    out = contrib.search_pyramid_hash(
        words, 8, 36, 5, 4, 0.3, is_training, use_filter, 24, 24, 3, 0.1, *attrs
    )
    assert (out.shape, out.lod_level) == ((-1, 8), 1)
    loss = fluid.layers.mean(fluid.layers.sequence_pool(fluid.layers.square(out), "sum"))
    fluid.backward.append_backward(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.global_scope()
    exe.run(fluid.default_startup_program())
    table = np.arange(40, dtype="float32") / 10 - 2
    for name, value in (("table", table), ("white", WHITE), ("black", BLACK)):
        scope.find_var(name).get_tensor().set(value.reshape(-1, 1), fluid.CPUPlace())
    ids = np.array([3, 7, 1, 9, 4, 2, 2, 5, 8, 6], "int32").reshape(-1, 1)
    feed = {"words": fluid.create_lod_tensor(ids, [[4, 1, 5]], fluid.CPUPlace())}
    found = [exe.run(feed=feed, fetch_list=[loss, out], return_numpy=False) for _ in range(3)]
    losses, last = [np.array(value[0]).item() for value in found], found[-1][1]
    after = np.array(scope.find_var("table").get_tensor()).ravel()
    return (
        losses,
        last.recursive_sequence_lengths(),
        np.array(last).sum(),
        after[[0, 5, 10, 15, 30]],
    )


@pytest.mark.parametrize(
    ("settings", "losses", "lengths", "total", "table"),
    [
        ((False, True, True), [0.21315002] * 3, [4, 1, 3], 5.04, [-2, -1.5, -1, -0.5, 1]),
        (
            (True, True, False),
            [2.2016666, 2.1127155, 2.0283763],
            [2, 1, 3],
            16.229015,
            [-2, -1.4628116, -0.97520775, -0.48760387, 0.92685938],
        ),
        (
            (True, False, False),
            [3.4483330, 3.2951763, 3.1499374],
            [4, 1, 5],
            -12.496098,
            [-1.9504155, -1.4262431, -0.90329623, -0.46342969, 0.92685938],
        ),
        (
            (False, False, False),
            [0.51660007, 0.50608593, 0.49581686],
            [6, 1, 10],
            0.24086296,
            [-1.9850374, -1.4665028, -0.95567167, -0.48514950, 0.96296674],
        ),
    ],
)
def test_hashed_runs_of_words_are_those_of_paddle(settings, losses, lengths, total, table):
    found = hashed(*settings)
    assert found[1] == [lengths]
    np.testing.assert_allclose(found[0], losses, rtol=1e-6)
    np.testing.assert_allclose(found[2], total, rtol=1e-5)
    np.testing.assert_allclose(found[3], table, rtol=1e-6)


def test_filters_that_are_none_are_refused():
    words = fluid.layers.data("words", [1], dtype="int32", lod_level=1)
    out = contrib.search_pyramid_hash(words, 8, 36, 2, 4, 0.3, False, True, 24, 24, 3, 0.1)
    ids = fluid.create_lod_tensor(np.ones((2, 1), "int32"), [[2]], fluid.CPUPlace())
    with pytest.raises(fluid.core.EnforceNotMet, match="WhiteList holds no filter"):
        run({"words": ids}, out)
    with pytest.raises(ValueError, match="didn't have parameter other"):
        contrib.search_pyramid_hash(
            words, 8, 36, 2, 4, 0.3, True, True, 24, 24, 3, 0.1, distribute_update_vars=["other"]
        )


def test_ranks_choose_parameters_that_are_trained():
    x, ranks = fluid.data("x", [None, 2]), fluid.data("ranks", [None, 5], "int32")
    attr = fluid.ParamAttr(name="p", initializer=fluid.initializer.Constant(1.0))
    out = contrib.rank_attention(x, ranks, [8, 3], attr, max_rank=2)
    fluid.optimizer.SGD(0.5).minimize(fluid.layers.mean(out))
    rows, none = np.arange(6, dtype="float32").reshape(3, 2), [0, 0, 0, 0, 0]
    feed = {"x": rows, "ranks": np.array([[1, 1, 0, 2, 1], [2, 1, 0, 2, 1], none], "int32")}
    (found,) = run(feed, out)
    np.testing.assert_array_equal(found, [[6] * 3, [6] * 3, [0] * 3])
    after = np.array(fluid.global_scope().find_var("p").get_tensor())
    expected = 1 - 0.5 / 9 * np.array([0, 1, 2, 3] * 2).reshape(-1, 1).repeat(3, 1)
    np.testing.assert_allclose(after, expected, rtol=1e-6)
    with pytest.raises(fluid.core.EnforceNotMet, match="RankOffset: expected a row of 3"):
        run({"x": rows, "ranks": np.array([[1, 1, 9, 0, 0]] * 3, "int32")}, out)
    with pytest.raises(ValueError, match="must have 8 rows"):
        contrib.rank_attention(x, ranks, [9, 3], attr, max_rank=2)
