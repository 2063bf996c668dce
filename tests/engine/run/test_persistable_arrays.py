"""Tensor arrays and rank tables that are kept between runs, compared with Paddle 1.8.5."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers
from dpexec.core import EnforceNotMet, VarDesc
from dpexec.layers.control_flow import array_to_lod_tensor, lod_rank_table, lod_tensor_to_array

X = np.arange(8, dtype="float32").reshape(4, 2)
KINDS = VarDesc.VarType


@pytest.fixture(autouse=True)
def programs():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def run(fetch=(), feed=None, program=None, **options):
    exe = fluid.Executor(fluid.CPUPlace())
    return exe.run(program, feed=feed, fetch_list=list(fetch), **options)


def stored(name):
    return [np.array(tensor).tolist() for tensor in held(name)]


def held(name):
    return fluid.global_scope().find_var(name).get_lod_tensor_array()


def written():
    """An array with x and its double, and how many entries it has."""
    x, number = layers.data("x", [2]), layers.zeros([1], "int64")
    array = layers.array_write(x, number)
    array.persistable = True
    layers.array_write(x * 2.0, layers.increment(number), array)
    return array, layers.array_length(array)


def test_an_array_is_in_the_scope_after_a_run():
    array, length = written()
    assert run([length], {"x": X})[0] == 2
    before = held(array.name)
    assert stored(array.name) == [X.tolist(), (2 * X).tolist()]
    assert run([length], {"x": X + 1})[0] == 2
    assert stored(array.name) == [(X + 1).tolist(), (2 * X + 2).tolist()]
    assert held(array.name) is before
    fetched = run([array], {"x": X})[0]
    np.testing.assert_array_equal(fetched, [X, 2 * X])


def test_entries_do_not_share_memory_with_what_is_fed_or_computed():
    array, _ = written()
    fed = X.copy()
    run(feed={"x": fed})
    fed[...] = 0
    assert stored(array.name)[0] == X.tolist()


def test_an_array_grows_from_run_to_run():
    step = layers.create_global_var([1], 0, "int64", persistable=True, name="step")
    array = layers.create_array("float32")
    array.persistable = True
    layers.array_write(layers.cast(step, "float32"), step, array)
    length = layers.array_length(array)
    layers.increment(step)
    run(program=fluid.default_startup_program())
    assert [int(run([length])[0]) for _ in range(3)] == [1, 2, 3]
    assert stored(array.name) == [[0], [1], [2]]


def test_every_device_has_its_own():
    array, length = written()
    places = fluid.cpu_places(2)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=places)
    for _ in range(2):
        assert run([length], {"x": X}, program)[0].tolist() == [2, 2]
        assert stored(array.name) == [X[:2].tolist(), (2 * X[:2]).tolist()]


def test_what_the_user_writes_into_an_array_reaches_all_devices():
    step = layers.create_global_var([1], 0, "int64", persistable=True, name="step")
    x, array = layers.data("x", [2]), layers.create_array("float32")
    array.persistable = True
    layers.array_write(x, step, array)
    first = layers.array_read(array, layers.zeros([1], "int64"))
    layers.increment(step)
    run(program=fluid.default_startup_program())
    places = fluid.cpu_places(2)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=places)
    np.testing.assert_array_equal(run([first], {"x": X}, program)[0], X)
    held(array.name)[0].set(X[:1] + 5, fluid.CPUPlace())
    for _ in range(2):
        np.testing.assert_array_equal(
            run([first], {"x": X}, program)[0], np.tile(X[:1] + 5, (2, 1))
        )
    held(array.name)[0]._set_float_element(0, 9.0)
    assert run([first], {"x": X}, program)[0][:, 0].tolist() == [9, 9]


def test_loops_write_arrays_that_last():
    number, end = layers.zeros([1], "int64"), layers.fill_constant([1], "int64", 3)
    array = layers.create_array("float32")
    array.persistable = True
    layers.array_write(layers.fill_constant([1], "float32", 1.5), number, array)
    holds = layers.less_than(number, end)
    loop = layers.While(holds)
    with loop.block():
        value = layers.array_read(array, number)
        layers.increment(number)
        layers.array_write(value * 2.0, number, array)
        layers.less_than(number, end, cond=holds)
    run()
    assert stored(array.name) == [[1.5], [3.0], [6.0], [12.0]]


def test_an_array_that_the_user_puts_into_the_scope_is_read():
    block = fluid.default_main_program().global_block()
    array = block.create_var(
        name="array", type=KINDS.LOD_TENSOR_ARRAY, dtype="float32", persistable=True
    )
    entry = layers.array_read(array, layers.zeros([1], "int64"))
    with pytest.raises(EnforceNotMet, match="array has no value"):
        run([entry])
    tensor = fluid.LoDTensor()
    tensor.set(X, fluid.CPUPlace())
    fluid.global_scope().var("array").get_lod_tensor_array().append(tensor)
    np.testing.assert_array_equal(run([entry])[0], X)
    tensor.set(X + 1, fluid.CPUPlace())
    np.testing.assert_array_equal(run([entry])[0], X + 1)


def test_another_program_reads_arrays_and_tables():
    rows = np.arange(6, dtype="float32").reshape(6, 1)
    words = fluid.create_lod_tensor(rows, [[2, 3, 1]], fluid.CPUPlace())
    x = layers.data("x", [1], lod_level=1)
    table = lod_rank_table(x)
    array = lod_tensor_to_array(x, table)
    array.persistable = table.persistable = True
    run(feed={"x": words})
    assert fluid.global_scope().find_var(table.name).get_lod_rank_table().items() == [
        (1, 3),
        (0, 2),
        (2, 1),
    ]
    assert stored(array.name) == [[[2], [0], [5]], [[3], [1]], [[4]]]
    with fluid.program_guard(fluid.Program()):
        block = fluid.default_main_program().global_block()
        kinds = (array.name, KINDS.LOD_TENSOR_ARRAY), (table.name, KINDS.LOD_RANK_TABLE)
        again = [block.create_var(name=name, type=kind, persistable=True) for name, kind in kinds]
        found = run([array_to_lod_tensor(*again)], return_numpy=False)[0]
    np.testing.assert_array_equal(found, rows)
    assert found.lod() == [[0, 2, 5, 6]]


def test_arrays_cannot_be_saved(tmp_path):
    array, _ = written()
    run(feed={"x": X})
    with pytest.raises(EnforceNotMet, match=f"{array.name} holds a LoDTensorArray"):
        fluid.io.save_persistables(fluid.Executor(fluid.CPUPlace()), str(tmp_path))
