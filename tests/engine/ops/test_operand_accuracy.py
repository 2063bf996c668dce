"""Operators that add up are as exact, in changes of their operands, as they declare.

The exact result is the kernel's own in longer numbers, so this finds what is lost on the way: terms
that cancel, squares that overflow. Whether the formula is right, the records of Paddle and finite
differences tell.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from dpexec.engine import kernels
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import opdef, roles
from dpexec.engine.ir.opdef import Sample
from tests.engine.ops.calls import SampleCall, converted, parts, run, samples, spec_of

L = np.longdouble
LOST = L(2) ** -116
"""Below it results may be 0: float32 numbers underflow on the way."""
STEP = L(2) ** -30
"""By how much of itself every operand changes; small, and far above what longdouble loses."""
FACTORS = 1 + STEP * np.array([-1, 1], L)
CHANGES = 16
"""With signs by chance: the largest of as many changes of a result counts.

Two terms that cancel may change alike in all of them: with 8, that happened to a result."""
SIZES = {
    "as they are": lambda x: x,
    "small": lambda x: x * 1e-4,
    "large": lambda x: x * 1e4,
    "wide": lambda x: x * 10 ** np.random.default_rng(1).uniform(-3, 3, x.shape),
}
"""Every floating point input of a sample, in other sizes."""


def promised():
    return [t for t, found in opdef.registered().items() if found.operand_ulps is not None]


def forwards():
    """Operators whose samples call those that promise something."""
    found = {t.removesuffix("2").removesuffix("_grad") if not samples(t) else t for t in promised()}
    return sorted(found)


def sized(value, size):
    if isinstance(value, list):
        return [sized(item, size) for item in value]
    if isinstance(value, SelectedRows):
        return SelectedRows(value.row_array, value.height_, sized(value.value, size))
    return size(value) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value


def changed(value, rng):
    if isinstance(value, SelectedRows):
        return SelectedRows(value.row_array, value.height_, changed(value.value, rng))
    if not isinstance(value, np.ndarray) or value.dtype != L:
        return value
    return value * FACTORS[rng.integers(0, 2, value.shape)]


def attributes_in(dtype):
    """Kernels get their floating point attributes as rounded as those in this type."""

    def choose(type, kernel):
        def call(xp, *inputs, **keywords):
            rounded = {
                k: float(dtype(v)) if isinstance(v, float) else v for k, v in keywords.items()
            }
            return kernel(xp, *inputs, **rounded)

        return call

    return choose


def computed(op, values, dtype, rounding):
    """The values of all variables after an operator, with numbers in a type."""
    found = {name: converted(value, dtype) for name, value in values.items()}
    run(op, found, choose=attributes_in(rounding))
    return found


def calls(type, sample, dtype):
    """The operator and its gradients with the values that they read."""
    call = SampleCall(type, sample, dtype)
    for out, source in call.definition.inplace.items():  # machine code may want it
        if call.inputs.get(source):
            call.op.outputs[out] = list(call.inputs[source])
    yield call.op, call.values
    values = computed(call.op, call.values, dtype, dtype)
    wanted = call.wanted_inputs(sample) if call.definition.make_grad else []
    if not wanted:
        return
    rng = np.random.default_rng(0)
    for name in (n for names in call.outputs.values() for n in names):
        if getattr(values[name], "dtype", None) == dtype:
            values[roles.grad_name(name)] = rng.normal(size=values[name].shape).astype(dtype)
            call._declare(roles.grad_name(name), spec_of(values[roles.grad_name(name)]))
    for made in call.grad_ops(wanted):
        sides = [{k: v for k, v in side.items() if any(v)} for side in (made.inputs, made.outputs)]
        for name in (n for names in sides[1].values() for n in names if n):
            call.block.create_var(name=name)
        yield call.block.append_op(made.type, *sides, dict(made.attrs)), values


def ways(op, values, dtype):
    """What the kernel gives, and what machine code gives where the operator has a lowering."""
    after = computed(op, values, dtype, dtype)
    yield "NumPy", after
    if dtype == np.float32 and kernels.available():
        from tests.engine.kernels.test_lowerings import run_code

        found = run_code([op], {n: converted(v, dtype) for n, v in values.items()}, after)
        if found is not None:
            yield "machine code", found


def results(op, after):
    """Results in floating point numbers by name."""
    names = [name for names in op.outputs.values() for name in names if name in after]
    arrays = {name: parts(after[name])[-1] for name in names}
    return {n: a for n, a in arrays.items() if np.ndarray is type(a) and a.dtype.kind == "f"}


def units(op, values, dtype):
    """Exact results, and how much these change when every operand changes by one unit.

    They come again after each of the changes by chance, with the largest of those until then.
    """
    exact = results(op, computed(op, values, L, dtype))
    rng = np.random.default_rng(0)
    most = {name: np.abs(array) for name, array in exact.items()}
    longer = {name: converted(value, L) for name, value in values.items()}
    for _ in range(CHANGES):
        moved = results(op, computed(op, {n: changed(v, rng) for n, v in longer.items()}, L, dtype))
        for name, array in exact.items():
            with np.errstate(invalid="ignore"):
                change = np.abs(moved[name] - array) / STEP
            most[name] = np.fmax(most[name], np.abs(array) + change)
        yield {n: (array, most[n] * np.finfo(dtype).eps) for n, array in exact.items()}


def check(op, values, dtype, what):
    """More changes only raise the limits: what is within those of the first few needs no others."""
    found = [
        (way, name, array)
        for way, after in ways(op, values, dtype)
        for name, array in results(op, after).items()
    ]
    for expected in units(op, values, dtype):
        failures = [
            failure
            for way, name, array in found
            if (failure := off(op, way, name, array, dtype, *expected[name]))
        ]
        if not failures:
            return
    pytest.fail(f"{op}, {what}: {failures}")


def off(op, way, name, found, dtype, exact, unit):
    """What is wrong with a result, in words; None if nothing is."""
    assert exact.dtype == L, f"{name} of {op.type} was not computed in longer numbers"
    known = np.isfinite(exact) & (np.abs(exact) < np.finfo(dtype).max)
    limit = op.definition.operand_ulps * unit + LOST
    with np.errstate(invalid="ignore", divide="ignore"):
        wrong = known & ~(np.abs(found - exact) <= limit)
        if not wrong.any():
            return None
        at = np.argmax(np.where(wrong, np.abs(found - exact) / limit, 0))
        units_off = (np.abs(found - exact) / unit).flat[at]
    return (
        f"{name}, {way}: {np.ravel(found)[at]!r} instead of {np.ravel(exact)[at]!r} is "
        f"{units_off:.3g} units off, not {op.definition.operand_ulps}"
    )


SATURATING = {
    **dict.fromkeys(
        (
            *("lstm", "lstmp", "gru", "gru_unit", "lstm_unit", "attention_lstm"),
            *("fusion_lstm", "fusion_gru", "fused_embedding_fc_lstm"),
        ),
        "where a gate is shut, states are differences that depend on no operand",
    ),
    "linear_chain_crf": "the cost of a likely sequence is a difference of large scores",
    "warpctc": "the cost of a likely sequence is a difference of large scores",
    "bce_loss": "X is between 0 and 1",
}
"""Operators whose samples keep their size or get smaller, and why."""
CONFIDENT = {
    *("softmax_with_cross_entropy", "sigmoid_focal_loss", "hierarchical_sigmoid", "lstm_unit"),
    *("softmax", "sequence_softmax", "bpr_loss"),
}
"""Operators that get samples 30 times as large, too: probabilities come near 0 and 1."""

FIXED = {
    "nce": "CustomDistAlias",
    **dict.fromkeys(("bilinear_interp", "bicubic_interp", "nearest_interp"), "Scale"),
}
"""Inputs that are numbers of elements, or set them: samples with these are left out."""


@functools.cache
def sampled(type):
    """Samples without kinks, in all sizes."""
    sizes = {k: SIZES[k] for k in ("as they are", "small")} if type in SATURATING else dict(SIZES)
    if type in CONFIDENT:
        sizes["confident"] = lambda x: x * 30
    return [
        (what, replace(sample, inputs={k: sized(v, size) for k, v in sample.inputs.items()}))
        for what, size in sizes.items()
        for sample in samples(type)
        if sample.smooth and FIXED.get(type) not in sample.inputs and not has_bytes(sample)
    ]


def has_bytes(sample):
    """Whether a sample is of 8 bits, which are added up exactly and rounded by scales."""
    return any(getattr(v, "dtype", None) in (np.int8, np.uint8) for v in sample.inputs.values())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("type", forwards())
def test_results_are_as_right_as_their_operands(type, dtype):
    for what, sample in sampled(type):
        for op, values in calls(type, sample, dtype):
            if op.definition.operand_ulps is not None:
                check(op, values, dtype, what)


def test_chains_of_tags_may_have_scores_beyond_the_range_of_exponentials():
    scores = np.array([[0.3, -0.2], [0.1, 0.4], [200.0, 190.0], [195.0, 201.0]])
    inputs = {
        "Emission": np.array([[1.0, 2.0], [0.5, -1.0], [0.0, 3.0]]),
        "Emission@LOD": Lod([[0, 2, 3]]),
        "Transition": scores,
        "Label": np.array([[0], [0], [1]]),
    }
    with_small = {**inputs, "Transition": np.concatenate([scores[:2], scores[2:] - 200])}
    for dtype in (np.float32, np.float64):
        both = [
            [after for op, values in calls("linear_chain_crf", Sample(i), dtype)
             for _, after in ways(op, values, dtype)]
            for i in (inputs, with_small)
        ]  # fmt: skip
        for large, small in zip(*both, strict=True):
            for name in ("out_LogLikelihood_0", "Emission_0@GRAD", "Transition_0@GRAD"):
                if name in large:
                    np.testing.assert_allclose(large[name], small[name], rtol=1e-4, atol=1e-4)
