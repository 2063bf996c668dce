"""Elementwise operators are as exact, in units in the last place, as they declare."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from dpexec.engine import kernels
from dpexec.engine.ir import opdef, roles
from dpexec.engine.ir.opdef import Sample
from tests.engine.ops import exact
from tests.engine.ops.calls import SampleCall, run, spec_of

LOST = np.longdouble(2) ** -116
"""Below it results may be 0: float32 numbers underflow on the way."""
TINY = np.finfo(np.float32).smallest_normal
POSITIVE = ("log", "log1p", "sqrt", "rsqrt")
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, 1.0, -1.0])
SETTINGS = {"gelu": [{}, {"approximate": True}]}


def numbers(kind, seed=0, count=1500):
    """Both signs, over 60 orders of magnitude, and more of those where functions bend."""
    rng = np.random.default_rng(seed)
    if kind == "probabilities":
        return np.concatenate([rng.uniform(0, 1, count), 10 ** rng.uniform(-6, -0.1, count)])
    if kind == "labels":
        return np.concatenate([rng.integers(0, 2, count), rng.uniform(0, 1, count)])
    sizes = np.concatenate([10 ** rng.uniform(-30, 30, count), 10 ** rng.uniform(-7, 2.2, count)])
    return sizes * rng.choice([1, 1 if kind == "positive" else -1], 2 * count)


def results(op, values, after, dtype):
    """What the kernel gave, and what machine code gives where the operator has a lowering."""
    yield "NumPy", after
    if dtype == np.float32 and kernels.available():
        from tests.engine.kernels.test_lowerings import run_code

        found = run_code([op], values, after)
        if found is not None:
            yield "machine code", found


def gradient(call, values, name):
    """The operator of the gradient of an input, with its inputs and results."""
    (out,) = (names[0] for slot, names in call.outputs.items() if slot in ("Out", "Y", "Loss"))
    grad = np.random.default_rng(3).normal(size=values[out].shape).astype(values[out].dtype)
    values = {**values, roles.grad_name(out): grad}
    call._declare(roles.grad_name(out), spec_of(grad))
    (made,) = call.grad_ops([name])
    sides = [{k: v for k, v in side.items() if any(v)} for side in (made.inputs, made.outputs)]
    call.block.create_var(name=roles.grad_name(name))
    op = call.block.append_op(made.type, *sides, dict(made.attrs))
    after = dict(values)
    run(op, after)
    return op, values, after, grad


def attributes(op, formula, dtype):
    """Attributes that a formula takes, as exact as kernels know them."""
    names = set(inspect.signature(formula).parameters)
    found = {name.replace("lambda", "lambda_"): op.attr(name) for name in op.definition.attrs}
    exactly = {k: np.longdouble(dtype(v)) if type(v) is float else v for k, v in found.items()}
    return {name: value for name, value in exactly.items() if name in names}


def compare(op, found, formula, operands, dtype, what):
    limits, more = np.finfo(dtype), attributes(op, formula, dtype)
    with np.errstate(all="ignore"):
        expected = formula(*(np.asarray(o, np.longdouble) for o in operands), **more)
        expected, most = expected if isinstance(expected, tuple) else (expected, 0)
        size = np.minimum(np.maximum(np.abs(expected), most), limits.max)
        error = np.abs(np.asarray(found, np.longdouble) - expected)
        error = np.where(np.abs(expected) >= limits.max, np.isfinite(found), error)
        known = ~np.isnan(expected)
        wrong = known & ~(
            error <= np.maximum(op.definition.ulps * np.spacing(size.astype(dtype)), LOST)
        )
    assert known.mean() > 0.5
    if wrong.any():
        at = np.argmax(wrong)
        shown = ", ".join(f"{np.ravel(o)[at]!r}" for o in operands)
        pytest.fail(
            f"{what} of {op.type}: {wrong.sum()} of {wrong.size} are further away than "
            f"{op.definition.ulps} ulp: of {shown} {found[at]!r} instead of {expected[at]!r}"
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("type", exact.UNARY)
def test_functions_of_one_operand(type, dtype):
    forward, backward = exact.UNARY[type]
    x = numbers("positive" if type in POSITIVE else "any").astype(dtype)
    for setting in SETTINGS.get(type, [{}]):
        call = SampleCall(type, Sample({"X": x}, setting), dtype)
        after = call.forward()
        for way, found in results(call.op, call.values, after, dtype):
            compare(call.op, found["out_Out_0"], forward, [x], dtype, way)
        op, values, after, dy = gradient(call, after, "X_0")
        (read,) = (names[0] for slot, names in op.inputs.items() if slot in ("X", "Out"))
        for way, found in results(op, values, after, dtype):
            compare(op, found["X_0@GRAD"], backward, [values[read], dy], dtype, way)


def operands(type):
    """Values of both operands of an operator."""
    if type.startswith("elementwise"):
        return numbers("any"), numbers("any", 1)
    kinds = {"log_loss": "probabilities", "bce_loss": "probabilities"}
    x = numbers(kinds.get(type, "any"))
    if type == "huber_loss":
        return x, numbers("any", 1)
    return x, numbers("labels", 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("type", exact.OPERANDS)
def test_functions_of_two_operands(type, dtype):
    slots, attrs, formula = exact.OPERANDS[type]
    x, y = (array.astype(dtype).reshape(-1, 1) for array in operands(type))
    inputs = dict(zip(slots, (x, y), strict=True))
    if type == "rank_loss":
        inputs["Right"] = np.zeros_like(x)
    call = SampleCall(type, Sample(inputs, attrs), dtype)
    after = call.forward()
    (out,) = (n[0] for slot, n in call.outputs.items() if slot in ("Out", "Y", "Loss"))
    for way, found in results(call.op, call.values, after, dtype):
        compare(call.op, found[out], formula, [x, y], dtype, way)
    if type in exact.GRADIENTS:
        op, values, after, dy = gradient(call, after, f"{slots[0]}_0")
        for way, found in results(op, values, after, dtype):
            result = found[f"{slots[0]}_0@GRAD"]
            compare(op, result, exact.GRADIENTS[type], [x, y, dy], dtype, way)


def limits(type):
    """What an operator and its gradient make of what is no ordinary number."""
    two = type.startswith("elementwise")
    x = np.repeat(SPECIAL, len(SPECIAL)) if two else SPECIAL
    inputs = {"X": x, "Y": np.tile(SPECIAL, len(SPECIAL))} if two else {"X": x}
    call = SampleCall(type, Sample(inputs), np.float32)
    after = call.forward()
    yield call.op, call.values, after, "out_Out_0"
    if not two:
        yield *gradient(call, after, "X_0")[:3], "X_0@GRAD"


@pytest.mark.parametrize("type", [*exact.UNARY, *(t for t in exact.OPERANDS if "wise" in t)])
def test_code_has_the_limits_of_numpy(type):
    """Infinities, and what is no number; denormal ones count as 0 in code."""
    for op, values, after, name in limits(type):
        expected = after[name]
        flushed = {n: np.where(np.abs(v) < TINY, np.copysign(0, v), v) for n, v in values.items()}
        run(op, flushed)
        for _, found in results(op, values, after, np.float32):
            same = like(found[name], expected) | like(found[name], flushed[name])
            assert same.all(), f"{op}: {found[name]} instead of {expected}"


def like(found, expected):
    with np.errstate(all="ignore"):
        near = np.abs(found - expected) <= 1e-5 * np.abs(expected) + 1e-36
    return near | (found == expected) | (np.isnan(found) & np.isnan(expected))


def test_every_promise_is_kept_here():
    promised = {
        type for type, definition in opdef.registered().items() if definition.ulps is not None
    }
    compared = {*exact.UNARY, *(f"{type}_grad" for type in exact.UNARY), *exact.OPERANDS}
    assert promised == compared | {f"{type}_grad" for type in exact.GRADIENTS}
