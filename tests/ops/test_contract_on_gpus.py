"""Every kernel with CuPy's interface: it gives what it gives with NumPy.

The GPU does not exist (tests/fakes); tests/gpu runs the same comparison on real ones.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import dpexec
from dpexec.core.copies import with_arrays
from dpexec.core.lod import Lod
from dpexec.core.ranges import looking_later
from dpexec.core.tensors import SelectedRows
from dpexec.ops._sequences import sequence_maxima
from tests.fakes.arrays import NAMES
from tests.fakes.cupy import install
from tests.ops.calls import SampleCall, parts, samples
from tests.ops.test_contract import TYPES, differentiable

CALLED = re.compile(r"\bxp\.(\w+)")
_WAITING = """
affine_grid auc average_accumulates bce_loss bicubic_interp bilinear_interp concat crop
crop_tensor dgc dgc_clip_by_norm dgc_momentum dropout elementwise_floordiv elementwise_mod expand
fill_constant gather_tree gaussian_random hierarchical_sigmoid linspace mean_iou nearest_interp
one_hot one_hot_v2 pad2d randint random_crop range reduce_prod reshape reshape2 sequence_erase
sequence_mask shard_index similarity_focus slice split strided_slice top_k uniform_random unique
unique_with_counts unsqueeze unsqueeze2 warpctc where_index
"""
WAITING = frozenset(_WAITING.split())
"""Whose kernels make the host wait for some of their samples, most for shapes given as tensors."""


def off_gpu(cupy, value, what):
    """A value with copies of its arrays on the host; they must be on a GPU."""

    def copy(array):
        assert isinstance(array, cupy.ndarray), f"{what} is no array of the GPU, but {array!r}"
        return array.get()

    return with_arrays(value, copy)


def compared(type, cupy, rtol, choose=SampleCall.choose):
    """Run the samples of an operator, and its gradient, with NumPy and with CuPy.

    Args:
        type: of the operator.
        cupy: the module.
        rtol: how much results may differ.
        choose: gives the kernel for CuPy, of the operator's type and its own kernel.
    """
    for number, sample in enumerate(samples(type)):
        calls = [SampleCall(type, sample, np.float32) for _ in range(2)]
        calls[1].xp, calls[1].choose = cupy, choose
        calls[1].values = {n: with_arrays(v, cupy.asarray) for n, v in calls[1].values.items()}
        found, made = calls[0].forward(), calls[1].forward()
        _assert_same(found, made, cupy, rtol, f"sample {number} of {type}")
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
    assert bool(waits) == (type in WAITING), waits


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
