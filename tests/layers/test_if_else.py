"""``IfElse``, and the operators that split and merge a batch by a mask."""

import numpy as np
import pytest

import dpexec as fluid

layers = fluid.layers
parts = fluid.layers.control_flow


def run(fetch, **feed):
    executor = fluid.Executor(fluid.CPUPlace())
    return executor.run(feed=feed, fetch_list=fetch, return_numpy=False)


MASK = np.array([[True], [False], [False], [True]])


def test_sequences_are_split_and_merged():
    x = fluid.data("x", [None, 1], lod_level=1)
    x.stop_gradient = False
    mask = fluid.data("mask", [None, 1], "bool")
    true, false = parts.split_lod_tensor(x, mask)
    merged = parts.merge_lod_tensor(true * 10.0, false, x, mask)
    grad = fluid.gradients(layers.reduce_sum(merged), x)
    column = np.arange(6, dtype="float32").reshape(6, 1)
    tensor = fluid.create_lod_tensor(column, [[2, 1, 0, 3]], fluid.CPUPlace())
    found = run([true, false, merged, *grad], x=tensor, mask=MASK)
    assert [np.array(value).ravel().tolist() for value in found] == [
        [0, 1, 3, 4, 5],
        [2],
        [0, 10, 2, 30, 40, 50],
        [10, 10, 1, 10, 10, 10],
    ]
    lengths = [value.recursive_sequence_lengths() for value in found]
    assert lengths == [[[2, 3]], [[1, 0]], [[2, 1, 0, 3]], [[2, 1, 0, 3]]]


@pytest.mark.parametrize("holds", [True, False])
def test_a_block_may_have_no_rows(holds):
    x = fluid.data("x", [None, 2])
    x.stop_gradient = False
    mask = fluid.data("mask", [None, 1], "bool")
    either = layers.IfElse(mask)
    with either.true_block():
        either.output(layers.fc(either.input(x), 1, param_attr="w", bias_attr=False))
    with either.false_block():
        either.output(layers.reduce_sum(either.input(x), dim=[1], keep_dim=True))
    (merged,) = either()
    grad = fluid.gradients(layers.reduce_sum(merged), x)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    fluid.global_scope().find_var("w").get_tensor().set(np.array([[2], [3]], "float32"))
    data = np.array([[1, 2], [3, 4]], "float32")
    found, d_x = run([merged, *grad], x=data, mask=np.full((2, 1), holds))
    assert np.array(found).ravel().tolist() == ([8, 18] if holds else [3, 7])
    assert np.array(d_x).tolist() == ([[2, 3]] * 2 if holds else [[1, 1]] * 2)


def test_parts_must_fit_the_mask():
    x = fluid.data("x", [None, 1])
    mask = fluid.data("mask", [None, 1], "bool")
    merged = parts.merge_lod_tensor(x, x, x, mask)
    with pytest.raises(
        fluid.core.EnforceNotMet, match=r"have 3 and 3 .* but Mask holds for 2 of 4"
    ):
        run([merged], x=np.zeros((3, 1), "float32"), mask=MASK)


def test_mask_must_be_a_column_of_bools():
    x = fluid.data("x", [None, 1])
    with pytest.raises(fluid.core.EnforceNotMet, match="bool with one column"):
        parts.split_lod_tensor(x, x)


def test_misuse_is_refused():
    x = fluid.data("x", [None, 1])
    either = layers.IfElse(x > 0.0)
    for call in (lambda: either.input(x), lambda: either.output(x), either):
        with pytest.raises(ValueError, match="block"):
            call()
    with pytest.raises(ValueError, match="output inside"), either.true_block():
        either.input(x)
    with either.false_block():
        either.output(either.input(x), x)
        with pytest.raises(ValueError, match="inside a block"), either.true_block():
            pass
    assert len(either()) == 2
    with either.true_block():
        either.output(either.input(x))
    with pytest.raises(ValueError, match="must be same"):
        either()


def test_a_block_without_rows_does_not_run():
    """So its running statistics stay what they are, and variables that it writes."""
    x, mask = fluid.data("x", [None, 2]), fluid.data("mask", [None, 1], "bool")
    count = layers.create_global_var([1], 0.0, "float32", persistable=True)
    either = layers.IfElse(mask)
    with either.true_block():
        rows = either.input(x)
        layers.assign(count + layers.reduce_max(rows), count)
        either.output(layers.batch_norm(rows, moving_mean_name="mean"))
    with either.false_block():
        either.output(layers.scale(either.input(x), 2.0))
    (merged,) = either()
    fluid.optimizer.SGD(0.1).minimize(layers.reduce_sum(layers.square(merged)))
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    data, means = np.array([[1, 2], [3, 4]], "float32"), []
    for holds in (True, False):
        found, total, mean = run([merged, count, "mean"], x=data, mask=np.full((2, 1), holds))
        assert np.array(total).tolist() == [4]
        means.append(np.array(mean).tolist())
    assert means[0] == means[1] != [0, 0]
    assert np.array(found).tolist() == (data * 2).tolist()


def test_means_and_maxima_of_no_rows_have_gradients():
    x = fluid.data("x", [None, 6])
    x.stop_gradient = False
    none = layers.gather_nd(x, layers.where(layers.reduce_sum(x, dim=1) > 9))
    cells = layers.adaptive_pool2d(layers.reshape(none, [-1, 1, 2, 3]), 1)
    means = layers.reduce_mean(none, dim=1)
    loss = layers.reduce_sum(cells) + layers.reduce_sum(means)
    total, gradient = run([loss, *fluid.gradients(loss, x)], x=np.ones((2, 6), "float32"))
    assert np.array(total).tolist() == [0] and not np.array(gradient).any()


def test_devices_whose_rows_all_take_one_branch():
    """Paddle merges rows of an earlier step there."""
    x, mask = fluid.data("x", [None, 2]), fluid.data("mask", [None, 1], "bool")
    either = layers.IfElse(mask)
    with either.true_block():
        either.output(layers.fc(either.input(x), 1, param_attr="w", bias_attr=False))
    with either.false_block():
        either.output(layers.reduce_max(either.input(x), dim=1, keep_dim=True))
    loss = layers.mean(layers.square(either()[0]))
    fluid.optimizer.SGD(0.01).minimize(loss)
    program, executor = fluid.default_main_program(), fluid.Executor(fluid.CPUPlace())
    parallel = fluid.CompiledProgram(program).with_data_parallel(
        loss_name=loss.name, places=fluid.cpu_places(2)
    )
    data = np.arange(8, dtype="float32").reshape(4, 2)
    masks = [[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1], [0, 1, 1, 0]]

    def losses(program):
        with fluid.scope_guard(fluid.Scope()):
            executor.run(fluid.default_startup_program())
            fluid.global_scope().find_var("w").get_tensor().set(np.array([[2], [3]], "float32"))
            batches = ({"x": data, "mask": np.array(m, bool)[:, None]} for m in masks)
            return [np.mean(executor.run(program, batch, [loss])[0]) for batch in batches]

    np.testing.assert_allclose(losses(parallel), losses(program), rtol=1e-6)
