"""``x[index]`` of a variable, compared with NumPy's indexing."""

import numpy as np
import pytest

import dpexec as fluid

X = np.arange(120, dtype="float32").reshape(4, 5, 6)
FORMS = [
    lambda x, m, n: x[m],
    lambda x, m, n: x[m, 1:3],
    lambda x, m, n: x[1:3, m],
    lambda x, m, n: x[m, 0:100:2],
    lambda x, m, n: x[m, 4:1:-1],
    lambda x, m, n: x[:, :, m],
    lambda x, m, n: x[m, n],
    lambda x, m, n: x[m, -1, n],
    lambda x, m, n: x[-1, m],
    lambda x, m, n: x[m, n, 0:5:2],
    lambda x, m, n: x[m:],
    lambda x, m, n: x[:, :n],
]


def _taken(form, m, n, batch=4, fed=True):
    """What a form takes of X, and the gradient of the sum of its squares."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [batch, 5, 6])
        x.stop_gradient = False
        if fed:
            index = [fluid.data(name, [1], "int32") for name in "mn"]
        else:
            index = [fluid.layers.fill_constant([1], "int32", value) for value in (m, n)]
        out = form(x, *index)
        loss = fluid.layers.reduce_sum(out * out)
        (grad,) = fluid.gradients(loss, x)
    feed = {"x": X}
    if fed:
        feed.update(m=np.array([m], "int32"), n=np.array([n], "int32"))
    found = fluid.Executor().run(main, feed=feed, fetch_list=[out, grad])
    return [np.asarray(value) for value in found]


@pytest.mark.parametrize(("m", "n"), [(-1, 2), (1, -1), (-1, -1), (-4, 3)])
@pytest.mark.parametrize("number", range(len(FORMS)))
def test_negative_indices_in_variables_count_from_the_end(number, m, n):
    form = FORMS[number]
    expected = np.atleast_1d(form(X, m, n))
    grad = np.zeros_like(X)
    grad.flat[expected.astype(int)] = 2 * expected  # every element of X is its own position
    for batch, fed in ((4, True), (-1, True), (4, False)):
        out, found = _taken(form, m, n, batch, fed)
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(found, grad)


@pytest.mark.parametrize("m", [4, -5, 9])
@pytest.mark.parametrize("form", [lambda x, m, n: x[m], lambda x, m, n: x[m, ::2]])
def test_an_index_outside_its_dimension_is_named(form, m):
    with pytest.raises(fluid.core.EnforceNotMet, match=rf"index {m} is outside dimension 0"):
        _taken(form, m, 0)


def test_several_elements_are_no_index():
    block = fluid.default_main_program().global_block()
    x, out = fluid.data("x", [4, 5]), block.create_var(name="out")
    attrs = {"axes": [0], "starts": [0], "ends": [3], "decrease_axis": [0]}
    with pytest.raises(fluid.core.EnforceNotMet, match="3 elements are left, not 1"):
        block.append_op(type="slice", inputs={"Input": x}, outputs={"Out": out}, attrs=attrs)
