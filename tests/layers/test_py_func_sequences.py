"""``py_func`` gets sequences as tensors with a LoD, as in Paddle."""

import numpy as np
import pytest

import dpexec as fluid

ROWS = np.arange(10, dtype="float32").reshape(5, 2)


def tensor(array, lod):
    made = fluid.LoDTensor()
    made.set(array, fluid.CPUPlace())
    made.set_lod(lod)
    return made


def variable(name, lod_level=0):
    block = fluid.default_main_program().current_block()
    return block.create_var(name=name, shape=[-1, 2], dtype="float32", lod_level=lod_level)


def run(*fetch, places=None):
    program = fluid.default_main_program()
    if places is not None:
        program = fluid.CompiledProgram(program).with_data_parallel(places=places)
    batch = {"x": tensor(ROWS, [[0, 3, 5]])}
    return fluid.Executor(fluid.CPUPlace()).run(program, batch, fetch, return_numpy=False)


def test_a_function_sees_sequences_and_gives_others():
    seen = []

    def halves(x):
        seen.append(x.lod())
        return tensor(np.array(x) * 2, [[0, 1, 5]])

    x = fluid.data("x", [None, 2], lod_level=1)
    y = fluid.layers.py_func(halves, x, variable("y"))
    found, scaled = run(y, fluid.layers.scale(y, 2.0))
    assert seen == [[[0, 3, 5]]]
    assert found.lod() == scaled.lod() == [[0, 1, 5]]
    np.testing.assert_array_equal(np.array(found), ROWS * 2)
    np.testing.assert_array_equal(np.array(scaled), ROWS * 4)


def test_what_is_returned_as_an_array_has_no_sequences():
    seen = []

    def backward(x, out, gradient):
        seen.append((x.lod(), out.lod(), gradient.lod()))
        return np.array(gradient) * 3

    x = fluid.data("x", [None, 2], lod_level=1)
    x.stop_gradient = False
    y = fluid.layers.py_func(lambda x: np.array(x) * 3, x, variable("y", 1), backward)
    (gradient,) = fluid.gradients(fluid.layers.mean(y), [x])
    found, gradients = run(y, gradient)
    assert found.lod() == gradients.lod() == []
    assert seen == [([[0, 3, 5]], [], [])]
    np.testing.assert_allclose(np.array(gradients), np.full((5, 2), 0.3), rtol=1e-6)


def test_devices_give_the_sequences_of_their_parts():
    x = fluid.data("x", [None, 2], lod_level=1)
    y = fluid.layers.py_func(lambda x: tensor(np.array(x), x.lod()), x, variable("y", 1))
    found, sums = run(y, fluid.layers.sequence_pool(y, "sum"), places=fluid.cpu_places(2))
    assert found.lod() == [[0, 3, 5]]
    np.testing.assert_array_equal(np.array(found), ROWS)
    np.testing.assert_array_equal(np.array(sums), [[6, 9], [14, 16]])


def test_a_function_that_takes_its_argument_for_an_array_is_told_how_to_make_one():
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [2])
        out = (
            fluid.default_main_program()
            .current_block()
            .create_var(name="out", dtype="float32", shape=[2])
        )
        fluid.layers.py_func(lambda value: value.shape[0], x, out)
        with pytest.raises(fluid.core.EnforceNotMet, match=r"np.array\(x\) is the array of one"):
            fluid.Executor(fluid.CPUPlace()).run(
                feed={"x": np.ones(2, "float32")}, fetch_list=[out]
            )


@pytest.mark.parametrize("persistable", [False, True])
def test_the_shape_of_what_a_function_returns_counts(persistable):
    x = fluid.data("x", [None, 2], lod_level=1)
    block = fluid.default_main_program().global_block()
    declared = block.create_var(name="y", shape=[1, 1], dtype="float32", persistable=persistable)
    y = fluid.layers.py_func(lambda x: np.array(x) * 2, x, declared)
    found, product = run(y, x * y)
    np.testing.assert_array_equal(np.array(found), ROWS * 2)
    np.testing.assert_array_equal(np.array(product), ROWS * ROWS * 2)
