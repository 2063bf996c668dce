"""All rounds of a loop in one call of machine code give the bits that rounds one by one give."""

import pickle
import tracemalloc

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine import kernels

if not kernels.available():
    pytest.skip("numba is not installed", allow_module_level=True)

from dpexec.engine.compile.regions import slots, whole_loop
from dpexec.engine.core.arrays import TensorArray
from dpexec.engine.core.lod import NO_SEQUENCES, Lod
from dpexec.engine.kernels import rounds

layers = fluid.layers


@pytest.fixture
def wholes(monkeypatch, fresh_programs):
    """For every loop that ran, whether it ran as a whole; ``used = False`` turns that off."""

    class Seen(list):
        used = True

    fluid.default_startup_program().random_seed = 5
    assert rounds.rounds.address  # else another process compiles it meanwhile
    seen, run = Seen(), whole_loop.WholeLoop.run

    def watched(self, env, course):
        ran = run(self, env, course) if seen.used else None
        seen.append(ran is not None)
        return ran

    monkeypatch.setattr(whole_loop.WholeLoop, "run", watched)
    return seen


def start(exe):
    if fluid.default_startup_program().global_block().ops:
        exe.run(fluid.default_startup_program())


def both_ways(wholes, fetch, feeds):
    """Run a program on batches as a whole and round by round; the values must be the same bits."""
    found = []
    for wholes.used in (True, False):
        exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        with fluid.scope_guard(scope):
            start(exe)
            runs = [exe.run(feed=f, fetch_list=fetch, return_numpy=False) for f in feeds]
        if wholes.used:
            assert wholes and all(wholes)
        found.append([np.array(value) for values in runs for value in values])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return found[0]


def texts(*batches, width=6):
    """A feed of rows for every list of lengths."""
    rng = np.random.default_rng(0)
    return [
        {
            "x": fluid.create_lod_tensor(
                rng.normal(size=(sum(lengths), width)).astype("float32"),
                [list(lengths)],
                fluid.CPUPlace(),
            )
        }
        for lengths in batches
    ]


def trained(loss):
    fluid.optimizer.Adam(0.05).minimize(loss)
    return [loss, *fluid.default_main_program().all_parameters()]


def test_a_dynamic_rnn_trains_on_batches_of_any_lengths(wholes):
    x = fluid.data("x", [None, 6], "float32", lod_level=1)
    network = layers.DynamicRNN()
    with network.block():
        word = network.step_input(x)
        before = network.memory(shape=[5], value=0.1)
        after, _, _ = layers.gru_unit(layers.fc(word, 15), before, 15)
        network.update_memory(before, after)
        network.output(after)
    last = layers.sequence_last_step(network())
    feeds = texts((3, 1, 4), (1, 5, 9, 2), (6,), (5, 3, 5), (8, 9, 7, 9), (1, 1))
    both_ways(wholes, trained(layers.mean(layers.square(last))), feeds)


def test_values_may_come_from_another_process(wholes):
    """Pickle gives their types objects of their own, and theirs are the first of these shapes."""
    x = fluid.data("x", [None, 43], "float32", lod_level=1)
    network = layers.DynamicRNN()
    with network.block():
        word, before = network.step_input(x), network.memory(shape=[47], value=0.0)
        after = layers.fc([word, before], 47, act="tanh", bias_attr=fluid.ParamAttr("bias"))
        network.update_memory(before, after)
        network.output(after)
    loss = trained(layers.mean(layers.sequence_last_step(network())))
    exe = fluid.Executor(fluid.CPUPlace())
    start(exe)
    for parameter in fluid.default_main_program().all_parameters():
        tensor = fluid.global_scope().find_var(parameter.name).get_tensor()
        tensor.set(pickle.loads(pickle.dumps(np.array(tensor))), fluid.CPUPlace())
    for feed in texts((3, 1, 4), (2, 5), width=43):
        rows = pickle.loads(pickle.dumps(np.array(feed["x"])))
        lengths = feed["x"].recursive_sequence_lengths()
        x = fluid.create_lod_tensor(rows, lengths, fluid.CPUPlace())
        exe.run(feed={"x": x}, fetch_list=loss)
    assert len(wholes) == 4 and all(wholes)


def test_memory_that_is_needed_again_is_not_freed(wholes):
    x = fluid.data("x", [None, 200], "float32", lod_level=1)
    words = layers.fc(x, 200)
    network = layers.DynamicRNN()
    with network.block():
        word = network.step_input(words)
        before = network.memory(shape=[100], value=0.0)
        after = layers.fc([word, before], 100, act="tanh")
        network.update_memory(before, after)
        network.output(after)
    loss = layers.mean(layers.sequence_pool(network(), "max"))
    both_ways(wholes, trained(loss), texts(range(20, 40), range(2, 24), width=200))


