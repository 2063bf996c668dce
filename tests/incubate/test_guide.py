"""The scripts of docs/fleet.md, each with one trainer."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import dpexec as fluid
from dpexec.cli import main
from tests.guides import programs

SCRIPTS = programs("docs/fleet.md")


@pytest.fixture
def script(tmp_path):
    def write(code):
        path = tmp_path / "train.py"
        path.write_text(code, encoding="utf-8")
        return path

    return write


def test_a_trainer_and_a_server_run_the_first_script(script):
    path = script(SCRIPTS[0])
    options = "--trainers", "1", "--servers", "1"
    done = subprocess.run(
        [sys.executable, "-m", "dpexec", "run", path.name, *options],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=path.parent,
        env={**os.environ, "FLAGS_rpc_deadline": "60000"},
    )
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"\[0\] loss (\S+)", done.stdout)[1]) < 0.01
    state = fluid.load_program_state(str(path.parent / "model"))
    np.testing.assert_allclose(state["fc_0.w_0"], np.ones((4, 1)), atol=0.2)


def test_a_trainer_runs_the_second_script(script, monkeypatch, capsys):
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:6170")
    monkeypatch.setenv("CPU_NUM", "2")
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        assert main(["run", str(script(SCRIPTS[1]))]) == 0
    assert float(re.search(r"loss (\S+)", capsys.readouterr().out)[1]) < 0.01
