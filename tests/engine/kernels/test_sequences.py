"""Pooling of sequences in machine code, compared with NumPy."""

import numpy as np
import pytest

from dpexec.engine.core.lod import Lod
from dpexec.engine.ops import _sequences as on_arrays
from tests.engine.kernels.test_recurrent import ON_HOST, in_general, results
from tests.engine.ops.calls import samples

pytest.importorskip("numba")
from dpexec.engine.kernels import sequences


@pytest.mark.parametrize("shape", [(128,), (1,), (), (3, 5)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_sequences_give_the_same(shape, dtype):
    rng = np.random.default_rng(3)
    lod = Lod.of_lengths([[2, 3], [0, 7, 1, 40, 0]])
    x = rng.integers(-9, 9, (lod.rows, *shape)).astype(dtype)  # with equal ones, and exact sums
    np.testing.assert_array_equal(sequences.sums(np, x, lod), on_arrays.sequence_sums(np, x, lod))
    filled = lod.lengths > 0
    for found, expected in zip(
        sequences.maxima(np, x, lod), on_arrays.greatest_rows(np, x, lod), strict=True
    ):
        np.testing.assert_array_equal(found[filled], expected[filled])
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)


def test_rows_without_a_number_are_the_greatest():
    x = np.array([[1.0], [np.nan], [2.0], [np.nan]], "float32")
    values, rows = sequences.maxima(np, x, Lod([[0, 4, 4]]))
    assert np.isnan(values[0]) and rows.ravel().tolist() == [1, -1]


def test_rows_that_are_not_dense_give_the_same():
    x = np.arange(24, dtype="float32").reshape(4, 6)[:, ::2]
    lod = Lod([[0, 1, 4]])
    np.testing.assert_array_equal(sequences.sums(np, x, lod), on_arrays.sequence_sums(np, x, lod))


@pytest.mark.parametrize("type", ["sequence_pool", "sequence_expand", "sequence_expand_as"])
def test_samples_give_the_same(type):
    for sample in (sample for sample in samples(type) if sample.grad != ()):
        expected = results(type, sample, in_general)
        for name, value in results(type, sample, ON_HOST).items():
            if isinstance(value, np.ndarray):
                np.testing.assert_allclose(value, expected[name], rtol=2e-6, err_msg=name)
