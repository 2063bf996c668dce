"""Training and error messages under ``python -O``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.run import smoke

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def found():
    """Bits of the losses by net and way to run, computed without asserts."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-O", "-W", "error", "-m", "tests.engine.run.smoke"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", smoke.NETS)
def test_training_needs_no_asserts(found, name):
    expected = smoke.bits(name)
    assert found[name] == dict.fromkeys(found[name], expected)


def test_wrong_calls_are_told_without_asserts():
    code = """
import dpexec as fluid
x = fluid.data("x", [None, 3])
for wrong in (
    lambda: fluid.layers.reshape(x, [-1, -1]),
    lambda: fluid.optimizer.SGD(0.1).minimize(x),
    lambda: fluid.layers.batch_norm(x, bias_attr=False),
):
    try:
        wrong()
    except AssertionError as error:
        print(str(error) != "")
"""
    command = [sys.executable, "-O", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == ["True"] * 3, done.stderr
