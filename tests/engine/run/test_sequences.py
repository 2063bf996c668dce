"""Runs with sequences: division among devices, fetches, errors."""

import contextlib

import numpy as np
import pytest

import dpexec as fluid
from dpexec.core import EnforceNotMet

LENGTHS = [3, 1, 2, 2]


@pytest.fixture
def program():
    """Words of sequences (number of the word, 2), doubled; and the sums of the sequences."""
    with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        words = fluid.data("words", [None, 2], lod_level=1)
        twice = fluid.layers.scale(words, 2.0)
        yield words, twice, fluid.layers.sequence_pool(twice, "sum")


def feed(lengths=LENGTHS):
    rows = np.arange(2 * sum(lengths), dtype="float32").reshape(-1, 2)
    return {"words": fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())}


def on(devices):
    main = fluid.default_main_program()
    places = fluid.cpu_places(devices)
    return fluid.CompiledProgram(main).with_data_parallel(places=places) if devices else main


def run(fetch, devices=0, fed=None, **options):
    exe = fluid.Executor(fluid.CPUPlace())
    fed = feed() if fed is None else fed
    return exe.run(on(devices), feed=fed, fetch_list=fetch, **options)


@pytest.mark.parametrize("devices", [0, 1, 2, 3, 4, 5])
def test_devices_share_the_sequences(program, devices):
    _, twice, totals = program
    found = run([twice, totals], devices, return_numpy=False)
    expected = 2 * np.arange(16.0).reshape(8, 2)
    assert found[0].lod() == [[0, 3, 4, 6, 8]]
    np.testing.assert_array_equal(found[0], expected)
    assert found[1].lod() == []
    np.testing.assert_array_equal(found[1], np.add.reduceat(expected, [0, 3, 4, 6]))


def test_fetches_of_devices_apart(program):
    found = run([program[1]], 2, return_numpy=False, return_merged=False)[0]
    assert [part.lod() for part in found] == [[[0, 3, 4]], [[0, 2, 4]]]
    assert [part.shape() for part in found] == [[4, 2], [4, 2]]


def test_every_device_is_fed_its_own(program):
    found = run([program[1]], 2, [feed([1, 2]), feed([4])], return_numpy=False)[0]
    assert found.lod() == [[0, 1, 3, 7]]


def test_two_levels_are_split_by_the_first():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        text = fluid.data("text", [None, 1], lod_level=2)
        same = fluid.layers.scale(text, 1.0)
        rows = np.arange(9, dtype="float32").reshape(9, 1)
        fed = fluid.create_lod_tensor(rows, [[2, 1], [3, 1, 5]], fluid.CPUPlace())
        whole = run([same], 0, {"text": fed}, return_numpy=False)[0]
        assert whole.recursive_sequence_lengths() == [[2, 1], [3, 1, 5]]
        merged = run([same], 2, {"text": fed}, return_numpy=False)[0]
        parts = run([same], 2, {"text": fed}, return_numpy=False, return_merged=False)[0]
    assert (merged.lod(), np.array(merged).tolist()) == (whole.lod(), rows.tolist())
    assert [part.recursive_sequence_lengths() for part in parts] == [
        [[2], [3, 1]],
        [[1], [5]],
    ]


def test_arrays_cannot_hold_sequences(program):
    with fluid.program_guard(fluid.default_main_program()):
        count = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True)
        fluid.layers.increment(count)
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    with pytest.raises(RuntimeError, match="hold LoD information"):
        run([program[1]])
    assert run([program[2], count])[1] == [1.0]  # the run before did not begin


def test_without_sequences_it_is_a_plain_tensor():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        twice = fluid.layers.scale(fluid.data("words", [None, 2], lod_level=1), 2.0)
        assert run([twice], fed={"words": np.ones((5, 2), "float32")})[0].shape == (5, 2)
        assert run([twice], 2, return_numpy=False)[0].lod() == [[0, 3, 4, 6, 8]]


def test_an_operator_that_needs_sequences_says_what_was_fed_without(program):
    with pytest.raises(EnforceNotMet, match=r"words is fed without sequences(.|\n)*test_sequences"):
        run([program[2]], fed={"words": np.ones((5, 2), "float32")})


