"""Elementwise operators: broadcasting, integers, sparse inputs, errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpexec.engine.ops
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import InvalidOp, Spec
from dpexec.engine.ops._elementwise import aligned, unbroadcast

assert dpexec.engine.ops  # registers the operators


def infer(type, x, y, axis=-1):
    specs = {"X": [Spec(x)], "Y": [Spec(y)]}
    return opdef.get(type).infer_specs(specs, {"axis": axis})["Out"][0].shape


@pytest.mark.parametrize(
    ("x", "y", "axis", "out"),
    [
        ((2, 3), (3,), -1, (2, 3)),
        ((2, 3, 4), (3, 1), 1, (2, 3, 4)),
        ((2, 3, 4), (4, 1), 2, (2, 3, 4)),
        ((2, 3), (1,), -1, (2, 3)),
        ((1,), (2, 3), -1, (2, 3)),
        ((2, 1), (1, 3), -1, (2, 3)),
        ((-1, 3), (3,), -1, (-1, 3)),
        ((-1, 3), (-1, 3), -1, (-1, 3)),
        ((-1, 3), (1, 3), -1, (-1, 3)),
        ((-1, 3), (5, 3), -1, (5, 3)),
        ((-1, 8, 4, 4), (8,), 1, (-1, 8, 4, 4)),
        ((0, 3), (3,), -1, (0, 3)),
    ],
)
def test_broadcast_shape(x, y, axis, out):
    assert infer("elementwise_add", x, y, axis) == out


@pytest.mark.parametrize(
    ("x", "y", "axis"),
    [((2, 3), (2,), -1), ((2, 3, 4), (3, 4), 2), ((2, 3), (3, 2), -1), ((2, 3), (3, 1), 5)],
)
def test_shapes_that_do_not_fit_are_both_named(x, y, axis):
    with pytest.raises(InvalidOp) as refused:
        infer("elementwise_mul", x, y, axis)
    assert str(list(x)) in str(refused.value)
    assert str(list(y)) in str(refused.value)
    assert str(axis) in str(refused.value)


def test_mixed_data_types_are_refused():
    specs = {"X": [Spec((2,))], "Y": [Spec((2,), VarType.INT64)]}
    with pytest.raises(InvalidOp, match=r"float32\[2\] and int64\[2\]"):
        opdef.get("elementwise_add").infer_specs(specs, {})


@pytest.mark.parametrize("type", ["elementwise_div", "elementwise_mod", "elementwise_floordiv"])
def test_integers_divided_by_zero_are_refused(type):
    with pytest.raises(ValueError, match="division by zero"):
        opdef.get(type)(np, np.array([1, 2]), np.array([1, 0]))


def test_quotients_of_integers_are_rounded_towards_zero():
    x, y = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    np.testing.assert_array_equal(opdef.get("elementwise_div")(np, x, y), [3, -3, -3, 3])


def test_power_of_zero_has_gradients_without_nan():
    x, y = np.array([0.0, 2.0]), np.array([0.0, 0.0])
    with np.errstate(all="ignore"):
        d_x, d_y = opdef.get("elementwise_pow_grad")(np, x, y, np.ones(2), needs=(True, True))
    np.testing.assert_array_equal(d_x, [0.0, 0.0])
    np.testing.assert_allclose(d_y, [0.0, np.log(2.0)])


def test_sparse_gradient_times_a_factor_stays_sparse():
    x = SelectedRows(np.array([3, 1, 3]), 5, np.arange(6.0).reshape(3, 2))
    made = opdef.get("elementwise_mul")(np, x, np.array([2.0]))
    assert made.rows() == [3, 1, 3]
    np.testing.assert_array_equal(made.value, x.value * 2)


def test_sparse_gradient_takes_no_other_factor_than_a_number():
    specs = {"X": [Spec((5, 2), kind=VarType.SELECTED_ROWS)], "Y": [Spec((5, 2))]}
    with pytest.raises(InvalidOp, match="one element"):
        opdef.get("elementwise_mul").infer_specs(specs, {})
    with pytest.raises(InvalidOp, match="SelectedRows"):
        opdef.get("elementwise_add").infer_specs(specs, {})


def test_gradient_of_equal_shapes_is_passed_on_without_a_copy():
    d_out = np.ones((2, 3))
    grads = opdef.get("elementwise_add_grad")(np, d_out, d_out, d_out, needs=(True, True))
    assert grads[0] is d_out
    assert grads[1] is d_out


@st.composite
def fitting_shapes(draw):
    """A shape, a smaller one laid into it at an axis with some dimensions of 1, and the axis."""
    x = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axis = draw(st.integers(0, len(x) - 1))
    stop = draw(st.integers(axis + 1, len(x)))
    y = [draw(st.sampled_from([1, size])) for size in x[axis:stop]]
    x = [draw(st.sampled_from([1, size])) if i < axis else size for i, size in enumerate(x)]
    return tuple(x), tuple(y), axis


@given(fitting_shapes(), st.booleans())
def test_summing_the_gradient_is_the_adjoint_of_repeating(shapes, swap):
    """Whatever is repeated: <repeat(y), g> equals <y, sum(g)>."""
    rng = np.random.default_rng(0)
    x, y, axis = rng.normal(size=shapes[0]), rng.normal(size=shapes[1]), shapes[2]
    if swap:
        x, y = y, x
    x_laid, y_laid = aligned(x, y, axis)
    repeated = np.broadcast_to(y_laid, np.broadcast_shapes(x_laid.shape, y_laid.shape))
    assert infer("elementwise_add", x.shape, y.shape, axis) == repeated.shape
    grad = rng.normal(size=repeated.shape)
    summed = unbroadcast(np, grad, y, x, axis)
    assert summed.shape == y.shape
    np.testing.assert_allclose((repeated * grad).sum(), (y * summed).sum(), atol=1e-12)
