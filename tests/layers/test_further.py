"""Sampled losses and further layers: training, randomness, refusals."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers
from dpexec.layers.sampled_loss import alias_table


def run(feed, *fetch):
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        if fluid.default_startup_program().global_block().ops:
            executor.run(fluid.default_startup_program())
        return executor.run(feed=feed, fetch_list=list(fetch))


@pytest.mark.parametrize("odds", [[0.25] * 4, [0.05, 0.4, 0.15, 0.3, 0.1], [0.0, 1.0]])
def test_alias_table_keeps_the_probabilities(odds):
    alias, stays = alias_table([p * len(odds) for p in odds])
    found = np.array(stays)
    for taker, giver in enumerate(alias):
        if giver >= 0:
            found[giver] += 1 - stays[taker]
    np.testing.assert_allclose(found / len(odds), odds, atol=1e-12)


def losses(make, steps=60, places=None):
    """Losses of a classifier of 8 separable classes, trained with ``make`` as its loss."""
    x = fluid.data("x", [None, 8])
    label = fluid.data("label", [None, 1], dtype="int64")
    loss = layers.mean(make(x, label))
    fluid.optimizer.Adam(0.1).minimize(loss)
    rng = np.random.default_rng(2)
    program = fluid.default_main_program()
    if places:
        program = fluid.CompiledProgram(program).with_data_parallel(loss.name, places=places)
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(fluid.default_startup_program())
        found = []
        for _ in range(steps):
            labels = rng.integers(0, 8, (16, 1))
            feed = {"x": np.eye(8, dtype="float32")[labels[:, 0]], "label": labels}
            found.append(np.mean(executor.run(program, feed=feed, fetch_list=[loss])[0]))
    return found


@pytest.mark.parametrize("places", [None, [fluid.CPUPlace()] * 2])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_nce_trains_with_fresh_noise(is_sparse, places):
    found = losses(
        lambda x, label: layers.nce(x, label, 8, num_neg_samples=4, is_sparse=is_sparse),
        places=places,
    )
    assert np.mean(found[-5:]) < 0.7 * found[0]


def test_nce_with_a_distribution_of_its_own_trains():
    odds = [0.3, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
    found = losses(
        lambda x, label: layers.nce(
            x, label, 8, num_neg_samples=4, sampler="custom_dist", custom_dist=odds
        )
    )
    assert np.mean(found[-5:]) < 0.7 * found[0]


@pytest.mark.parametrize("places", [None, [fluid.CPUPlace()] * 2])
def test_hsigmoid_finds_the_classes(places):
    found = losses(lambda x, label: layers.hsigmoid(x, label, 8), places=places)
    assert found[-1] < 0.1 * found[0]


def test_sampled_softmax_over_all_classes_is_the_softmax():
    """The true class, all classes with the probability 1, and no class twice."""
    logits = np.random.default_rng(1).standard_normal((4, 6)).astype("float32")
    labels = np.array([[0], [5], [2], [2]])
    every = np.concatenate([labels, np.tile(np.arange(6), (4, 1))], axis=1)
    x, label = fluid.data("x", [None, 6]), fluid.data("label", [None, 1], dtype="int64")
    samples = fluid.data("samples", [None, 7], dtype="int64")
    probabilities = fluid.data("probabilities", [None, 7])
    feed = {"x": logits, "label": labels, "samples": every}
    feed["probabilities"] = np.ones((4, 7), "float32")
    sampled = layers.sampled_softmax_with_cross_entropy(
        x, label, 6, use_customized_samples=True, customized_samples=samples,
        customized_probabilities=probabilities,
    )  # fmt: skip
    exact = layers.softmax_with_cross_entropy(x, label)
    found, expected = run(feed, sampled, exact)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_centers_follow_their_samples():
    x, label = fluid.data("x", [None, 2]), fluid.data("label", [None, 1], dtype="int64")
    attr = fluid.ParamAttr(name="centers", initializer=fluid.initializer.Constant(0.0))
    loss = layers.center_loss(x, label, 3, alpha=0.5, param_attr=attr)
    feed = {"x": np.array([[4.0, 0.0], [0.0, 2.0]], "float32"), "label": np.array([[1], [1]])}
    found, centers = run(feed, loss, "centers")
    np.testing.assert_allclose(found, [[8.0], [2.0]])
    np.testing.assert_allclose(centers, [[0, 0], [2 / 3, 1 / 3], [0, 0]], rtol=1e-6)


@pytest.mark.parametrize("reduce", [False, True])
def test_sums_of_data_norm_are_those_of_all_devices(reduce):
    x = fluid.data("x", [None, 3])
    loss = layers.mean(layers.fc(layers.data_norm(x), 1))
    fluid.optimizer.SGD(1.0).minimize(loss)
    strategy = fluid.BuildStrategy()
    if reduce:
        strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, build_strategy=strategy, places=[fluid.CPUPlace()] * 2
    )
    feed = {"x": np.arange(12, dtype="float32").reshape(4, 3)}
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(fluid.default_startup_program())
        executor.run(program, feed=feed)
        size, total = executor.run(program, feed=feed, fetch_list=["dn.batch_size", "dn.batch_sum"])
    np.testing.assert_allclose(size[:3], 1e4 - 2 * 4)
    np.testing.assert_allclose(total[:3], -2 * feed["x"].sum(0), rtol=1e-5)


def test_random_integers_differ_from_run_to_run():
    drawn = layers.randint(0, 1000000, shape=[8])
    order = layers.randperm(50)
    first, second = run({}, drawn, order), run({}, drawn, order)
    assert sorted(first[1]) == list(range(50))
    assert (first[0] != second[0]).any()
    assert (first[1] != second[1]).any()


def test_randn_takes_its_seed_from_numpy():
    np.random.seed(5)  # noqa: NPY002 - as programs do
    first = layers.randn([4])
    np.random.seed(5)  # noqa: NPY002
    second = layers.randn([4])
    assert first.op.attr("seed") == second.op.attr("seed")
    a, b = run({}, first, second)
    np.testing.assert_array_equal(a, b)


def test_hash_numbers_rows():
    rows = fluid.data("rows", [None, 2], dtype="int64")
    found = run({"rows": np.array([[1, 2], [3, 4], [9, 7]])}, layers.hash(rows, 10000, 4))[0]
    expected = [[6524, 3896, 1680, 4869], [3640, 7562, 750, 3044], [9649, 7613, 4412, 5018]]
    assert found[:, :, 0].tolist() == expected  # by the operator of the real Paddle


def test_vectors_transpose_to_themselves():
    x = fluid.data("x", [4])
    assert layers.t(x) is x
    with pytest.raises(ValueError, match="at most 2 dimensions"):
        layers.t(fluid.data("y", [2, 3, 4]))


def test_dimension_to_reduce_may_be_a_numpy_integer():
    x = fluid.data("x", [None, 4, 6])
    assert layers.reduce_sum(x, dim=np.int64(1)).shape == (-1, 6)


def test_wrong_calls_are_refused():
    x = fluid.data("x", [None, 4])
    label = fluid.data("label", [None, 1], dtype="int64")
    with pytest.raises(ValueError, match="sampler"):
        layers.nce(x, label, 10, sampler="normal")
    with pytest.raises(ValueError, match="need is_custom"):
        layers.hsigmoid(x, label, 4, path_table=label, path_code=label)
    with pytest.raises(ValueError, match="path_table"):
        layers.hsigmoid(x, label, 4, is_custom=True)
    with pytest.raises(ValueError, match=r"\[0, 2\)"):
        layers.shard_index(label, index_num=10, nshards=2, shard_id=2)
    for make, like in ((layers.full, [2]), (layers.full_like, x)):
        with pytest.raises(ValueError, match="should be 'cpu', 'gpu' or None"):
            make(like, 1.0, device="tpu")
    distances, _ = layers.edit_distance(label, label)
    with pytest.raises(fluid.core.EnforceNotMet, match="Hyps holds no sequences"):
        run({"label": np.zeros((2, 1), "int64")}, distances)


def test_parameters_that_the_forward_pass_names_as_outputs_train_in_reduce_mode():
    """hsigmoid writes its weight, so every device has its own: the updated one must reach all."""
    x, label = fluid.data("x", [None, 8]), fluid.data("label", [None, 1], dtype="int64")
    attr = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.1))
    loss = layers.mean(layers.hsigmoid(x, label, 8, param_attr=attr))
    fluid.optimizer.SGD(0.5).minimize(loss)
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    strategy = fluid.BuildStrategy()
    strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    parallel = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, build_strategy=strategy, places=[fluid.CPUPlace()] * 2
    )
    labels = np.arange(16)[:, None] % 8
    feed = {"x": np.eye(8, dtype="float32")[labels[:, 0]], "label": labels}
    found = []
    for program in (main, parallel):
        with fluid.scope_guard(fluid.Scope()):
            executor = fluid.Executor(fluid.CPUPlace())
            executor.run(startup)
            runs = [executor.run(program, feed=feed, fetch_list=[loss])[0] for _ in range(4)]
            found.append([np.mean(run) for run in runs])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_load_reads_what_was_saved(tmp_path):
    """A program that saves a parameter, and one that reads it into a variable of its own."""
    saved = layers.create_parameter([2, 3], "float32", name="saved")
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(fluid.default_startup_program())
        fluid.io.save_vars(executor, str(tmp_path), vars=[saved])
        expected = fluid.global_scope().find_var("saved").get_tensor().numpy()
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        out = layers.create_tensor("float32")
        layers.load(out, str(tmp_path / "saved"))
        np.testing.assert_array_equal(run({}, out)[0], expected)
