"""Gather and scatter: rows out of range, repeated rows, empty indices."""

import numpy as np
import pytest

import dpexec.engine.ops
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import InvalidOp, Spec

assert dpexec.engine.ops  # registers the operators


@pytest.mark.parametrize("wrong", [3, -1])
def test_rows_that_do_not_exist_are_named(wrong):
    x, index = np.ones((3, 2)), np.array([0, wrong])
    with pytest.raises(ValueError, match=f"expected >= 0 and < 3, but got {wrong}"):
        opdef.get("gather")(np, x, index)
    with pytest.raises(ValueError, match=f"Ids: .*got {wrong}"):
        opdef.get("scatter")(np, x, index, np.ones((2, 2)))
    for call in (
        lambda: opdef.get("gather_nd")(np, x, index[:, None]),
        lambda: opdef.get("scatter_nd_add")(np, x, index[:, None], np.ones((2, 2))),
    ):
        with pytest.raises(ValueError, match=f"dimension 0: .*got {wrong}"):
            call()


def test_gradient_of_a_repeated_row_is_that_of_its_last_copy_if_told_to_overwrite():
    x, index, d_out = np.ones((3, 1)), np.array([2, 0, 2]), np.array([[1.0], [2.0], [4.0]])
    grad = opdef.get("gather_grad")
    np.testing.assert_array_equal(grad(np, x, index, d_out, overwrite=True).T, [[2.0, 0.0, 4.0]])
    np.testing.assert_array_equal(grad(np, x, index, d_out, overwrite=False).T, [[2.0, 0.0, 5.0]])


def test_no_rows():
    x, none = np.ones((3, 2)), np.zeros(0, np.int64)
    assert opdef.get("gather")(np, x, none).shape == (0, 2)
    grad = opdef.get("gather_grad")(np, x, none, np.zeros((0, 2)), overwrite=False)
    np.testing.assert_array_equal(grad, np.zeros((3, 2)))


def test_index_must_be_integers_in_a_vector_or_column():
    infer = opdef.get("gather").infer_specs
    with pytest.raises(InvalidOp, match="int32 or int64"):
        infer({"X": [Spec((3, 2))], "Index": [Spec((2,))]}, {})
    with pytest.raises(InvalidOp, match="second dimension of 1"):
        infer({"X": [Spec((3, 2))], "Index": [Spec((2, 2), VarType.INT64)]}, {})


def test_updates_must_fit():
    specs = {"X": [Spec((3, 2))], "Ids": [Spec((2,), VarType.INT64)], "Updates": [Spec((3, 2))]}
    with pytest.raises(InvalidOp, match=r"must have the shape \[2, 2\]"):
        opdef.get("scatter").infer_specs(specs, {})