def test_attention_over_sequences_in_a_dynamic_rnn(wholes):
    x = fluid.data("x", [None, 6], "float32", lod_level=1)
    x.stop_gradient = False
    encoded = layers.fc(x, 4, act="tanh")
    network = layers.DynamicRNN()
    with network.block():
        word, seen = network.step_input(x), network.static_input(encoded)
        before = network.memory(shape=[4], value=0.0)
        state = layers.sequence_expand(layers.fc(before, 4), seen)
        scores = layers.sequence_softmax(layers.fc(layers.tanh(seen + state), 1))
        weights = layers.reshape(scores, [-1])
        context = layers.sequence_pool(layers.elementwise_mul(seen, weights, axis=0), "sum")
        after = layers.fc([context, word], 4, act="tanh")
        network.update_memory(before, after)
        network.output(after)
    loss = layers.mean(layers.sequence_pool(network(), "max"))
    both_ways(wholes, trained(loss), texts((3, 1, 4), (2, 2, 5), (4, 1)))


@pytest.mark.parametrize("is_reverse", [False, True])
def test_a_static_rnn_trains(wholes, is_reverse):
    x = fluid.data("x", [7, None, 6], "float32")
    network = layers.StaticRNN()
    with network.step():
        word = network.step_input(x)
        before = network.memory(shape=[-1, 5], batch_ref=word)
        after = layers.fc([word, before], 5, act="tanh")
        network.update_memory(before, after)
        network.step_output(after)
        network.step_output(layers.scale(word, 2.0))
    first, second = network()
    for op in fluid.default_main_program().global_block().ops:
        if op.type == "recurrent":
            op._set_attr("reverse", is_reverse)
    rng = np.random.default_rng(1)
    feeds = [{"x": rng.normal(size=(7, n, 6)).astype("float32")} for n in (3, 5, 1, 3)]
    both_ways(wholes, [first, second, *trained(layers.mean(first) + layers.mean(second))], feeds)


def test_states_that_are_plain_tensors_have_gradients(wholes):
    x = fluid.data("x", [None, 6], "float32")
    h = layers.fc(x, 6)
    number, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 4)

    def body(number, h):
        return [layers.increment(number, in_place=False), layers.fc(h, 6, act="sigmoid")]

    _, h = layers.while_loop(lambda number, _: layers.less_than(number, end), body, [number, h])
    rng = np.random.default_rng(1)
    feeds = [{"x": rng.normal(size=(n, 6)).astype("float32")} for n in (2, 3, 2)]
    both_ways(wholes, trained(layers.mean(h)), feeds)


def counted(rounds, width=4):
    """A loop of many rounds that numbers its rounds; and its last state."""
    h = layers.fill_constant([1, width], "float32", 1.0)
    end = layers.fill_constant([1], "int64", rounds)
    number = layers.fill_constant([1], "int64", 0)

    def body(number, h):
        return [layers.increment(number, in_place=False), layers.scale(h, 0.5, bias=1.0)]

    return layers.while_loop(lambda number, _: layers.less_than(number, end), body, [number, h])


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 5000])
def test_any_number_of_rounds(wholes, count):
    number, _ = both_ways(wholes, counted(count), [{}])
    assert number.tolist() == [count]


def test_values_that_no_later_round_needs_do_not_pile_up(wholes):
    fetch = counted(3000, 4096)  # 16 KiB each round
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fetch_list=fetch)
    tracemalloc.start()
    try:
        exe.run(fetch_list=fetch)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert all(wholes)


def test_arrays_of_tensors_come_in_and_out(wholes):
    number, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 5)
    array = layers.create_array("float32")
    layers.array_write(layers.fill_constant([2, 3], "float32", 1.0), number, array)
    other = layers.create_array("float32")
    condition = layers.less_than(number, end)
    loop = layers.While(condition)
    with loop.block():
        read = layers.array_read(array, number)
        layers.array_write(layers.scale(read, 3.0), number, other)
        layers.increment(number)
        layers.array_write(layers.scale(read, 2.0, bias=1.0), number, array)
        layers.less_than(number, end, cond=condition)
    last = layers.array_read(array, number)
    whole, _ = layers.tensor_array_to_tensor(other, axis=0)
    found = both_ways(wholes, [last, whole, layers.array_length(array)], [{}])
    assert found[0].tolist() == [[63] * 3] * 2 and found[2].tolist() == [6]


