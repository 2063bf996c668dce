"""``ParallelDo`` divides whole sequences among devices, and joins those of its outputs."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.core import EnforceNotMet
from tests.engine.run.parallel_do_programs import CPU, parallel_do

layers = fluid.layers
BATCHES = [[3, 1, 2, 2, 4], [2, 2, 1, 1, 6], [1, 5], [4]]


def words(lengths):
    rows = np.random.RandomState(len(lengths)).randint(0, 20, (sum(lengths[-1]), 1))
    return fluid.create_lod_tensor(rows, lengths, CPU)


def flat(pd, table, label):
    """Sequences and samples go in; sequences, a row for each, come out."""
    hidden = layers.fc(table, 4, act="tanh")
    total = layers.sequence_pool(hidden, "sum")
    pd.write_output(hidden + layers.sequence_expand_as(total, hidden))
    pd.write_output(layers.fc(total, 1) - label)


def recurrent(pd, table, label):
    """A loop inside of the block."""
    rnn = layers.DynamicRNN()
    with rnn.block():
        word, before = rnn.step_input(table), rnn.memory(shape=[4])
        now = layers.fc([word, before], 4, act="tanh")
        rnn.update_memory(before, now)
        rnn.output(now)
    states = rnn()
    pd.write_output(states)
    pd.write_output(layers.fc(layers.sequence_last_step(states), 1) - label)


def sparse(pd, table, label):
    """A table with sparse gradients, of which nobody knows beforehand how many rows they have."""
    ids = table.block.program.global_block().var("words")
    rows = fluid.embedding(pd.read_input(ids), [20, 4], is_sparse=True)
    flat(pd, layers.concat([rows, table], axis=1), label)


def train(body, places):
    """Of every batch the loss, an output with its sequences, and the gradient of the input."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.data("words", [None, 1], "int64", lod_level=1)
        label = fluid.data("label", [None, 1])
        table = fluid.embedding(ids, [20, 4])
        pd = parallel_do(places)
        with pd.do():
            body(pd, pd.read_input(table), pd.read_input(label))
        sequences, errors = pd()
        assert sequences.lod_level == 1
        greatest = layers.sequence_pool(sequences, "max")
        loss = layers.mean(layers.square(errors)) + layers.mean(greatest)
        fluid.optimizer.Adagrad(0.1).minimize(loss)
    exe, found = fluid.Executor(CPU), []
    fetch = [loss, sequences, f"{table.name}@GRAD"]
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        for lengths in BATCHES:
            feed = {"words": words([lengths]), "label": np.ones((len(lengths), 1), "float32")}
            found.append(exe.run(main, feed, fetch, return_numpy=False))
    return found


@pytest.mark.parametrize("body", [flat, recurrent, sparse])
@pytest.mark.parametrize("places", [1, 3])
def test_places_compute_what_one_computes(body, places):
    for one, several in zip(train(body, 0), train(body, places), strict=True):
        for expected, value in zip(one, several, strict=True):
            assert value.lod() == expected.lod()
            np.testing.assert_allclose(np.array(value), np.array(expected), rtol=1e-5, atol=1e-6)


def run(body, feed, **data):
    """What a block on two places makes of data; ``body`` gets the ParallelDo and them."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        given = [fluid.data(n, [None, 1], "int64", lod_level=levels) for n, levels in data.items()]
        pd = parallel_do(2)
        with pd.do():
            body(pd, *given)
        exe = fluid.Executor(CPU)
        return exe.run(feed=feed, fetch_list=[pd()], return_numpy=False)[0]


def test_paragraphs_stay_whole():
    text = words([[2, 1, 1], [3, 1, 5, 2]])
    same = run(lambda pd, x: pd.write_output(layers.scale(pd.read_input(x), 1.0)), {"x": text}, x=2)
    assert same.lod() == text.lod()
    assert np.array_equal(np.array(same), np.array(text))


def test_sequences_that_are_not_divided_are_there_as_a_whole():
    def body(pd, x, y):
        pd.read_input(x)
        pd.write_output(layers.concat([layers.sequence_last_step(layers.cast(y, "float32"))]))
        layers.scale(x, 1.0)

    feed = {"x": words([[3, 1]]), "y": words([[2, 2, 1]])}
    ends = np.array(feed["y"])[[1, 3, 4]]
    assert np.array_equal(np.array(run(body, feed, x=1, y=1)), np.concatenate([ends, ends]))


def test_as_many_sequences_as_rows_are_divided():
    def body(pd, x, y):
        total = layers.sequence_pool(layers.cast(pd.read_input(x), "float32"), "sum")
        pd.write_output(total + layers.cast(pd.read_input(y), "float32"))

    with pytest.raises(EnforceNotMet, match=r"rows \(or sequences\), but x@LOD has 2 and y has 3"):
        run(body, {"x": words([[3, 1]]), "y": np.zeros((3, 1), "int64")}, x=1, y=0)


def test_sequences_are_not_pre_fetched():
    with pytest.raises(EnforceNotMet, match="sequences of x; use read_input"):
        run(lambda pd, x: pd.write_output(layers.scale(pd.pre_fetch(x))), {"x": words([[1]])}, x=1)