def test_an_operator_that_needs_sequences_says_what_is_declared_without():
    said = r"has no sequences(.|\n)*X\(x\)(.|\n)*_says_what"
    with fluid.program_guard(fluid.Program()), pytest.raises(EnforceNotMet, match=said):
        fluid.layers.sequence_pool(fluid.data("x", [None, 2]), "sum")


def nested():
    """Two texts of one and of two words, as two levels of sequences."""
    rows = np.arange(6, dtype="float32").reshape(3, 2)
    return fluid.create_lod_tensor(rows, [[1, 1], [1, 2]], fluid.CPUPlace())


def test_other_depths_than_declared_are_taken(program):
    found = run([program[2]], fed={"words": nested()}, return_numpy=False)[0]
    assert found.lod() == [[0, 1, 2]]
    assert np.array(found).tolist() == [[0, 2], [12, 16]]


def test_devices_must_be_fed_one_depth(program):
    feeds = [{"words": nested()}, feed()]
    with pytest.raises(EnforceNotMet, match="'words' should have sequences of 2 levels"):
        run([program[2]], 2, feeds)


@pytest.mark.parametrize("declared", [1, 4, 6, 100])
@pytest.mark.parametrize("devices", [0, 1, 2])
def test_sequences_have_any_number_of_rows(declared, devices):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        words = fluid.data("words", [declared, 2], lod_level=1)
        found = run([fluid.layers.sequence_pool(words, "sum")], devices)[0]
    np.testing.assert_array_equal(found, np.add.reduceat(feed_rows(), [0, 3, 4, 6]))


def feed_rows():
    return np.array(feed()["words"])


def test_sequences_have_the_other_dimensions_as_declared():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        twice = fluid.layers.scale(fluid.data("words", [8, 3], lod_level=1), 2.0)
        with pytest.raises(ValueError, match=r"shape = \(-1, 3\), but received fed shape \[8, 2\]"):
            run([twice])
        plain = {"words": np.zeros((7, 3), "float32")}
        with pytest.raises(ValueError, match=r"shape = \(8, 3\), but received fed shape \[7, 3\]"):
            run([twice], fed=plain)


@pytest.mark.parametrize("devices", [0, 1, 2])
def test_variables_that_a_block_made_are_fed_sequences(devices):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        block = fluid.default_main_program().global_block()
        words = block.create_var(name="words", shape=[-1, 2], dtype="float32", lod_level=1)
        totals = fluid.layers.sequence_pool(words, "sum")
        found = run([totals], devices)[0]
        deeper = run([totals], fed={"words": nested()}, return_numpy=False)[0]
    np.testing.assert_array_equal(found, np.add.reduceat(feed_rows(), [0, 3, 4, 6]))
    assert deeper.lod() == [[0, 1, 2]]


def test_sequences_are_fed_in_the_middle_of_a_program(program):
    _, twice, totals = program
    fed = {twice.name: feed()["words"]}
    found = run([totals], fed=fed, use_prune=True)[0]
    np.testing.assert_array_equal(found, np.add.reduceat(feed_rows(), [0, 3, 4, 6]))


def test_a_variable_that_a_block_made_says_that_it_is_fed_without_sequences():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        block = fluid.default_main_program().global_block()
        words = block.create_var(name="words", shape=[-1, 2], dtype="float32", lod_level=1)
        totals = fluid.layers.sequence_pool(words, "sum")
        with pytest.raises(EnforceNotMet, match="words is fed without sequences"):
            run([totals], fed={"words": np.ones((5, 2), "float32")})


def test_users_do_not_see_offsets(program):
    run([program[2]])
    main = fluid.default_main_program()
    assert not [var.name for var in main.list_vars() if "@LOD" in var.name]
    assert "@LOD" not in str(main)