def test_entries_that_are_written_again(wholes):
    """The array keeps its length, so that nothing but its entries tells that the loop wrote it."""
    x, begin = fluid.data("x", [3], "float32"), layers.fill_constant([1], "int64", 0)
    end = layers.fill_constant([1], "int64", 3)
    array = layers.array_write(x, begin)
    for number in (1, 2, 3):
        layers.array_write(x * 0.5, layers.fill_constant([1], "int64", number), array)
    condition = layers.less_than(begin, end)
    with layers.While(condition).block():
        read = layers.array_read(array, begin)
        layers.increment(begin)
        layers.array_write(layers.scale(read, 2.0), begin, array)
        layers.less_than(begin, end, cond=condition)
    (found,) = both_ways(
        wholes, [layers.array_read(array, end)], [{"x": np.arange(3, dtype="float32")}]
    )
    assert found.tolist() == [0, 8, 16]


def test_refused_values_name_the_operator(wholes):
    ids = fluid.data("ids", [3, None, 1], "int64")
    first = fluid.data("first", [None, 4], "float32")
    network = layers.StaticRNN()
    with network.step():
        id, before = network.step_input(ids), network.memory(init=first)
        after = layers.tanh(before + layers.embedding(id, [10, 4]))
        network.update_memory(before, after)
        network.step_output(after)
    exe, fetch = fluid.Executor(fluid.CPUPlace()), [network()]
    start(exe)
    feed = {"ids": np.zeros((3, 2, 1), "int64"), "first": np.zeros((2, 4), "float32")}
    exe.run(feed=feed, fetch_list=fetch)
    assert all(wholes)
    feed["ids"][1, 1] = 10
    with pytest.raises(fluid.core.EnforceNotMet, match="lookup_table"):
        exe.run(feed=feed, fetch_list=fetch)


@pytest.mark.parametrize("kind", ["sparse", "random"])
def test_rounds_that_take_python_go_one_by_one(wholes, kind):
    ids = fluid.data("x", [3, None, 1], "int64")
    first = fluid.data("first", [None, 4], "float32")
    network = layers.StaticRNN()
    with network.step():
        id, before = network.step_input(ids), network.memory(init=first)
        after = layers.tanh(before + layers.embedding(id, [10, 4], is_sparse=kind == "sparse"))
        if kind == "random":
            after = layers.dropout(after, 0.5, seed=1)
        network.update_memory(before, after)
        network.step_output(after)
    fetch = trained(layers.mean(network()))
    exe = fluid.Executor(fluid.CPUPlace())
    start(exe)
    feed = {"x": np.arange(6).reshape(3, 2, 1), "first": np.zeros((2, 4), "float32")}
    losses = [exe.run(feed=feed, fetch_list=fetch)[0].item() for _ in range(12)]
    assert losses[-1] < losses[0] and np.isfinite(losses).all()
    assert not wholes[-1]  # the gradient's rounds


def test_slots_give_back_what_was_put_into_them():
    places = slots.Places([])
    rows = np.arange(12, dtype="float32").reshape(4, 3)
    assert places.array(places.words(rows)) is rows
    np.testing.assert_array_equal(places.array(places.words(rows[1:3])), rows[1:3])
    place, _, *more = places.words(rows)
    np.testing.assert_array_equal(places.array((place, 2, *more)), rows[:2])
    lod = Lod([[0, 2, 5]])
    assert places.offsets(places.words(lod)) == lod
    assert places.offsets(places.words(NO_SEQUENCES)) == NO_SEQUENCES
    shape = np.empty((0, 4, 3), "float32")
    assert places.array(places.words(shape)).shape == (0, 4, 3)
    array = TensorArray([(rows, NO_SEQUENCES), None])
    again = places.entries(places.words(array))
    for found in (again, pickle.loads(pickle.dumps(again))):
        assert len(found) == 2 and found.entry(1) is None
        np.testing.assert_array_equal(found.entry(0)[0], rows)


@pytest.mark.parametrize(
    "value",
    [
        np.float32(1),
        np.zeros((3, 4), "float32").T,
        Lod([[0, 1], [0, 2]]),
        TensorArray([(np.ones(2), Lod([[0, 2]]))]),
    ],
)
def test_values_without_a_slot_are_left_to_python(value):
    with pytest.raises(slots.Unusual):
        slots.Places([]).words(value)
