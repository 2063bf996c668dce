"""Generated kernels of elementwise operators, compiled as C++, compared with the operators."""

import numpy as np
import pytest

from dpexec.engine.core.copies import with_arrays
from dpexec.engine.ir import opdef
from dpexec.engine.kernels.gpu.generated.operators import ELEMENTWISE
from dpexec.engine.kernels.gpu.launch import ElementKernel
from dpexec.engine.kernels.implementations import kernel_of
from tests.engine.kernels.gpu.test_optimizers import arguments, flat
from tests.engine.ops.calls import SampleCall, samples
from tests.fakes.cupy import make_cupy

WITH_SAMPLES = sorted(type for type in ELEMENTWISE if samples(type))


def launched(cupy):
    found = [name for *_, name in cupy.machine.log if name.startswith("dp_")]
    cupy.machine.log.clear()
    return found


@pytest.mark.parametrize("type", WITH_SAMPLES)
def test_operator_and_gradient_are_one_launch_each(type):
    cupy = make_cupy(1)
    for sample in samples(type)[:2]:
        calls = [SampleCall(type, sample, np.float32) for _ in range(2)]
        calls[1].values = {n: with_arrays(v, cupy.asarray) for n, v in calls[1].values.items()}
        kernel = calls[0].definition.kernel
        (expected, attrs), (found, _) = map(arguments, calls)
        made = kernel(np, *expected, **attrs)
        launched(cupy)
        result = kernel_of(type, kernel, "gpu")(cupy, *found, **attrs)
        assert len(launched(cupy)) == 1
        assert result.shape == made.shape and result.dtype == made.dtype
        np.testing.assert_allclose(result.get(), made, 3e-6, 1e-6)
        _check_gradient(cupy, calls[0], sample)


def _check_gradient(cupy, call, sample):
    values = call.forward()
    wanted = call.wanted_inputs(sample)
    weights = {n: np.ones_like(values[n]) for n in call.read_output_grads(wanted)}
    (op,) = call.grad_ops(wanted)
    definition = opdef.get(op.type)
    named = {**values, **{f"{name}@GRAD": weight for name, weight in weights.items()}}
    inputs = [named[op.inputs[slot.name][0]] for slot in definition.inputs]
    attrs = definition.kernel_attrs(op.attrs)
    with np.errstate(all="ignore"):
        expected = definition.kernel(np, *inputs, **attrs)
    on = [cupy.asarray(value) for value in inputs]
    launched(cupy)
    found = kernel_of(op.type, definition.kernel, "gpu")(cupy, *on, **attrs)
    assert len(launched(cupy)) == 1
    np.testing.assert_allclose(found.get(), expected, 1e-5, 1e-6, err_msg=op.type)


def test_groups_are_few_launches():
    cupy, type = make_cupy(1), "fusion_group"
    for sample, most in zip(samples(type), (1, 2), strict=True):
        calls = [SampleCall(type, sample, np.float32) for _ in range(2)]
        calls[1].values = {n: with_arrays(v, cupy.asarray) for n, v in calls[1].values.items()}
        kernel = calls[0].definition.kernel
        (expected, attrs), (found, _) = map(arguments, calls)
        made = kernel(np, *expected, **attrs)
        launched(cupy)
        run = kernel_of(type, kernel, "gpu")
        for _ in range(2):
            results = run(cupy, *found, **attrs)
            assert 1 <= len(launched(cupy)) <= most
        for a, b in zip(flat(made), flat(results), strict=True):
            np.testing.assert_allclose(b.get(), a, 3e-6, 1e-6)


def test_other_types_and_empty_arrays_are_left_to_cupy():
    cupy, kernel = make_cupy(1), opdef.get("gelu").kernel
    run = kernel_of("gelu", kernel, "gpu")
    for x in (np.ones(3), np.ones((0, 2), np.float32)):
        found = run(cupy, cupy.asarray(x))
        assert not launched(cupy) or x.size == 0
        np.testing.assert_allclose(found.get(), kernel(np, x))


def test_kernels_of_many_arrays_and_lots():
    cupy, rng = make_cupy(1), np.random.default_rng(0)
    names = [f"a{k}" for k in range(12)]
    body = ["o[i] = c_ * (" + " + ".join(f"{name}[i]" for name in names) + ");"]
    kernel = ElementKernel("dp_many", names, ["o"], ["c_"], [], body)
    arrays = [[rng.standard_normal(n, "f4") for _ in names] for n in (5, 0, 700)]
    made = [cupy.empty(len(lot[0]), np.float32) for lot in arrays]
    given = [[*map(cupy.asarray, lot), out] for lot, out in zip(arrays, made, strict=True)]
    kernel(cupy, [(out.size, lot) for out, lot in zip(made, given, strict=True)], [2.0])
    for out, lot in zip(made, arrays, strict=True):
        np.testing.assert_allclose(out.get(), 2 * sum(lot), 1e-5, 1e-5)
    assert [name for *_, name in cupy.machine.log].count("dp_many") == 1
