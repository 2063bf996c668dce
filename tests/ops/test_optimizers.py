"""Optimizer operators: in place, and sparse gradients against dense ones."""

import numpy as np
import pytest

from dpexec.core.dtypes import VarType
from dpexec.core.tensors import SelectedRows
from dpexec.ir import opdef
from dpexec.ir.opdef import InvalidOp, Spec
from tests.fixtures import op_cases

DENSE_SEMANTICS = ["sgd", "momentum", "momentum_nesterov", "adam", "rmsprop", "lamb"]
OPTIMIZERS = {
    name: case for name, case in op_cases.CASES.items() if "Param" in case.inputs
}  # fmt: skip


def apply(case, grad, steps=1):
    """The state after some steps with one gradient, and the arrays that the kernel returned."""
    definition = opdef.get(case.op)
    state = {slot: v.copy() for slot, v in case.inputs.items() if slot != "Grad"}
    keywords = definition.kernel_attrs(case.attrs)
    if definition.is_random:
        keywords["rng"] = None
    for _ in range(steps):
        given = [grad if s.name == "Grad" else state.get(s.name) for s in definition.inputs]
        made = definition(np, *given, **keywords)
    return state, made if isinstance(made, tuple) else (made,)


def sparse_gradient():
    rows = op_cases.CASES["sgd_sparse"].inputs["Grad"]
    return SelectedRows(rows.rows, rows.height, rows.value)


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if not n.endswith("_sparse")])
def test_state_is_updated_in_place(name):
    case = OPTIMIZERS[name]
    before = case.inputs["Param"].copy()
    state, made = apply(case, case.inputs["Grad"])
    inplace = opdef.get(case.op).inplace
    for slot, array in zip(opdef.get(case.op).outputs, made, strict=True):
        assert array is state[inplace[slot.name]]
    assert not np.array_equal(state["Param"], before)


@pytest.mark.parametrize("name", DENSE_SEMANTICS)
def test_sparse_gradient_counts_as_the_dense_one(name):
    case, gradient = OPTIMIZERS[name], sparse_gradient()
    sparse, _ = apply(case, gradient, steps=3)
    dense, _ = apply(case, gradient.to_dense(), steps=3)
    for slot in dense:
        np.testing.assert_allclose(sparse[slot], dense[slot], rtol=1e-6, err_msg=slot)


@pytest.mark.parametrize("name", ["adagrad", "adam_lazy"])
def test_sparse_gradient_touches_its_rows_alone(name):
    case, gradient = OPTIMIZERS[name], sparse_gradient()
    state, _ = apply(case, gradient)
    dense, _ = apply(case, gradient.to_dense())
    touched = np.isin(np.arange(6), gradient.rows())
    for slot, array in state.items():
        if array.shape == (6, 3):
            np.testing.assert_array_equal(array[~touched], case.inputs[slot][~touched])
            np.testing.assert_allclose(array[touched], dense[slot][touched], rtol=1e-6)


def test_sparse_adam_corrects_for_the_step_it_is_at():
    """The original's CPU kernel is a step ahead: it would move by 0.00744."""
    one = np.ones(1, np.float32)
    state = [np.zeros((2, 1), np.float32) for _ in range(3)]
    gradient = SelectedRows([1], 2, np.ones((1, 1), np.float32))
    opdef.get("adam")(np, state[0], gradient, one * 0.01, *state[1:], one * 0.9, one * 0.999)
    np.testing.assert_allclose(state[0][:, 0], [0, -0.01], rtol=1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_empty_sparse_gradient_is_no_error(name):
    case = OPTIMIZERS[name]
    if "Grad" not in opdef.get(case.op).sparse:
        with pytest.raises(InvalidOp, match=f"SelectedRows.* which {case.op} does not take"):
            infer(case, VarType.SELECTED_ROWS)
        return
    empty = SelectedRows([], 6, np.empty((0, 3), np.float32))
    state, _ = apply(case, empty)
    zero, _ = apply(case, np.zeros((6, 3), np.float32))
    if name not in ("adam_lazy", "adam_lazy_sparse"):
        np.testing.assert_allclose(state["Param"], zero["Param"], rtol=1e-6)


def infer(case, grad_kind=VarType.LOD_TENSOR, **shapes):
    specs = {
        slot: [Spec(shapes.get(slot, (6, 3) if slot == "Grad" else value.shape))]
        for slot, value in case.inputs.items()
    }
    specs["Grad"][0] = specs["Grad"][0].replace(kind=grad_kind)
    return opdef.get(case.op).infer_specs(specs, case.attrs)


def test_state_of_another_shape_is_refused():
    with pytest.raises(InvalidOp, match=r"Velocity .*\[6, 2\] must have the shape of Param"):
        infer(OPTIMIZERS["momentum"], Velocity=(6, 2))
    with pytest.raises(InvalidOp, match=r"LearningRate .*\[3\] must have one element"):
        infer(OPTIMIZERS["momentum"], LearningRate=(3,))
