"""Persistable variables with sequences: in the scope, fed, and computed."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.core import EnforceNotMet


def kept_rows():
    return np.arange(12, dtype="float32").reshape(6, 2)


def on(devices):
    main = fluid.default_main_program()
    places = fluid.cpu_places(devices)
    return fluid.CompiledProgram(main).with_data_parallel(places=places) if devices else main


def run(fetch, devices=0, fed=None, **options):
    return fluid.Executor().run(on(devices), feed=fed, fetch_list=fetch, **options)


def set_sequences(scope, name, lengths, rows=None):
    tensor = scope.var(name).get_tensor()
    tensor.set(kept_rows() if rows is None else rows, fluid.CPUPlace())
    tensor.set_recursive_sequence_lengths([lengths] if lengths else [])


@pytest.fixture
def kept():
    """Words that are persistable, doubled; and the sums of their sequences, in an own scope."""
    main, scope = fluid.Program(), fluid.Scope()
    guards = fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program())
    with guards[0], guards[1], fluid.scope_guard(scope):
        words = main.global_block().create_var(
            name="words", shape=[-1, 2], dtype="float32", lod_level=1, persistable=True
        )
        twice = fluid.layers.scale(words, 2.0)
        yield scope, twice, fluid.layers.sequence_pool(twice, "sum")


def sums(lengths):
    return np.add.reduceat(2 * kept_rows(), np.cumsum([0, *lengths[:-1]]))


@pytest.mark.parametrize("devices", [0, 1])
def test_sequences_lie_in_the_scope(kept, devices):
    scope, twice, totals = kept
    for lengths in ([2, 1, 3], [1, 1, 4], [3, 3], [3, 3], [3, 3], [2, 1, 3]):
        set_sequences(scope, "words", lengths)
        found = run([twice, totals], devices, fed={}, return_numpy=False)
        assert found[0].recursive_sequence_lengths() == [lengths]
        np.testing.assert_array_equal(found[1], sums(lengths))
    scope.find_var("words").get_tensor().set_recursive_sequence_lengths([[5, 1]])
    found = run([totals], devices, fed={})  # other sequences of the same rows
    np.testing.assert_array_equal(found[0], sums([5, 1]))


@pytest.mark.parametrize("mode", ["AllReduce", "Reduce"])
def test_all_devices_read_them(kept, mode):
    scope, _, totals = kept
    strategy = fluid.BuildStrategy()
    strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy[mode]
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        build_strategy=strategy, places=fluid.cpu_places(2)
    )
    for lengths in ([2, 1, 3], [2, 1, 3], [2, 1, 3], [4, 2]):
        set_sequences(scope, "words", lengths)
        found = fluid.Executor().run(compiled, fetch_list=[totals], return_merged=False)[0]
        for part in found:
            np.testing.assert_array_equal(part, sums(lengths))


@pytest.mark.parametrize("devices", [0, 1, 2])
def test_fed_sequences_stay_in_the_scope(kept, devices):
    scope, twice, totals = kept
    fed = fluid.create_lod_tensor(kept_rows(), [[2, 1, 3]], fluid.CPUPlace())
    main = on(devices)
    exe = fluid.Executor()
    for feeds in ({"words": fed}, {}, {}, {}):
        found = exe.run(main, feed=feeds, fetch_list=[twice, totals], return_numpy=False)
        assert found[0].recursive_sequence_lengths() == [[2, 1, 3]]
        np.testing.assert_array_equal(found[1], sums([2, 1, 3]))
        first = [[2, 1]] if devices == 2 else [[2, 1, 3]]  # Paddle's first device, too
        stored = scope.find_var("words").get_tensor()
        assert stored.recursive_sequence_lengths() == first


@pytest.mark.parametrize("devices", [0, 1])
def test_two_levels_in_the_scope_are_taken(kept, devices):
    scope, _, totals = kept
    tensor = scope.var("words").get_tensor()
    tensor.set(kept_rows(), fluid.CPUPlace())
    tensor.set_recursive_sequence_lengths([[2, 1], [1, 2, 3]])
    found = run([totals], devices, fed={}, return_numpy=False)[0]
    assert found.recursive_sequence_lengths() == [[2, 1]]
    np.testing.assert_array_equal(found, sums([1, 2, 3]))


def test_sequences_that_a_program_computes_are_kept_for_the_next(kept):
    scope, _, totals = kept
    writer = fluid.Program()
    with fluid.program_guard(writer):
        text = fluid.data("text", [None, 2], lod_level=1)
        target = writer.global_block().create_var(name="words", persistable=True, lod_level=1)
        fluid.layers.assign(fluid.layers.scale(text, 1.0), target)
    for lengths in ([2, 1, 3], [4, 2], [4, 2], [4, 2], [2, 1, 3]):
        fed = fluid.create_lod_tensor(kept_rows(), [lengths], fluid.CPUPlace())
        fluid.Executor().run(writer, feed={"text": fed})
        assert scope.find_var("words").get_tensor().recursive_sequence_lengths() == [lengths]
        np.testing.assert_array_equal(run([totals], fed={})[0], sums(lengths))


def test_every_device_keeps_the_sequences_that_it_computes(kept):
    """As many sequences in every step, but of other lengths."""
    with fluid.program_guard(fluid.Program()):
        block = fluid.default_main_program().global_block()
        words = block.create_var(name="words", shape=[-1, 2], persistable=True, lod_level=1)
        before = fluid.layers.sequence_pool(words, "sum")
        text = fluid.data("text", [None, 2], lod_level=1)
        fluid.layers.assign(fluid.layers.scale(text, 2.0), words)
        set_sequences(kept[0], "words", [2, 1, 3])
        expected = [*sums([2, 1, 3]) / 2] * 2  # both devices read what lies in the scope
        program = on(2)
        for lengths in ([2, 2, 1, 1], [1, 1, 2, 2], [1, 3, 1, 1], [2, 2, 1, 1]):
            fed = fluid.create_lod_tensor(kept_rows(), [lengths], fluid.CPUPlace())
            (found,) = fluid.Executor().run(program, feed={"text": fed}, fetch_list=[before])
            np.testing.assert_array_equal(found, expected)
            first = kept[0].find_var("words").get_tensor().recursive_sequence_lengths()
            assert first == [lengths[:2]]
            expected = sums(lengths)


def test_values_without_sequences_and_misfits_are_told(kept):
    scope, _, totals = kept
    set_sequences(scope, "words", [])
    with pytest.raises(EnforceNotMet, match="words lies in the scope without sequences"):
        run([totals], fed={})
    set_sequences(scope, "words", [2, 1, 3])
    scope.find_var("words").get_tensor().set(np.ones((4, 2), "float32"), fluid.CPUPlace())
    with pytest.raises(EnforceNotMet, match="words in the scope"):
        run([totals], fed={})


def test_devices_that_share_variables_are_fed_no_sequences_for_them(kept):
    strategy = fluid.BuildStrategy()
    strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        build_strategy=strategy, places=fluid.cpu_places(2)
    )
    fed = fluid.create_lod_tensor(kept_rows(), [[2, 1, 3]], fluid.CPUPlace())
    with pytest.raises(EnforceNotMet, match="'words' is persistable and holds sequences"):
        fluid.Executor().run(compiled, feed={"words": fed})
