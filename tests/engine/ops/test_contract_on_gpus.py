"""Every kernel through CuPy's interface gives what it gives through NumPy's.

The GPU does not exist (tests/fakes); tests/gpu runs the same comparison on real ones.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import dpexec
from dpexec.engine.core.copies import with_arrays
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.ranges import looking_later
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import opdef
from dpexec.engine.ops._sequences import sequence_maxima
from tests.engine.ops.calls import SampleCall, parts, samples
from tests.engine.ops.test_contract import TYPES, differentiable
from tests.fakes.arrays import NAMES
from tests.fakes.cupy import install

CALLED = re.compile(r"\bxp\.(\w+)")
_FOR_NUMBERS = """
affine_grid bicubic_interp bilinear_interp concat crop crop_tensor dropout expand fill_constant
gaussian_random linspace nearest_interp one_hot one_hot_v2 pad2d randint range reshape reshape2
sequence_mask slice split strided_slice top_k uniform_random unsqueeze unsqueeze2
"""
WAITING_FOR_NUMBERS = frozenset(_FOR_NUMBERS.split())
"""Whose kernels make the host wait for shapes and places that are given as tensors of the GPU."""

_FOR_VALUES = """
dgc dgc_clip_by_norm dgc_momentum random_crop sequence_erase sequence_mask similarity_focus
split_selected_rows unique unique_with_counts where_index
"""
WAITING_FOR_VALUES = frozenset(_FOR_VALUES.split())
"""Whose kernels make the host wait for values: most for how many results there are."""


def off_gpu(cupy, value, what):
    """A value with copies of its arrays on the host; they must be on a GPU."""

    def copy(array):
        assert isinstance(array, cupy.ndarray), f"{what} is no array of the GPU, but {array!r}"
        return array.get()

    return with_arrays(value, copy)


def compared(type, cupy, rtol, choose=SampleCall.choose, host_inputs=()):
    """Run the samples of an operator, and its gradient, with NumPy and with CuPy.

    Args:
        type: of the operator.
        cupy: the module.
        rtol: how much results may differ.
        choose: gives the kernel for CuPy, of the operator's type and its own kernel.
        host_inputs: slots whose values stay on the host.
    """
    for number, sample in enumerate(samples(type)):
        calls = [SampleCall(type, sample, np.float32) for _ in range(2)]
        calls[1].xp, calls[1].choose = cupy, choose
        on_host = [n for s, ns in calls[0].inputs.items() if s in host_inputs for n in ns]
        for name in calls[1].values.keys() - {*on_host}:
            calls[1].values[name] = with_arrays(calls[1].values[name], cupy.asarray)
        found, made = calls[0].forward(), calls[1].forward()
        overwritten = calls[0].definition.inplace.values()  # perhaps
        skipped = {*on_host, *(n for s in overwritten for n in calls[0].inputs.get(s, []))}
        compare = {name: value for name, value in found.items() if name not in skipped}
        _assert_same(compare, made, cupy, rtol, f"sample {number} of {type}")
        wanted = calls[0].wanted_inputs(sample) if differentiable(type) else []
        sources = calls[0].read_output_grads(wanted) if wanted else []
        if sources:
            rng = np.random.default_rng(number)
            weights = {n: rng.standard_normal(np.shape(found[n])).astype("f4") for n in sources}
            grads, _ = calls[0].backward(found, weights, wanted)
            on = {name: cupy.asarray(weight) for name, weight in weights.items()}
            made_grads, _ = calls[1].backward(made, on, wanted)
            _assert_same(grads, made_grads, cupy, rtol, f"gradient, sample {number} of {type}")


def dense(value):
    """Sparse gradients as matrices: on a GPU they keep rows that are there again."""
    return value.to_dense() if isinstance(value, SelectedRows) else value


def _assert_same(expected, found, cupy, rtol, what):
    for name, value in expected.items():
        label = f"{what}: {name}"
        made = dense(off_gpu(cupy, found[name], label))
        for a, b in zip(parts(dense(value)), parts(made), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype), label
            np.testing.assert_allclose(b, a, rtol, rtol, err_msg=label)


@pytest.mark.parametrize("type", [t for t in TYPES if samples(t)])
def test_kernel_needs_nothing_that_cupy_lacks(type, monkeypatch):
    cupy = install(monkeypatch, 1)
    with looking_later():
        compared(type, cupy, rtol=1e-6)
    waits = set(cupy.machine.reads) - {"get"}  # that is how results are compared
    assert bool(waits) == (type in WAITING_FOR_NUMBERS | WAITING_FOR_VALUES), waits
    assert not cupy.machine.unordered  # else equal runs would differ in their last bits


@pytest.mark.parametrize("type", sorted(WAITING_FOR_NUMBERS))
def test_numbers_of_the_host_need_no_wait(type, monkeypatch):
    cupy = install(monkeypatch, 1)
    with looking_later():
        compared(type, cupy, rtol=1e-6, host_inputs=opdef.get(type).host_inputs)
    assert (set(cupy.machine.reads) == {"get"}) == (type not in WAITING_FOR_VALUES)


def test_cupy_has_every_function_that_is_called_on_both():
    known = {*NAMES["ufuncs"], *NAMES["functions"], *NAMES["other"]}
    sources = Path(dpexec.__file__).parent.rglob("*.py")
    called = {name for path in sources for name in CALLED.findall(path.read_text("utf-8"))}
    assert len(called) > 50 and called <= known


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_greatest_rows_of_sequences_in_all_types(monkeypatch, dtype):
    cupy, lod = install(monkeypatch, 1), Lod([[0, 2, 2, 6]])
    x = np.random.default_rng(0).standard_normal((6, 3)).astype(dtype)
    found, expected = sequence_maxima(cupy, cupy.asarray(x), lod), sequence_maxima(np, x, lod)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.get(), expected)