def train(devices, reduce=False, steps=5):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        words = fluid.data("words", [None, 1], "int64", lod_level=1)
        label = fluid.data("label", [None, 1], "int64")
        hidden = fluid.layers.fc(fluid.embedding(words, [50, 8], is_sparse=True), 8, act="tanh")
        digit = fluid.layers.fc(fluid.layers.sequence_pool(hidden, "max"), 3, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(digit, label))
        fluid.optimizer.Adam(0.05).minimize(loss)
    exe, strategy = fluid.Executor(fluid.CPUPlace()), fluid.BuildStrategy()
    strategy.reduce_strategy = strategy.ReduceStrategy(int(reduce))
    losses, rng = [], np.random.default_rng(0)
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        compiled = fluid.CompiledProgram(main).with_data_parallel(
            loss.name, strategy, places=fluid.cpu_places(devices)
        )
        for _ in range(steps):
            lengths = rng.integers(1, 6, 6)
            numbers = rng.integers(0, 50, (lengths.sum(), 1))
            batch = {
                "words": fluid.create_lod_tensor(numbers, [lengths.tolist()], fluid.CPUPlace()),
                "label": numbers[np.cumsum(lengths) - 1] % 3,
            }
            losses.append(np.mean(exe.run(compiled, feed=batch, fetch_list=[loss])[0]))
    return np.array(losses)


def test_any_number_of_devices_learns_alike():
    alone = train(1)
    assert alone[-1] < alone[0]
    for devices in (2, 3):
        np.testing.assert_allclose(train(devices), alone, rtol=1e-5)


def test_reduce_gives_the_bits_of_all_reduce():
    np.testing.assert_array_equal(train(2), train(2, reduce=True))


