"""Unmodified user scripts fetch what they fetch from the real Paddle 1.8.5.

Recorded by tests/fixtures/record_scripts.py. Together they hold what the parity programs do not:
sparse tables of several sizes, shared towers, several losses, two programs on one scope, views
and copies of parameters around their update, persistable sums, a scope that the script writes.
"""

from pathlib import Path

import numpy as np
import pytest

import dpexec
from dpexec.commands.paddle_alias import paddle_is_dpexec
from tests.fixtures import user_scripts


@pytest.mark.parametrize(("name", "mode", "devices"), user_scripts.configurations())
def test_script_fetches_the_recorded_values(name, mode, devices, monkeypatch):
    monkeypatch.setenv("MODE", mode)
    monkeypatch.setenv("CPU_NUM", str(devices))
    with paddle_is_dpexec():
        results = user_scripts.run(dpexec, name)
    with np.load(Path(user_scripts.SCRIPTS) / f"{name}.npz") as recorded:
        prefix = f"{mode}/{devices}/"
        assert len(results) == sum(key.startswith(prefix) for key in recorded.files)
        for number, value in enumerate(results):
            expected = recorded[f"{prefix}{number}"]
            assert value.shape == expected.shape
            assert value.dtype == expected.dtype
            atol = 1e-5 * np.abs(expected).max()
            np.testing.assert_allclose(value, expected, 1e-5, atol, err_msg=f"fetch {number}")
