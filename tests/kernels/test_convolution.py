"""Convolution with and without oneDNN, and images that lie with their channels last."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="kernels in machine code need numba")

from dpexec.kernels import onednn
from tests.kernels.test_lowerings import TOLERANCE, calls, run_code


@pytest.mark.parametrize("type", ["conv2d", "conv2d_grad"])
def test_convolution_without_onednn(type, monkeypatch):
    monkeypatch.setattr(onednn, "available", lambda: False)
    taken = 0
    for op, before, after in calls("conv2d"):
        found = run_code(op, before, after) if op.type == type else None
        if found is None:
            continue
        taken += 1
        for name, value in found.items():
            np.testing.assert_allclose(value, after[name], err_msg=f"{name} of {op}", **TOLERANCE)
    assert taken >= 4  # all samples but those with groups
