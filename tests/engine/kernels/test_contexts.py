"""``sequence_conv``'s contexts and their gradient in machine code have NumPy's bits."""

import numpy as np
import pytest

from dpexec.engine.core.lod import Lod
from dpexec.engine.ops import _contexts as on_arrays
from tests.engine.kernels.test_recurrent import ON_HOST, in_general, results
from tests.engine.ops.calls import samples

pytest.importorskip("numba")
from dpexec.engine.kernels.contexts import CONTEXTS


@pytest.mark.parametrize(("start", "length"), [(-1, 3), (0, 1), (-5, 2), (2, 3), (-9, 20)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_bits_as_on_arrays(start, length, dtype):
    rng = np.random.default_rng(3)
    lod = Lod.of_lengths([[2, 3], [0, 7, 1, 12, 0]])
    x = rng.normal(size=(lod.rows, 5)).astype(dtype)
    found = CONTEXTS.of_rows(np, x, lod, start, length)
    np.testing.assert_array_equal(found, on_arrays.contexts(np, x, lod, start, length))
    d_contexts = rng.normal(size=found.shape).astype(dtype)
    d_x = CONTEXTS.gradient(np, d_contexts.copy(), lod, start)
    np.testing.assert_array_equal(d_x, on_arrays.contexts_grad(np, d_contexts, lod, start))
    assert found.dtype == d_x.dtype == dtype


def test_rows_that_are_not_dense_give_the_same():
    x = np.arange(24, dtype="float32").reshape(4, 6)[:, ::2]
    lod = Lod([[0, 1, 4]])
    expected = on_arrays.contexts(np, x, lod, -1, 3)
    np.testing.assert_array_equal(CONTEXTS.of_rows(np, x, lod, -1, 3), expected)


def test_samples_give_the_same():
    for sample in samples("sequence_conv"):
        expected = results("sequence_conv", sample, in_general)
        for name, value in results("sequence_conv", sample, ON_HOST).items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
