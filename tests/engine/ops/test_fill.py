"""Operators that make constants, ranges and regular tensors."""

import numpy as np
import pytest

import dpexec.engine.ops
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import InvalidOp, Spec

assert dpexec.engine.ops  # registers the operators


def test_batch_size_is_taken_from_the_input():
    infer = opdef.get("fill_constant_batch_size_like").infer_specs
    assert infer({"Input": [Spec((-1, 3))]}, {"shape": [1, 7]})["Out"][0].shape == (-1, 7)
    with pytest.raises(InvalidOp, match="input_dim_idx=2"):
        infer({"Input": [Spec((-1, 3))]}, {"shape": [1, 7], "input_dim_idx": 2})


def test_sequences_are_counted_not_their_rows():
    infer = opdef.get("fill_constant_batch_size_like").infer_specs
    offsets = Spec((4,), VarType.INT64, VarType.RAW)
    inputs = {"Input": [Spec((6, 2))], "Input@LOD": [offsets]}
    assert infer(inputs, {"shape": [-1, 7]})["Out"][0].shape == (3, 7)
    assert infer(inputs, {"shape": [-1, 7], "input_dim_idx": 1})["Out"][0].shape == (2, 7)


def test_values_must_fill_the_shape():
    infer = opdef.get("assign_value").infer_specs
    with pytest.raises(InvalidOp, match=r"fp32_values has 1 values, but shape \[2\] needs 2"):
        infer({}, {"shape": [2], "dtype": VarType.FP32, "fp32_values": [1.0]})
    with pytest.raises(InvalidOp, match="no list of values for float64"):
        infer({}, {"shape": [1], "dtype": VarType.FP64})


def test_shape_of_variables_is_known_when_it_runs():
    definition = opdef.get("fill_constant")
    spec = definition.infer_specs(
        {"ShapeTensorList": [Spec((1,), VarType.INT32)] * 2}, {"shape": [-1, 3]}
    )["Out"][0]
    assert spec.shape == (-1, 3)
    parts = [np.array([2], np.int32), np.array([3], np.int32)]
    keywords = definition.kernel_attrs({"shape": [-1, 3], "value": 4.0})
    np.testing.assert_array_equal(definition(np, None, None, parts, **keywords), np.full((2, 3), 4))


@pytest.mark.parametrize(("start", "end", "step"), [(0, 5, 0), (0, 5, -1), (5, 0, 1)])
def test_range_that_leads_nowhere_is_refused(start, end, step):
    values = [np.array([value]) for value in (start, end, step)]
    with pytest.raises(ValueError, match=f"Step {step} does not lead from Start {start}"):
        opdef.get("range")(np, *values)


def test_linspace_needs_a_positive_number():
    with pytest.raises(ValueError, match="Num must be positive, but is 0"):
        opdef.get("linspace")(np, np.zeros(1), np.ones(1), np.array([0]))


def test_counters_keep_their_type():
    made = opdef.get("increment")(np, np.array([2], np.int64), step=1.0)
    assert made.dtype == np.int64
    assert made[0] == 3
