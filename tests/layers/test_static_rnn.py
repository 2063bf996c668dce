"""``StaticRNN``: random numbers, embeddings, lengths, copies, clusters, errors."""

import numpy as np
import pytest
from distributed import Client

import dpexec as fluid
from dpexec import layers
from tests.engine.run.nets import AllReduce, Net, Reduce, assert_same_bits, train
from tests.fixtures import recurrent_cases


def run(feed, fetch, program=None):
    executor = fluid.Executor(fluid.CPUPlace())
    if fluid.default_startup_program().global_block().ops:
        executor.run(fluid.default_startup_program())
    return executor.run(program, feed=feed, fetch_list=fetch)


def numbers(*shape):
    return np.random.RandomState(3).uniform(-1, 1, shape).astype("float32")


def sums_of(x, start=0.0):
    """The sum of all steps so far."""
    rnn = layers.StaticRNN()
    with rnn.step():
        now = rnn.step_input(x)
        total = rnn.memory(shape=[-1, x.shape[-1]], batch_ref=now, init_value=start)
        added = total + now
        rnn.update_memory(total, added)
        rnn.step_output(added)
    return rnn()


def test_dropout_draws_other_numbers_in_every_step_and_the_same_for_gradients():
    x = fluid.data("x", [3, 40, 5])
    x.stop_gradient = False
    rnn = layers.StaticRNN()
    with rnn.step():
        now = rnn.step_input(x)
        rnn.step_output(layers.dropout(now, 0.5, dropout_implementation="upscale_in_train"))
    out = rnn()
    (d_x,) = fluid.gradients(layers.reduce_sum(out), [x])
    dropped, slopes = run({"x": np.ones((3, 40, 5), "float32")}, [out, d_x])
    np.testing.assert_array_equal(dropped, slopes)
    assert set(np.unique(dropped)) == {0.0, 2.0}
    assert not np.array_equal(dropped[0], dropped[1])


@pytest.mark.parametrize("is_sparse", [False, True])
def test_tables_that_steps_look_words_up_in_get_gradients(is_sparse):
    ids, start = fluid.data("ids", [4, 3, 1], dtype="int64"), layers.zeros([3, 2], "float32")
    rnn = layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(ids)
        known = layers.embedding(word, [6, 2], is_sparse=is_sparse, param_attr="table")
        total = rnn.memory(init=start)
        added = total + known
        rnn.update_memory(total, added)
        rnn.step_output(added)
    outside = layers.embedding(ids, [6, 2], param_attr="other")
    loss = layers.reduce_sum(rnn()) + layers.reduce_sum(sums_of(outside))
    fluid.backward.append_backward(loss)
    words = np.random.RandomState(0).randint(6, size=(4, 3, 1))
    inside, around = run({"ids": words}, ["table@GRAD", "other@GRAD"])
    np.testing.assert_array_equal(inside, around)


def test_number_of_steps_may_differ_from_run_to_run():
    x = layers.transpose(fluid.data("x", [None, None, 2]), [1, 0, 2])
    x.stop_gradient = False
    out = sums_of(x, start=0.5)
    (d_x,) = fluid.gradients(layers.reduce_sum(out), [x])
    for steps in (3, 1, 5):
        fed = numbers(4, steps, 2)
        found, slopes = run({"x": fed}, [out, d_x])
        np.testing.assert_allclose(found, np.cumsum(fed, 1).swapaxes(0, 1) + 0.5, rtol=1e-5)
        counts = np.arange(steps, 0, -1).reshape(-1, 1, 1)  # a step is in all sums after it
        np.testing.assert_array_equal(slopes, np.broadcast_to(counts, found.shape))


