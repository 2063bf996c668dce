"""Single operators against what the real PaddlePaddle 1.8.5 computed, gradients included.

The calls are in ``tests/fixtures/op_cases.py``, the numbers in ``ops.npz``.
"""

from pathlib import Path

import numpy as np
import pytest

from dpexec.autodiff import gradients
from dpexec.core.dtypes import VarType
from dpexec.core.tensors import SelectedRows
from dpexec.ir import opdef
from dpexec.ir.program import Program
from tests.fixtures import op_cases
from tests.ops.calls import run


@pytest.fixture(scope="module")
def recorded():
    with np.load(Path(op_cases.__file__).with_name("ops.npz")) as file:
        return dict(file)


def build(case):
    """A program of one operator, its inputs' values, and its outputs' variables by slot."""
    block, values, inputs = Program().global_block(), {}, {}
    for slot, value in case.inputs.items():
        kind = VarType.LOD_TENSOR
        if isinstance(value, op_cases.Rows):
            value = SelectedRows(value.rows, value.height, value.value)
            kind = VarType.SELECTED_ROWS
        else:
            value = value.copy()
        inputs[slot] = block.create_var(
            name=slot, shape=value.shape, dtype=str(value.dtype), type=kind
        )
        values[slot] = value
    names = [slot.name for slot in opdef.get(case.op).outputs if not slot.optional]
    outputs = {name: block.create_var(name="made_" + name) for name in names}
    block.append_op(case.op, inputs, outputs, case.attrs)
    return block, values, inputs, outputs


@pytest.mark.parametrize("name", op_cases.CASES)
def test_operator_computes_what_paddle_computes(name, recorded):
    case = op_cases.CASES[name]
    block, values, inputs, outputs = build(case)
    wanted = {slot: outputs[slot] for slot in case.outputs}
    if case.grads:
        through = outputs[case.through]
        values["flow"] = case.output_gradient(through.shape)
        flow = block.create_var(name="flow", shape=through.shape, dtype="float32")
        made = gradients([through], [inputs[slot] for slot in case.grads], [flow])
        wanted |= {slot + "@GRAD": var for slot, var in zip(case.grads, made, strict=True)}
    for op in block.ops:
        run(op, values)
    for slot, var in wanted.items():
        value, expected = values[var.name], recorded[f"{name}/{slot}"]
        assert var.shape == value.shape == expected.shape
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-6, err_msg=slot)


def test_every_recorded_value_belongs_to_a_case(recorded):
    assert {key.split("/")[0] for key in recorded} == set(op_cases.CASES)
