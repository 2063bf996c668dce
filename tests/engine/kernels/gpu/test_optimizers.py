"""Update kernels, compiled as C++, compared with the operators."""

import numpy as np
import pytest

from dpexec.engine.core.copies import with_arrays
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.kernels.gpu.generated.optimizers import update_of
from dpexec.engine.kernels.implementations import kernel_of
from dpexec.engine.kernels.optimizers import UPDATES
from tests.engine.ops.calls import SampleCall, samples
from tests.fakes.cupy import make_cupy

FUSED = ["fused_adam", "fused_momentum", "fused_sgd"]
WHOLE = ["lamb", "lars_momentum"]  # these need norms of whole parameters


def arguments(call):
    """The inputs of an operator by slot, and its attributes."""
    found = []
    for slot in call.definition.inputs:
        values = [call.values[name] for name in call.op.inputs.get(slot.name, [])]
        found.append(values if slot.many else values[0] if values else None)
    return found, call.definition.kernel_attrs(call.op.attrs)


def is_sparse(value):
    return isinstance(value, SelectedRows)


@pytest.mark.parametrize("type", ["sgd", "adam", *UPDATES, *FUSED])
def test_one_launch_does_what_the_operator_does(type):
    cupy, launched = make_cupy(1), 0
    for sample in samples(type):
        calls = [SampleCall(type, sample, np.float32) for _ in range(2)]
        calls[1].values = {n: with_arrays(v, cupy.asarray) for n, v in calls[1].values.items()}
        (expected, attrs), (found, _) = map(arguments, calls)
        kernel = calls[0].definition.kernel
        with np.errstate(all="ignore"):
            made = kernel(np, *expected, **attrs)
        cupy.machine.log.clear()
        results = kernel_of(type, kernel, "gpu")(cupy, *found, **attrs)
        names = {name for *_, name in cupy.machine.log if name.startswith("dp_")}
        launches = names - {"dp_add_runs"}
        launched += len(launches)
        assert launches or type in WHOLE or any(map(is_sparse, expected)) or sample.attrs
        for a, b in zip(flat(made), flat(results), strict=True):
            np.testing.assert_allclose(b.get(), a, 3e-6, 1e-7)
    assert bool(launched) == (type not in WHOLE)


@pytest.mark.parametrize("count", [3, 250])
def test_many_parameters_take_few_launches(count):
    cupy, rng = make_cupy(1), np.random.default_rng(0)
    sizes = rng.integers(0, 40, count)
    params, grads = ([rng.standard_normal(n, "f4") for n in sizes] for _ in range(2))
    lists = [[cupy.asarray(a) for a in arrays] for arrays in (params, grads)]
    rates = [cupy.asarray(np.float32([0.5]))] * count
    cupy.machine.log.clear()
    (made,) = update_of("fused_sgd")(cupy, lists[0], rates, lists[1])
    assert [name for *_, name in cupy.machine.log] == ["dp_sgd_gpu"] * (1 if count == 3 else 3)
    for found, before, param, grad in zip(made, lists[0], params, grads, strict=True):
        assert found is before
        np.testing.assert_allclose(found.get(), param - np.float32(0.5) * grad, 1e-6, 1e-7)


def flat(values):
    """All arrays, but for outputs that the operator does not have."""
    if is_sparse(values):
        return [values.row_array, values.value]
    values = values if isinstance(values, tuple) else (values,)
    lists = [value if isinstance(value, list) else [value] for value in values]
    return [array for arrays in lists for array in arrays if array is not None]