def test_last_step_comes_first_in_reverse():
    x = fluid.data("x", [4, 2, 3])
    x.stop_gradient = False
    out = sums_of(x)
    fluid.default_main_program().global_block().ops[-1]._set_attr("reverse", True)
    (d_x,) = fluid.gradients(layers.reduce_sum(out), [x])
    fed = numbers(4, 2, 3)
    found, slopes = run({"x": fed}, [out, d_x])
    np.testing.assert_allclose(found, np.cumsum(fed[::-1], 0)[::-1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(slopes[:, 0, 0], [1, 2, 3, 4])


def test_network_inside_a_branch():
    x, flag = fluid.data("x", [3, 2, 2]), fluid.data("flag", [1], "bool")
    x.stop_gradient = False
    out = layers.cond(flag, lambda: sums_of(x), lambda: x * 2.0)
    (d_x,) = fluid.gradients(layers.reduce_sum(out), [x])
    fed = numbers(3, 2, 2)
    for taken, expected in ((True, [3, 2, 1]), (False, [2, 2, 2])):
        slopes = run({"x": fed, "flag": np.array([taken])}, [d_x])[0]
        np.testing.assert_array_equal(slopes[:, 0, 0], expected)


def test_saved_network_predicts_the_same(tmp_path):
    x = fluid.data("x", [3, None, 4])
    out, _ = layers.rnn(layers.LSTMCell(5), x, time_major=True)
    fluid.optimizer.SGD(0.1).minimize(layers.mean(out))
    test_program = fluid.default_main_program().clone(for_test=True)
    fed = {"x": numbers(3, 2, 4)}
    run(fed, [out])
    executor = fluid.Executor(fluid.CPUPlace())
    expected = executor.run(test_program, feed=fed, fetch_list=[out])[0]
    fluid.io.save_inference_model(str(tmp_path), ["x"], [out], executor)
    program, names, fetch = fluid.io.load_inference_model(str(tmp_path), executor)
    assert program.num_blocks == 2 and names == ["x"]
    np.testing.assert_array_equal(executor.run(program, feed=fed, fetch_list=fetch)[0], expected)


def case(name):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        fetch, feeds = recurrent_cases.CASES[name](fluid)
    for op in startup.global_block().ops:
        if "seed" in op.attrs:
            op._set_attr("seed", 5)
    return Net(main, startup, fetch[0], None, None), feeds[:3]


def test_cluster_trains_with_the_bits_of_threads():
    net, feeds = case("static_rnn_of_two_memories")
    with Client(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as client:
        found = train(net, feeds, 2, Reduce, scheduler=client)
    assert_same_bits(found, train(net, feeds, 2, Reduce))


def test_all_schedulers_give_the_same_bits():
    net, feeds = case("rnn_both_ways")
    expected = train(net, feeds, 2, AllReduce)
    assert_same_bits(train(net, feeds, 2, AllReduce, scheduler="sync"), expected)
    assert_same_bits(train(net, feeds, 2, AllReduce), expected)


# ---- what is refused


def test_sequences_of_different_lengths_are_refused_before_the_run():
    x, y = fluid.data("x", [None, 2, 2]), fluid.data("y", [None, 2, 2])
    rnn = layers.StaticRNN()
    with rnn.step():
        rnn.step_output(rnn.step_input(x) + rnn.step_input(y))
    with pytest.raises(fluid.core.EnforceNotMet, match=r"(?s)same number of steps.*made by"):
        run({"x": numbers(3, 2, 2), "y": numbers(4, 2, 2)}, [rnn()])


def test_sequence_of_another_length_is_refused_where_it_is_added():
    rnn = layers.StaticRNN()

    def build():
        with rnn.step():
            rnn.step_input(fluid.data("x", [3, 2]))
            rnn.step_input(fluid.data("y", [4, 2]))

    with pytest.raises(ValueError, match="fix seq_len"):
        build()
    assert [op.type for op in fluid.default_main_program().global_block().ops] == []


def test_memory_must_be_updated():
    x = fluid.data("x", [3, 2, 2])
    rnn = layers.StaticRNN()

    def build():
        with rnn.step():
            now = rnn.step_input(x)
            rnn.step_output(rnn.memory(shape=[-1, 2], batch_ref=now) + now)

    with pytest.raises(ValueError, match="updated in every step"):
        build()


def test_memory_needs_a_shape_or_a_start():
    x = fluid.data("x", [3, 2, 2])
    rnn = layers.StaticRNN()
    with rnn.step():
        rnn.step_output(rnn.step_input(x))
        with pytest.raises(ValueError, match="shape and batch_ref"):
            rnn.memory(shape=[-1, 2])


def test_steps_are_built_inside_and_results_taken_outside():
    rnn = layers.StaticRNN()
    with pytest.raises(ValueError, match="step_input in rnn block"):
        rnn.step_input(fluid.data("x", [3, 2]))
    with pytest.raises(ValueError, match="after rnn block"):
        rnn()


def test_error_in_a_step_names_its_operator_and_line():
    ids = fluid.data("ids", [2, 3, 1], dtype="int64")
    rnn = layers.StaticRNN()
    with rnn.step():
        rnn.step_output(layers.embedding(rnn.step_input(ids), [4, 2]))  # looked up here
    with pytest.raises(fluid.core.EnforceNotMet, match=r"(?s)lookup_table.*looked up here"):
        run({"ids": np.full((2, 3, 1), 9)}, [rnn()])


def test_cell_must_give_states_like_those_it_takes():
    class Odd(layers.RNNCell):
        def call(self, inputs, states):
            return inputs, [states, states]

    x = fluid.data("x", [None, 3, 2])
    with pytest.raises(ValueError, match="Variable"):
        layers.rnn(Odd(), x, layers.fc(x, 2))


# ---- decoders


def test_drawing_at_a_low_temperature_takes_the_best():
    start = layers.fc(fluid.data("x", [None, 3]), 4, act="tanh")
    first = layers.fill_constant_batch_size_like(start, [-1], "int64", 2)

    def decoded(helper, **more):
        helper = helper(
            lambda ids: fluid.embedding(ids, [7, 4], param_attr="table"), first, 6, **more
        )
        cell = layers.GRUCell(4, param_attr=fluid.ParamAttr("cell"))
        head = {"param_attr": "head", "bias_attr": False}
        decoder = layers.BasicDecoder(cell, helper, lambda x: layers.fc(x, 7, **head))
        states = layers.assign(start)  # which a decoder overwrites
        return layers.dynamic_decode(decoder, states, max_step_num=6, is_test=True)[0].sample_ids

    best = decoded(layers.GreedyEmbeddingHelper)
    drawn = decoded(layers.SampleEmbeddingHelper, softmax_temperature=1e-4, seed=3)
    found = run({"x": numbers(5, 3)}, [best, drawn])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(("name", "works"), [("has_states", False), ("is_train", True)])
def test_states_are_linked_where_the_operator_says_so(name, works):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        network = fluid.layers.StaticRNN()
        with network.step():
            step = network.step_input(fluid.data("x", [3, 2, 1]))
            memory = network.memory(shape=[-1, 1], batch_ref=step)
            total = step + memory
            network.update_memory(memory, total)
            network.step_output(total)
        out = network()
    (op,) = [op for op in main.global_block().ops if op.type == "recurrent"]
    op._set_attr(name, False)
    exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.ones((3, 2, 1), "float32")}
    if works:
        assert exe.run(main, feed=feed, fetch_list=[out])[0][:, 0, 0].tolist() == [1, 2, 3]
    else:
        with pytest.raises(fluid.core.EnforceNotMet, match="recurrent: has_states must be set"):
            exe.run(main, feed=feed, fetch_list=[out])