def taggers(lod_level, devices, batches, use_prune=False):
    """Losses of a tagger that is fed some batches, and the words of the last with sequences."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        words = fluid.data("words", [None, 2], lod_level=lod_level)
        tags = fluid.data("tags", [None, 1], "int64", lod_level=lod_level)
        twice = fluid.layers.scale(words, 2.0)
        likelihood = fluid.layers.linear_chain_crf(fluid.layers.fc(twice, 3), tags)
        loss = fluid.layers.mean(likelihood)
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        program = main
        if devices:
            program = fluid.CompiledProgram(main).with_data_parallel(
                loss.name, places=fluid.cpu_places(devices)
            )
        fetches, options = [loss, twice], {"return_numpy": False, "use_prune": use_prune}
        results = [exe.run(program, batch, fetches, **options) for batch in batches]
    return [np.array(loss).tolist() for loss, _ in results], results[-1][1]


@pytest.mark.parametrize("devices", [0, 2])
@pytest.mark.parametrize("use_prune", [False, True])
def test_who_is_declared_without_sequences_takes_those_that_come(devices, use_prune):
    place, batches = fluid.CPUPlace(), []
    for lengths in ([3, 1, 2, 2], [1, 4, 2]):
        rows = np.arange(sum(lengths)).reshape(-1, 1)
        tags = fluid.create_lod_tensor(rows % 3, [lengths], place)
        words = fluid.create_lod_tensor(np.sin([1, 2] * rows).astype("f4"), [lengths], place)
        batches.append({"words": words, "tags": tags})
    expected, twice = taggers(1, devices, batches, use_prune)
    found, same = taggers(0, devices, batches, use_prune)
    assert found == expected
    assert (same.lod(), np.array(same).tolist()) == (twice.lod(), np.array(twice).tolist())


@pytest.mark.parametrize("devices", [0, 2])
def test_arrays_and_sequences_may_take_turns(devices):
    with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        words = fluid.data("words", [None, 2])
        twice, program = fluid.layers.scale(words, 2.0), on(devices)
        exe = fluid.Executor(fluid.CPUPlace())
        for fed in (feed(), {"words": np.ones((4, 2), "float32")}, feed([5, 2]), feed()):
            found = exe.run(program, fed, [twice], return_numpy=False)[0]
            np.testing.assert_array_equal(found, 2 * np.array(fed["words"]))
            assert found.lod() == (fed["words"].lod() if hasattr(fed["words"], "lod") else [])
        assert words.lod_level == 0


@pytest.mark.parametrize("devices", [0, 2])
def test_sequences_go_with_the_rows_that_a_run_counts(devices):
    """The code that one batch was compiled for serves others, too, if that is right for them."""
    words = fluid.data("words", [None, None, 2], lod_level=1)
    twice = fluid.layers.scale(words, 2.0)
    rows = fluid.layers.reshape(twice, [-1, 4])
    joined = fluid.layers.concat([rows, rows])
    for length, width in ((8, 2), (8, 2), (6, 2), (6, 4), (6, 4), (8, 2), (10, 2), (12, 2)):
        array = np.arange(length * width * 2, dtype="float32").reshape(length, width, 2)
        batch = fluid.create_lod_tensor(array, [[2, length - 2]], fluid.CPUPlace())
        found = run([rows, joined], devices, {"words": batch}, return_numpy=False)
        kept = [[0, 2, length]] if width == 2 else []
        assert found[0].lod() == kept
        np.testing.assert_array_equal(found[0], 2 * array.reshape(-1, 4))
        assert found[1].shape() == [length * width, 4]
        assert bool(found[1].lod()) == bool(kept)


@pytest.mark.parametrize("devices", [0, 2])
def test_arrays_may_be_fed_where_no_operator_needs_sequences(program, devices):
    _, twice, _ = program
    again = fluid.layers.lod_reset(twice, target_lod=[0, 2, 4])
    fetch = [fluid.layers.sequence_pool(again, "sum"), fluid.layers.concat([twice, twice])]
    main = fluid.default_main_program().clone()._prune_with_input(["words"], fetch)
    rows = np.arange(16.0, dtype="float32").reshape(8, 2)[: 4 * max(devices, 1)]
    exe = fluid.Executor(fluid.CPUPlace())
    compiled = fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(2))
    lengths = [[1, 3] * max(devices, 1)]
    sequences = fluid.create_lod_tensor(rows, lengths, fluid.CPUPlace())
    names = [var.name for var in fetch]
    for fed in (rows, sequences, rows):
        ran = compiled if devices else main
        pooled, joined = exe.run(ran, {"words": fed}, names, return_numpy=False)
        expected = 2 * rows.reshape(-1, 2, 2).sum(axis=1)
        np.testing.assert_array_equal(pooled, expected)
        assert bool(joined.lod()) == (fed is sequences)


def test_offsets_that_do_not_fit_are_dropped(program):
    words, twice, _ = program
    rows = fluid.data("rows", [None, 2])
    shape = fluid.data("shape", [2], "int32")
    fetch = [
        fluid.layers.concat([twice, rows]),
        fluid.layers.slice(twice, [1, 0], [0, 0], [1, 4]),
        fluid.layers.reshape(words, [8, 2], actual_shape=shape),
        fluid.layers.reshape(fluid.layers.scale(words, 2.0), [-1, 1], inplace=True),
    ]
    fed = {**feed(), "rows": np.ones((2, 2), "float32"), "shape": np.array([4, 4], "int32")}
    found = run(fetch, fed=fed, return_numpy=False)
    assert [tensor.lod() for tensor in found] == [[], [], [], []]
    assert [tensor.shape() for tensor in found] == [[10, 2], [4, 1], [4, 4], [16, 1]]


@pytest.mark.parametrize("inplace", [True, False])
@pytest.mark.parametrize("loops", [True, False])
def test_rows_of_a_variable_that_is_written_again_are_counted(inplace, loops):
    """Its declared shape is that of its last value. Offsets of other rows led beyond the memory."""
    words = fluid.data("words", [None, 2], lod_level=1)
    rows = fluid.layers.scale(words, 2.0)
    again = fluid.layers.relu(rows)
    at, end = fluid.layers.zeros([1], "int64"), fluid.layers.ones([1], "int64")
    going = fluid.layers.less_than(at, end)
    with fluid.layers.While(going).block() if loops else contextlib.nullcontext():
        made = fluid.layers.reshape(rows, [4, -1], inplace=inplace)
        if not inplace:
            fluid.layers.assign(made, rows)
        fluid.layers.increment(at, 1)
        fluid.layers.less_than(at, end, cond=going)
    for length in (4, 8, 4, 6):
        array = np.arange(length * 2, dtype="float32").reshape(length, 2)
        batch = fluid.create_lod_tensor(array, [[1, length - 1]], fluid.CPUPlace())
        found = run([rows, again], fed={"words": batch}, return_numpy=False)
        np.testing.assert_array_equal(found[0], 2 * array.reshape(4, -1))
        assert found[0].lod() == ([[0, 1, 4]] if length == 4 else [])
        assert found[1].lod() == [[0, 1, length]]
