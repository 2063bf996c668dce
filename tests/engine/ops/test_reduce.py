"""Reductions: shapes, types, and gradients at special values."""

import numpy as np
import pytest

import dpexec.engine.ops
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import InvalidOp, Spec

assert dpexec.engine.ops  # registers the operators


@pytest.mark.parametrize(
    ("attrs", "out"),
    [
        ({"dim": [0]}, (3, 4)),
        ({"dim": [-1]}, (-1, 3)),
        ({"dim": [1], "keep_dim": True}, (-1, 1, 4)),
        ({"reduce_all": True}, (1,)),
        ({"reduce_all": True, "keep_dim": True}, (1, 1, 1)),
        ({"dim": [0, 1, 2]}, (1,)),
        ({"dim": 1}, (-1, 4)),
    ],
)
def test_shape(attrs, out):
    found = opdef.get("reduce_sum").infer_specs({"X": [Spec((-1, 3, 4))]}, attrs)
    assert found["Out"][0].shape == out


def test_axis_out_of_range_is_named():
    with pytest.raises(InvalidOp, match=r"dim is 2.*\[3, 4\]"):
        opdef.get("reduce_max").infer_specs({"X": [Spec((3, 4))]}, {"dim": [2]})


@pytest.mark.parametrize(("type", "needs"), [("reduce_all", "booleans"), ("reduce_sum", "numbers")])
def test_type_of_input_is_checked(type, needs):
    wrong = VarType.FP32 if type == "reduce_all" else VarType.BOOL
    with pytest.raises(InvalidOp, match=needs):
        opdef.get(type).infer_specs({"X": [Spec((3,), wrong)]}, {})


def test_integers_keep_their_type():
    x = np.array([[1, 2], [3, 5]], np.int32)
    assert opdef.get("reduce_sum")(np, x, dim=[0]).dtype == np.int32
    mean = opdef.get("reduce_mean")(np, x, reduce_all=True)
    assert mean.dtype == np.int32
    assert mean[0] == 2


def test_out_dtype_is_the_type_of_the_sum():
    found = opdef.get("reduce_sum")(np, np.ones(3, np.float32), dim=[0], out_dtype=VarType.FP64)
    assert found.dtype == np.float64


def test_equal_maxima_all_receive_the_gradient():
    x = np.array([[1.0, 2.0, 2.0]])
    grad = opdef.get("reduce_max_grad")(np, x, np.array([2.0]), np.array([3.0]), dim=[1])
    np.testing.assert_array_equal(grad, [[0.0, 3.0, 3.0]])


def test_gradient_of_products_with_zeros():
    x = np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0]])
    out = x.prod(axis=1)
    grad = opdef.get("reduce_prod_grad")(np, x, out, np.ones(2), dim=[1])
    np.testing.assert_array_equal(grad, [[0.0, 6.0, 0.0], [0.0, 0.0, 0.0]])
