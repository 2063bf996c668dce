"""Optimizer operators update in place, and sparse gradients equal dense ones."""

import numpy as np
import pytest

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import InvalidOp, Spec
from tests.engine.ops.calls import converted, samples

OPTIMIZERS = [
    pytest.param(type, sample, id=f"{type}-{number}")
    for type, definition in opdef.registered().items()
    if any(slot.name == "ParamOut" and not slot.many for slot in definition.outputs)
    for number, sample in enumerate(samples(type))
]
DENSE = [p for p in OPTIMIZERS if not isinstance(p.values[1].inputs["Param"], SelectedRows)]
ROWS_ALONE = ("adagrad", "sgd")


def is_sparse(sample):
    return isinstance(sample.inputs["Grad"], SelectedRows)


def moves_rows_alone(type, sample):
    """Whether a sparse gradient leaves rows alone that a dense one may change."""
    return type in ROWS_ALONE or sample.attrs.get("lazy_mode", False)


def chosen(condition):
    return [param for param in DENSE if condition(*param.values)]


def apply(type, sample, grad, steps=1):
    """The state after some steps with one gradient, and the arrays that the kernel returned."""
    definition = opdef.get(type)
    state = {slot: converted(v, np.float32) for slot, v in sample.inputs.items() if slot != "Grad"}
    keywords = definition.kernel_attrs(sample.attrs)
    if definition.is_random:
        keywords["rng"] = None
    for _ in range(steps):
        given = [grad if s.name == "Grad" else state.get(s.name) for s in definition.inputs]
        made = definition(np, *given, **keywords)
    return state, made if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize(("type", "sample"), chosen(lambda _, sample: not is_sparse(sample)))
def test_state_is_updated_in_place(type, sample):
    with np.errstate(over="ignore"):  # squares of large gradients are infinite
        state, made = apply(type, sample, converted(sample.inputs["Grad"], np.float32))
    inplace = opdef.get(type).inplace
    for slot, array in zip(opdef.get(type).outputs, made, strict=True):
        if slot.name in inplace:
            assert array is state.get(inplace[slot.name])
    assert not np.array_equal(state["Param"], sample.inputs["Param"].astype(np.float32))


@pytest.mark.parametrize(
    ("type", "sample"),
    chosen(lambda t, s: is_sparse(s) and (t == "sgd" or not moves_rows_alone(t, s))),
)
def test_sparse_gradient_counts_as_the_dense_one(type, sample):
    gradient = converted(sample.inputs["Grad"], np.float32)
    sparse, _ = apply(type, sample, gradient, steps=3)
    dense, _ = apply(type, sample, gradient.to_dense(), steps=3)
    for slot in dense:
        np.testing.assert_allclose(sparse[slot], dense[slot], rtol=2e-6, err_msg=slot)


@pytest.mark.parametrize(
    ("type", "sample"), chosen(lambda t, s: is_sparse(s) and moves_rows_alone(t, s))
)
def test_sparse_gradient_touches_its_rows_alone(type, sample):
    gradient = converted(sample.inputs["Grad"], np.float32)
    state, _ = apply(type, sample, gradient)
    dense, _ = apply(type, sample, gradient.to_dense())
    touched = np.isin(np.arange(6), gradient.rows())
    for slot, array in state.items():
        if array.shape == (6, 3):
            before = sample.inputs[slot].astype(np.float32)
            np.testing.assert_array_equal(array[~touched], before[~touched])
            np.testing.assert_allclose(array[touched], dense[slot][touched], rtol=1e-6)


def test_sparse_adam_corrects_for_the_step_it_is_at():
    """The original's CPU kernel is a step ahead: it would move by 0.00744."""
    one = np.ones(1, np.float32)
    state = [np.zeros((2, 1), np.float32) for _ in range(3)]
    gradient = SelectedRows([1], 2, np.ones((1, 1), np.float32))
    opdef.get("adam")(np, state[0], gradient, one * 0.01, *state[1:], one * 0.9, one * 0.999)
    np.testing.assert_allclose(state[0][:, 0], [0, -0.01], rtol=1e-5)


@pytest.mark.parametrize(("type", "sample"), DENSE)
def test_empty_sparse_gradient_is_no_error(type, sample):
    if "Grad" not in opdef.get(type).sparse:
        with pytest.raises(InvalidOp, match=f"SelectedRows.* which {type} does not take"):
            infer(type, sample, VarType.SELECTED_ROWS)
        return
    shape = sample.inputs["Param"].shape
    empty = SelectedRows([], shape[0], np.empty((0, *shape[1:]), np.float32))
    state, _ = apply(type, sample, empty)
    zero, _ = apply(type, sample, np.zeros(shape, np.float32))
    if not sample.attrs.get("lazy_mode") and type != "dgc_momentum":
        np.testing.assert_allclose(state["Param"], zero["Param"], rtol=1e-6)


def infer(type, sample, grad_kind=VarType.LOD_TENSOR, **shapes):
    specs = {slot: [Spec(shapes.get(slot, value.shape))] for slot, value in sample.inputs.items()}
    specs["Grad"][0] = specs["Grad"][0].replace(kind=grad_kind)
    return opdef.get(type).infer_specs(specs, sample.attrs)


def test_state_of_another_shape_is_refused():
    sample = samples("momentum")[2]
    with pytest.raises(InvalidOp, match=r"Velocity .*\[6, 2\] must have the shape of Param"):
        infer("momentum", sample, Velocity=(6, 2))
    with pytest.raises(InvalidOp, match=r"LearningRate .*\[3\] must have one element"):
        infer("momentum", sample, LearningRate=(3,))
