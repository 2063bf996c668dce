"""The contract of all operators, checked on each operator's samples: shapes, types, gradients."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from dpexec.engine.core.lod import NO_SEQUENCES
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import InvalidOp, dims_match
from dpexec.engine.ir.roles import grad_name
from tests.engine.ops.calls import SampleCall, parts, samples, spec_of


def runs_elsewhere(definition):
    """Whether a call of the kernel does not show what the operator does.

    It runs a block or a Python function, has no kernel, looks at one of several variables, or
    works on arrays of tensors.
    """
    runs = (
        definition.by_executor or definition.infer is None or "body" in definition.kernel_arguments
    )
    return runs or definition.type in ("select_input", "select_output", *ON_ARRAYS)


ON_ARRAYS = {
    *("write_to_array", "read_from_array", "lod_array_length"),
    *("tensor_array_to_tensor", "tensor_array_to_tensor_grad"),
    *("lod_rank_table", "max_sequence_len", "lod_tensor_to_array", "array_to_lod_tensor"),
    *("shrink_rnn_memory", "shrink_rnn_memory_grad"),
    *("reorder_lod_tensor_by_rank", "reorder_lod_tensor_by_rank_grad"),
    # shapes depend on values, in the gradient, too
    *("split_lod_tensor", "merge_lod_tensor", "merge_lod_tensor_infer"),
}
"""On arrays and rank tables: tests/layers/test_{arrays,recurrent,rank_tables,if_else}.py."""
TYPES = [type for type, d in opdef.registered().items() if not runs_elsewhere(d)]
STEP = 1e-6
UNCHECKED_GRADIENTS = {
    "cast": "its samples name one data type, but are run in two",
    "cvm": "the gradient of shows and clicks is their count",
    "pyramid_hash": "it updates its table itself: tests/contrib/test_contrib_layers.py",
}


@functools.cache
def grad_types():
    """Types of all operators that gradient makers append for some sample."""
    found = set()
    for type in TYPES:
        if opdef.get(type).make_grad:
            for sample in samples(type):
                call = SampleCall(type, sample, np.float64)
                found.update(op.type for op in call.grad_ops(call.wanted_inputs(sample)))
    return found


@pytest.mark.parametrize("type", TYPES)
def test_operator_is_documented_and_sampled(type):
    definition = opdef.get(type)
    assert definition.doc, f"{type} has no docstring"
    if definition.samples is None:
        by_others = type in grad_types() or type.endswith("_grad_grad")  # test_double_gradients.py
        assert by_others, f"{type} has no samples and is no operator's gradient"
    else:
        assert "Source:" in definition.doc, f"{type} does not name its source"
        assert samples(type)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("type", [t for t in TYPES if samples(t)])
def test_forward_gives_what_was_inferred(type, dtype):
    for number, sample in enumerate(samples(type)):
        call = SampleCall(type, sample, dtype)
        call.protect()
        values = call.forward()
        assert set(sample.expected) <= set(call.outputs), f"{type} has no such output"
        for slot, names in call.outputs.items():
            expected = sample.expected.get(slot)
            for position, name in enumerate(names):
                what = f"sample {number} of {type}, output {name}"
                _assert_inferred(call.block.var(name).spec, spec_of(values[name]), what)
                if expected is not None and dtype == np.float32:
                    item = expected[position] if isinstance(expected, list) else expected
                    _assert_equal(values[name], item, what)


def _assert_inferred(inferred, actual, what):
    """Unknown dimensions (their size depends on values) may have any size."""
    what += f": inferred {inferred}, but it is {actual}"
    assert (inferred.dtype, inferred.kind) == (actual.dtype, actual.kind), what
    assert len(inferred.shape) == len(actual.shape), what
    assert all(map(dims_match, inferred.shape, actual.shape)), what


def _assert_equal(found, expected, what):
    for a, b in zip(parts(found), parts(expected), strict=True):
        assert a.shape == b.shape, what
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7, err_msg=what)


@pytest.mark.parametrize("type", [t for t in TYPES if samples(t)])
def test_infer_with_unknown_batch_agrees(type):
    for sample in samples(type):
        call = SampleCall(type, sample, np.float32)
        values = call.forward()
        specs = {
            slot: [_unknown_batch(spec_of(call.values[name])) for name in names]
            for slot, names in call.inputs.items()
        }
        try:
            inferred = call.inferred(specs, sample)
        except InvalidOp:  # it needs to know this dimension, and says so
            continue
        for slot, names in call.outputs.items():
            made = [spec for spec in inferred[slot] if spec is not None]
            for name, spec in zip(names, made, strict=True):
                if type == "kept_lod" and values[name] is NO_SEQUENCES:
                    continue  # whether sequences stay is not known before the numbers of rows
                _assert_inferred(spec, spec_of(values[name]), f"{type}, output {name}")


def _unknown_batch(spec):
    return spec.replace(shape=(-1, *spec.shape[1:])) if spec.shape else spec


def differentiable(type):
    definition = opdef.get(type)
    has_gradient = definition.make_grad is not None and not definition.no_grad
    return has_gradient and type not in UNCHECKED_GRADIENTS


@pytest.mark.parametrize("type", [t for t in TYPES if samples(t) and differentiable(t)])
def test_gradient_matches_finite_differences(type):
    checked = 0
    for number, sample in enumerate(samples(type)):
        call = SampleCall(type, sample, np.float64)
        wanted = call.wanted_inputs(sample) if sample.smooth else []
        sources = call.read_output_grads(wanted) if wanted else []
        if not sources:
            continue
        rng = np.random.default_rng(number)
        values = call.forward()
        weights = {name: rng.standard_normal(np.shape(values[name])) for name in sources}
        grads, _ = call.backward(values, weights, wanted)
        directions = {name: rng.standard_normal(call.values[name].shape) for name in wanted}
        analytic = sum(float((dense(grads[n]) * directions[n]).sum()) for n in wanted)
        numeric = _numeric(call, weights, directions)
        assert np.isclose(analytic, numeric, rtol=1e-5, atol=1e-7), (
            f"sample {number} of {type} {dict(sample.attrs)}: the gradient in a random direction "
            f"is {analytic} by the gradient operator and {numeric} by finite differences"
        )
        _check_each_alone(type, call, values, weights, grads)
        checked += 1
    assert checked, f"no sample of {type} checks its gradient"


def dense(value):
    return value.to_dense() if isinstance(value, SelectedRows) else value


def _numeric(call, weights, directions):
    totals = []
    for step in (STEP, -STEP):
        moved = {name: call.values[name] + step * d for name, d in directions.items()}
        values = call.forward(**moved)
        totals.append(sum(float((values[name] * w).sum()) for name, w in weights.items()))
    return (totals[0] - totals[1]) / (2 * STEP)


def _check_each_alone(type, call, values, weights, grads):
    for name in grads if len(grads) > 1 else []:
        alone, _ = call.backward(values, weights, [name])
        np.testing.assert_allclose(
            dense(alone[name]), dense(grads[name]), rtol=1e-12, atol=1e-12,
            err_msg=f"gradient of {name} of {type} differs if it is the only one asked for",
        )  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("type", [t for t in TYPES if samples(t) and differentiable(t)])
def test_gradient_has_type_and_shape_of_input(type, dtype):
    for number, sample in enumerate(samples(type)):
        call = SampleCall(type, sample, dtype)
        wanted = call.wanted_inputs(sample)
        if not wanted:
            continue
        values = call.forward()
        weights = {
            name: np.ones(np.shape(values[name]), values[name].dtype)
            for name in call.read_output_grads(wanted)
        }
        for array in [a for v in (*values.values(), *weights.values()) for a in parts(v)]:
            array.flags.writeable = False
        grads, specs = call.backward(values, weights, wanted)
        for name, grad in grads.items():
            what = f"sample {number} of {type}, gradient of {name}"
            found, inferred = spec_of(grad), specs[grad_name(name)]
            assert (found.shape, found.dtype) == (inferred.shape, inferred.dtype), what
            assert found.shape == call.values[name].shape, what
            assert found.dtype == spec_of(call.values[name]).dtype, what
