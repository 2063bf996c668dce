"""Embeddings: ids out of range, sparse gradients, padding."""

import numpy as np
import pytest

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import InvalidOp, Spec
from tests.engine.ops import calls

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)
IDS = np.array([[2], [0], [2], [3]])

assert calls  # registers the operators


def lookup_grad(ids, d_out, **attrs):
    return opdef.get("lookup_table_grad")(np, TABLE, ids, d_out, **attrs)


@pytest.mark.parametrize("wrong", [4, -1, 100])
@pytest.mark.parametrize("type", ["lookup_table", "lookup_table_v2"])
def test_id_out_of_range_is_refused_with_value_and_range(type, wrong):
    with pytest.raises(ValueError, match=f"Ids: expected >= 0 and < 4, but got {wrong}"):
        opdef.get(type)(np, TABLE, np.array([[1], [wrong]]))


def test_ids_must_be_int64():
    specs = {"W": [Spec((4, 3))], "Ids": [Spec((2, 1), VarType.INT32)]}
    with pytest.raises(InvalidOp, match=r"Ids int32\[2, 1\] must be int64"):
        opdef.get("lookup_table").infer_specs(specs, {})


def test_sparse_gradient_has_rows_in_order_of_ids_with_repetitions():
    d_out = np.arange(12, dtype=np.float32).reshape(4, 3)
    made = lookup_grad(IDS, d_out, is_sparse=True)
    assert isinstance(made, SelectedRows)
    assert made.rows() == [2, 0, 2, 3]
    assert made.height() == 4
    np.testing.assert_array_equal(made.value, d_out)


def test_sparse_and_dense_gradient_agree():
    d_out = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    sparse = lookup_grad(IDS, d_out, is_sparse=True)
    np.testing.assert_array_equal(sparse.to_dense(), lookup_grad(IDS, d_out))


@pytest.mark.parametrize("is_sparse", [False, True])
def test_sparse_gradient_is_declared_as_selected_rows(is_sparse):
    specs = {
        "W": [Spec((4, 3))],
        "Ids": [Spec((-1, 1), VarType.INT64)],
        "Out@GRAD": [Spec((-1, 3))],
    }
    made = opdef.get("lookup_table_grad").infer_specs(specs, {"is_sparse": is_sparse})
    assert made["W@GRAD"][0].shape == (4, 3)
    assert (made["W@GRAD"][0].kind == VarType.SELECTED_ROWS) is is_sparse


@pytest.mark.parametrize("is_sparse", [False, True])
def test_padding_row_reads_as_zero_and_gets_no_gradient(is_sparse):
    out = opdef.get("lookup_table")(np, TABLE, IDS, padding_idx=2)
    assert not out[[0, 2]].any()
    np.testing.assert_array_equal(out[[1, 3]], TABLE[[0, 3]])
    made = lookup_grad(IDS, np.ones((4, 3), np.float32), padding_idx=2, is_sparse=is_sparse)
    dense = made.to_dense() if is_sparse else made
    np.testing.assert_array_equal(dense[:, 0], [1, 0, 0, 1])
