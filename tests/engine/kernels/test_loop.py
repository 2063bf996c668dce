"""Kernels called in loops get the arguments of each step."""

import numpy as np
import pytest

pytest.importorskip("numba")

from dpexec.engine.kernels.calls import run_call
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.loop import Loop, place, unknowns
from dpexec.engine.kernels.machine import Count, Floats, kernel


@kernel
def _fill(rows: Count, width: Count, value: Count, out: Floats) -> int:
    """Fill rows of an array with a number; refuse negative counts."""
    for i in range(rows * width):
        out[i] = value
    return 1 if rows < 0 else 0


def filling(width):
    """Fills the rows of each step with a number that is its own, then its second column with 9."""
    (out, base), (counts, starts) = unknowns(2, 2)
    calls = [
        (_fill, (counts, width, base + 10 * starts + counts, place(out, starts, width))),
        (_fill, (1, 1, 9, place(out, starts, width, column=1))),
    ]
    return Loop(calls, 2)


def test_arguments_follow_steps():
    out = np.zeros((6, 3), np.float32)
    loop, counts, starts = filling(3), np.array([3, 2, 1]), np.array([0, 3, 5])
    for base in (100, 200):
        loop.run((address(out), base), (counts, starts))
        expected = [base + 3] * 3 + [base + 32] * 2 + [base + 51]
        assert out[:, 0].tolist() == out[:, 2].tolist() == expected
        assert out[:, 1].tolist() == [9, *expected[1:3], 9, expected[4], 9]


def test_the_first_step_leaves_out_calls():
    out = np.zeros((3, 2), np.float32)
    filling(2).run((address(out), 0), (np.array([2, 1]), np.array([0, 2])), left_out=1)
    assert out.tolist() == [[0, 9], [0, 0], [21, 9]]


def test_steps_may_go_backwards():
    out = np.zeros((3, 2), np.float32)
    counts, starts = np.array([2, 1]), np.array([0, 2])
    filling(2).run((address(out), 0), (counts, starts), backwards=True)
    assert out.tolist() == [[2, 9], [2, 2], [21, 9]]


def test_a_kernel_that_refuses_stops_it():
    out = np.zeros((2, 2), np.float32)
    with pytest.raises(RuntimeError, match="operator on sequences"):
        filling(2).run((address(out), 0), (np.array([-1, 1]), np.array([0, 1])))
    assert not out.any()
    with pytest.raises(RuntimeError, match="operator on sequences"):
        run_call((_fill, (-1, 1, 0, address(out))))
