"""Sparse gradients on simulated GPUs: the numbers of CPUs, without waits of the host."""

import numpy as np
import pytest

from dpexec.engine.core.lod import Lod
from dpexec.engine.core.runs import add_at
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ops._rows import without
from dpexec.engine.ops._sequences import sequence_sums
from dpexec.engine.ops.clip import clip
from tests.fakes.cupy import make_cupy

ROWS = np.array([4, 1, 4, 2, 4, 1])
HEIGHT = 6


def both(cupy, rows=ROWS, dtype="float32"):
    """A sparse gradient on the host and one on a GPU, of which nothing was looked at."""
    value = np.random.default_rng(0).standard_normal((len(rows), 3)).astype(dtype)
    on_gpu = SelectedRows(cupy.asarray(rows), HEIGHT, cupy.asarray(value))
    cupy.machine.reads.clear()
    return SelectedRows(rows, HEIGHT, value), on_gpu


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_sums_of_rows_need_no_wait(dtype):
    cupy = make_cupy(1)
    gradient, on_gpu = both(cupy, dtype=dtype)
    dense, merged, (rows, totals) = on_gpu.to_dense(cupy), on_gpu.merged(cupy), on_gpu.totals(cupy)
    assert cupy.machine.reads == []
    expected, tolerance = gradient.to_dense(), 2e-3 if dtype == "float16" else 0
    np.testing.assert_allclose(dense.get(), expected, tolerance)
    assert merged.row_array.get().tolist() == rows.get().tolist() == sorted(ROWS)
    np.testing.assert_allclose(totals.get(), expected[np.sort(ROWS)], tolerance)
    for row in range(HEIGHT):  # the sum once, whatever is there besides is 0
        mine = merged.value.get()[rows.get() == row]
        np.testing.assert_allclose(mine[:1], expected[row][None][: len(mine)], tolerance)
        assert not mine[1:].any()


@pytest.mark.parametrize("layout", ["C", "F"])
def test_rows_are_added_to_a_matrix_in_any_layout(layout):
    cupy = make_cupy(1)
    gradient, on_gpu = both(cupy)
    start = np.asarray(np.random.default_rng(1).standard_normal((HEIGHT, 3)), "f", order=layout)
    for factor in (None, np.float32([-0.3])):
        expected, found = start.copy(layout), cupy.ndarray(start.copy(layout))
        gradient.add_to(np, expected, factor)
        on_gpu.add_to(cupy, found, None if factor is None else cupy.asarray(factor))
        np.testing.assert_array_equal(found.get(), expected)


@pytest.mark.parametrize("rows", [ROWS, np.array([1, 1]), np.array([2]), np.zeros(0, np.int64)])
def test_a_row_is_left_out_by_zeros_for_another_one(rows):
    cupy = make_cupy(1)
    gradient, on_gpu = both(cupy, rows)
    kept, value = without(cupy, on_gpu.row_array, on_gpu.value, 1)
    assert cupy.machine.reads == [] and len(kept) == len(rows)
    expected = SelectedRows(*without(np, rows, gradient.value, 1)[:1], HEIGHT)
    if expected.row_array.size:
        assert set(kept.get().tolist()) == set(expected.rows())
    left = SelectedRows(kept.get(), HEIGHT, value.get()).to_dense()
    wanted = gradient.to_dense()
    wanted[1] = 0
    np.testing.assert_array_equal(left, wanted)


def test_clipped_rows_are_clipped_once():
    cupy = make_cupy(1)
    gradient, on_gpu = both(cupy)
    found = clip.kernel(cupy, on_gpu, min=0.25, max=0.5)
    assert cupy.machine.reads == []
    made = SelectedRows(found.row_array.get(), HEIGHT, found.value.get())
    expected = clip.kernel(np, gradient, min=0.25, max=0.5)
    np.testing.assert_array_equal(made.to_dense(), expected.to_dense())


def test_sums_of_sequences_are_exact_behind_large_numbers():
    cupy, lod = make_cupy(1), Lod([[0, 2, 2, 4]])
    x = np.array([[1e8], [1.0], [0.125], [0.25]], "f")
    found = sequence_sums(cupy, cupy.asarray(x), lod).get()
    np.testing.assert_array_equal(found, [[1e8], [0], [0.375]])


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64"])
def test_what_comes_again_is_added_in_order(dtype):
    cupy, rng = make_cupy(1), np.random.default_rng(0)
    places = rng.integers(0, 4, (5, 3))
    value = (8 * rng.standard_normal((5, 3, 2))).astype(dtype)
    start = np.arange(12).reshape(6, 2).astype(dtype)
    expected, found = start.copy(), cupy.asarray(start)
    add_at(np, expected, places, value)
    add_at(cupy, found, cupy.asarray(places), cupy.asarray(value))
    assert cupy.machine.reads == cupy.machine.unordered == []
    np.testing.assert_allclose(found.get(), expected, 1e-2 if dtype == "float16" else 1e-6)


def test_rows_that_there_are_not_get_nothing():
    """Numbers of rows are looked at when kernels are enqueued that have them, too."""
    cupy = make_cupy(1)
    memory = cupy.zeros((6, 2), np.float32)
    places = cupy.asarray(np.array([-1, 0, 2, 1, 2**40]))
    add_at(cupy, memory[2:4], places, cupy.ones((5, 2), np.float32))
    np.testing.assert_array_equal(memory.get(), np.repeat([0, 0, 1, 1, 0, 0], 2).reshape(6, 2))


@pytest.mark.parametrize("width", [1, 3, 400])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_are_added_up_from_the_first_row_on(dtype, width):
    """As in Paddle and in machine code. The order of ``np.add.reduceat`` depends on the shape."""
    cupy, rng = make_cupy(1), np.random.default_rng(0)
    rows = rng.integers(0, 3, 60)
    value = rng.standard_normal((60, width)).astype(dtype)
    expected = np.zeros((3, width), dtype)
    for row, part in zip(rows, value, strict=True):
        expected[row] += part
    sparse = SelectedRows(rows, 3, value)
    on_gpu = SelectedRows(cupy.asarray(rows), 3, cupy.asarray(value))
    np.testing.assert_array_equal(sparse.merged().value, expected)
    np.testing.assert_array_equal(on_gpu.to_dense(cupy).get(), expected)
    order = np.argsort(rows, kind="stable")
    lod = Lod([[0, *np.cumsum(np.bincount(rows)).tolist()]])
    for xp in (np, cupy):
        found = sequence_sums(xp, xp.asarray(value[order]), lod)
        np.testing.assert_array_equal(found if xp is np else found.get(), expected)


def test_rows_times_a_factor_are_added_one_after_another():
    """As sparse SGD does it in Paddle and in machine code."""
    cupy, rng = make_cupy(1), np.random.default_rng(0)
    rows, factor = rng.integers(0, 3, 60), np.float32([-0.3])
    value = rng.standard_normal((60, 5)).astype("f")
    start = rng.standard_normal((3, 5)).astype("f")
    expected, on_host, on_gpu = start.copy(), start.copy(), cupy.asarray(start)
    for row, part in zip(rows, value, strict=True):
        expected[row] -= np.float32(0.3) * part
    SelectedRows(rows, 3, value).add_to(np, on_host, factor)
    sparse = SelectedRows(cupy.asarray(rows), 3, cupy.asarray(value))
    sparse.add_to(cupy, on_gpu, cupy.asarray(factor))
    np.testing.assert_array_equal(on_host, expected)
    np.testing.assert_array_equal(on_gpu.get(), expected)
