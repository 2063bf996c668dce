"""Unchanged scripts for the real Paddle print what it prints."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
RECORDED = json.loads((HERE / "fixtures" / "seeds.json").read_text(encoding="utf-8"))
# Every script on some number of devices, and one of them on all: a run costs a second or two.
RUNS = [
    ("parallel_executor", 2, []),
    ("parallel_executor", 4, ["--mode", "reduce"]),
    ("cpu_training", 1, []),
    ("cpu_training", 2, []),
    ("cpu_training", 4, ["--scheduler", "sync"]),
    ("execution_strategy", 2, []),
]


@pytest.mark.parametrize(("name", "devices", "options"), RUNS)
def test_script_prints_what_the_real_paddle_prints(name, devices, options):
    script = str(HERE / "seeds" / f"{name}.py")
    command = [sys.executable, "-m", "dpexec", "run", script, "--devices", str(devices)]
    environment = {key: value for key, value in os.environ.items() if key != "CPU_NUM"}
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [[float(number) for number in line.split()] for line in done.stdout.splitlines()]
    np.testing.assert_allclose(found, RECORDED[name][str(devices)], rtol=1e-5, atol=2e-6)
