"""``assign`` and ``cast``: gradients, copies and sparse rows."""

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import Sample
from tests.engine.ops.calls import SampleCall


def test_gradient_of_cast_is_cast_back():
    attrs = {"in_dtype": VarType.FP32, "out_dtype": VarType.FP64}
    call = SampleCall("cast", Sample({"X": np.array([1.0, 2.0])}, attrs), np.float32)
    values = call.forward()
    assert values["out_Out_0"].dtype == np.float64
    weights = {"out_Out_0": np.array([0.5, 3.0])}
    (grad_op,) = call.grad_ops(["X_0"])
    assert grad_op.type == "cast"
    grads, _ = call.backward(values, weights, ["X_0"])
    assert grads["X_0"].dtype == np.float32
    np.testing.assert_array_equal(grads["X_0"], [0.5, 3.0])


def test_assign_and_cast_copy():
    x = np.ones(3, np.float32)
    types = {"in_dtype": VarType.FP32, "out_dtype": VarType.FP32}
    for made in (opdef.get("assign")(np, x), opdef.get("cast")(np, x, **types)):
        assert not np.shares_memory(made, x)


def test_assign_copies_rows():
    x = SelectedRows(np.array([1, 2]), 5, np.ones((2, 3)))
    made = opdef.get("assign")(np, x)
    assert made.rows() == [1, 2]
    assert made.height() == 5
    assert not np.shares_memory(made.value, x.value)
