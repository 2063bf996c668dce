"""Rank tables: operators, gradients, and ``DynamicRNN``."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.ir.verify import verify

layers = fluid.layers
parts = fluid.layers.control_flow


def sequences(lengths, width=2):
    rows = sum(lengths[-1])
    data = np.arange(rows * width, dtype="float32").reshape(rows, width)
    return fluid.create_lod_tensor(data, lengths, fluid.CPUPlace())


def run(fetch, **feed):
    verify(fluid.default_main_program())
    executor = fluid.Executor(fluid.CPUPlace())
    return executor.run(feed=feed, fetch_list=fetch, return_numpy=False)


def rows(tensor):
    return np.array(tensor)[:, 0].tolist()


@pytest.fixture
def x():
    var = fluid.data("x", [None, 2], lod_level=1)
    var.stop_gradient = False
    return var


def test_steps_of_sequences_the_longest_first(x):
    table = parts.lod_rank_table(x)
    array = parts.lod_tensor_to_array(x, table)
    back = parts.array_to_lod_tensor(array, table)
    found, length, same = run(
        [array, parts.max_sequence_len(table), back], x=sequences([[2, 0, 3, 2]])
    )
    assert [rows(entry) for entry in found] == [[4, 0, 10], [6, 2, 12], [8]]
    assert np.array(length).tolist() == [3]
    assert rows(same) == list(range(0, 14, 2)) and same.lod() == [[0, 2, 2, 5, 7]]


def test_steps_may_be_sequences():
    x = fluid.data("x", [None, 2], lod_level=2)
    table = parts.lod_rank_table(x)
    array = parts.lod_tensor_to_array(x, table)
    back = parts.array_to_lod_tensor(array, table)
    lengths = [[1, 2], [2, 1, 3]]
    found, same = run([array, back], x=sequences(lengths))
    assert [rows(entry) for entry in found] == [[4, 0, 2], [6, 8, 10]]
    assert [entry.recursive_sequence_lengths() for entry in found] == [[[1, 2]], [[3]]]
    assert rows(same) == list(range(0, 12, 2)) and same.recursive_sequence_lengths() == lengths


def test_inner_sequences_can_be_ranked():
    x = fluid.data("x", [None, 2], lod_level=2)
    table = parts.lod_rank_table(x, level=1)
    back = parts.array_to_lod_tensor(parts.lod_tensor_to_array(x, table), table)
    (same,) = run([back], x=sequences([[1, 2], [2, 1, 3]]))
    assert rows(same) == list(range(0, 12, 2))
    assert same.recursive_sequence_lengths() == [[1, 2], [2, 1, 3]]


def test_gradient_goes_back_through_arrays(x):
    table = parts.lod_rank_table(x)
    array = parts.lod_tensor_to_array(x, table)
    second = layers.array_read(array, layers.fill_constant([1], "int64", 1))
    grad = fluid.gradients(layers.reduce_sum(second * second), x)
    (found,) = run(grad, x=sequences([[2, 1, 3]]))
    assert rows(found) == [0, 4, 0, 0, 16, 0] and found.lod() == [[0, 2, 3, 6]]


@pytest.mark.parametrize("lengths", [None, [[2, 1, 3]]])
def test_shrunk_memory_is_of_those_that_run(lengths):
    x = fluid.data("x", [None, 2], lod_level=1)
    memory = fluid.data("memory", [None, 2], lod_level=1 if lengths else 0)
    memory.stop_gradient = False
    step = layers.fill_constant([1], "int64", 2)
    shrunk = parts.shrink_memory(memory, step, parts.lod_rank_table(x))
    grad = fluid.gradients(layers.reduce_sum(shrunk * shrunk), memory)
    data = sequences(lengths or [[3]]) if lengths else np.arange(6, dtype="float32").reshape(3, 2)
    shrunk, grad = run([shrunk, *grad], x=sequences([[3, 1, 4]]), memory=data)
    expected = [0, 2, 4] if lengths else [0, 2]
    assert rows(shrunk) == expected
    assert rows(grad) == [2 * value for value in expected] + [0] * (len(rows(grad)) - len(expected))
    assert shrunk.lod() == ([[0, 2, 3]] if lengths else [])


@pytest.mark.parametrize("lengths", [None, [[2, 1, 3]]])
def test_order_of_a_table(lengths):
    x = fluid.data("x", [None, 2], lod_level=1)
    other = fluid.data("other", [None, 2], lod_level=1 if lengths else 0)
    other.stop_gradient = False
    ordered = layers.reorder_lod_tensor_by_rank(other, parts.lod_rank_table(x))
    grad = fluid.gradients(layers.reduce_sum(ordered * ordered), other)
    data = sequences(lengths) if lengths else np.arange(6, dtype="float32").reshape(3, 2)
    ordered, grad = run([ordered, *grad], x=sequences([[1, 4, 2]]), other=data)
    assert rows(ordered) == ([4, 6, 8, 10, 0, 2] if lengths else [2, 4, 0])
    assert rows(grad) == [2.0 * value for value in range(0, 2 * len(rows(grad)), 2)]
    assert ordered.recursive_sequence_lengths() == ([[1, 3, 2]] if lengths else [])


def test_table_of_another_number_of_sequences_is_refused(x):
    other = fluid.data("other", [None, 2])
    ordered = layers.reorder_lod_tensor_by_rank(other, parts.lod_rank_table(x))
    with pytest.raises(fluid.core.EnforceNotMet, match="has 3 rows, but the table is of 2"):
        run([ordered], x=sequences([[1, 4]]), other=np.zeros((3, 2), "float32"))


def test_inputs_of_a_step_are_equally_long(x):
    other = fluid.data("other", [None, 2], lod_level=1)
    found = parts.lod_tensor_to_array(other, parts.lod_rank_table(x))  # this line
    with pytest.raises(fluid.core.EnforceNotMet, match=r"lengths \[2, 3\].*\[3, 2\]") as error:
        run([found], x=sequences([[3, 2]]), other=sequences([[2, 3]]))
    assert "# this line" in str(error.value)
    with pytest.raises(fluid.core.EnforceNotMet, match=r"lengths \[5\].*\[3, 2\]"):
        run([found], x=sequences([[3, 2]]), other=sequences([[5]]))


def test_dense_tensors_have_no_ranks_but_what_is_fed_has():
    longest = parts.max_sequence_len(parts.lod_rank_table(fluid.data("x", [None, 2])))
    missing = r"X\(x\) holds no sequences(.|\n)*X\(x\): float32\[-1, 2\]"
    with pytest.raises(fluid.core.EnforceNotMet, match=missing):
        run([longest], x=np.ones((5, 2), "float32"))
    assert np.array(run([longest], x=sequences([[3, 2]]))[0]).tolist() == [3]


# ---- DynamicRNN: what is refused (tests/fixtures/control_flow_cases.py has what it computes)


def test_methods_belong_into_the_block(x):
    rnn = layers.DynamicRNN()
    for call in (lambda: rnn.step_input(x), lambda: rnn.memory(x), lambda: rnn.output(x)):
        with pytest.raises(ValueError, match="inside rnn block"):
            call()
    with pytest.raises(ValueError, match="outside the rnn block"):
        rnn()


def test_order_of_calls_is_checked(x):
    rnn = layers.DynamicRNN()
    with rnn.block():
        with pytest.raises(ValueError, match="step_input should be invoked"):
            rnn.memory(shape=[2])
        with pytest.raises(RuntimeError, match="after step_input"):
            rnn.static_input(x)
        step = rnn.step_input(x)
        with pytest.raises(ValueError, match="invoke memory"):
            rnn.update_memory(step, step)
        rnn.output(step)
    with pytest.raises(ValueError, match="once"), rnn.block():
        pass


def test_error_in_a_time_step_names_the_line_of_the_user(x):
    rnn = layers.DynamicRNN()
    with rnn.block():
        step = rnn.step_input(x)
        rnn.output(fluid.embedding(layers.cast(step, "int64"), [3, 4]))  # this line
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    with pytest.raises(fluid.core.EnforceNotMet, match="lookup_table") as error:
        executor.run(feed={"x": sequences([[2, 1]])}, fetch_list=[rnn()], return_numpy=False)
    assert "# this line" in str(error.value)
