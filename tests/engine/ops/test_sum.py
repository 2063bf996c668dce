"""``sum`` of dense and sparse gradients."""

import numpy as np
import pytest

import dpexec.engine.ops
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import InvalidOp, Spec

assert dpexec.engine.ops  # registers the operators


def rows(numbers, value):
    return SelectedRows(np.array(numbers), 4, np.full((len(numbers), 2), value))


def test_sparse_gradients_are_joined_and_merged_if_a_row_comes_twice():
    made = opdef.get("sum")(np, [rows([2, 0], 1.0), rows([3], 5.0)])
    assert isinstance(made, SelectedRows)
    assert made.rows() == [2, 0, 3]
    assert made.height() == 4
    np.testing.assert_array_equal(made.value[:, 0], [1.0, 1.0, 5.0])
    made = opdef.get("sum")(np, [rows([2, 0], 1.0), rows([2], 5.0)])
    assert made.rows() == [0, 2]
    np.testing.assert_array_equal(made.value[:, 0], [1.0, 6.0])


def test_sparse_gradients_are_added_to_dense_ones():
    dense = np.ones((4, 2))
    made = opdef.get("sum")(np, [rows([2, 0, 2], 1.0), dense])
    np.testing.assert_array_equal(made[:, 0], [2.0, 1.0, 3.0, 1.0])
    np.testing.assert_array_equal(dense, 1.0)


def test_result_is_never_an_input():
    x = np.ones(3)
    assert not np.shares_memory(opdef.get("sum")(np, [x]), x)


def infer(*specs):
    return opdef.get("sum").infer_specs({"X": list(specs)}, {})["Out"][0]


def test_result_is_sparse_only_if_all_are():
    sparse, dense = Spec((4, 2), kind=VarType.SELECTED_ROWS), Spec((4, 2))
    assert infer(sparse, sparse).kind == VarType.SELECTED_ROWS
    assert infer(sparse, dense).kind == VarType.LOD_TENSOR


def test_unknown_dimensions_are_taken_from_the_others():
    assert infer(Spec((-1, 2)), Spec((3, 2))).shape == (3, 2)


def test_shapes_and_types_must_agree():
    with pytest.raises(InvalidOp, match=r"\[2, 3\].*\[2, 1\]"):
        infer(Spec((2, 3)), Spec((2, 1)))
    with pytest.raises(InvalidOp, match=r"float32.*float64"):
        infer(Spec((2,)), Spec((2,), VarType.FP64))
