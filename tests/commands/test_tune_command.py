"""``dpexec tune`` runs a script up to a step and tunes it there."""

import json
import sys

import pytest
from dpexec.viz.tuning import search

from dpexec import cli

SCRIPT = """
import sys
import numpy as np
import paddle.fluid as fluid
x = fluid.data("x", [-1, 8])
loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 1)))
fluid.optimizer.SGD(0.1).minimize(loss)
executor = fluid.Executor(fluid.CPUPlace())
executor.run(fluid.default_startup_program())
{loader}
compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(loss.name)
try:
    for step in range(int(sys.argv[1])):
        print("step", step)
        executor.run(compiled, {feed}, fetch_list=[loss])
except Exception:
    print("a script that catches everything")
"""
LOADER = """
loader = fluid.io.DataLoader.from_generator([x], 4, iterable=False)
loader.set_batch_generator(lambda: ([np.ones((8, 8), "float32")] for _ in range(9)))
loader.start()
"""


@pytest.fixture(autouse=True)
def _own_arguments(monkeypatch):
    """Scripts change the arguments and the path of the process; trials are short."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(search, "_PAIRS_SECONDS", 0.0)


@pytest.fixture
def write(tmp_path):
    def written(feed='feed={"x": np.ones((8, 8), "float32")}', loader=""):
        path = tmp_path / "train.py"
        path.write_text(SCRIPT.format(feed=feed, loader=loader))
        return str(path)

    return written


def test_a_script_is_tuned_at_a_step(write, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CPU_NUM", "1")
    page = tmp_path / "tuned.html"
    given = [
        "tune",
        "--json",
        "--seconds",
        "2",
        "--step",
        "3",
        "--devices",
        "2",
        "--report",
        str(page),
    ]
    assert cli.main([*given, write(), "9"]) == 0
    *steps, figures = capsys.readouterr().out.splitlines()
    assert steps == ["step 0", "step 1", "step 2"]
    found = json.loads(figures)
    assert found["step"] > 0
    assert {"reduce_strategy"} in [one["setting"].keys() for one in found["tried"]]
    assert "Tuned · " in page.read_text(encoding="utf-8")


def test_the_batch_of_a_loader_is_taken(write, monkeypatch, capsys):
    monkeypatch.setenv("CPU_NUM", "1")
    script = write(feed="feed=None", loader=LOADER)
    assert cli.main(["tune", script, "9", "--seconds", "1"]) == 0
    assert "Tuned · " in capsys.readouterr().out


def test_a_script_that_ends_before_is_said_to(write, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CPU_NUM", "1")
    assert cli.main(["tune", write(), "1"]) == 1
    assert "the script ended before step 2 of a data-parallel" in capsys.readouterr().err
    assert cli.main(["tune", str(tmp_path / "none.py")]) == 2
    assert "there is no script" in capsys.readouterr().err
    assert cli.main(["tune", write(), "--report", "x.doc"]) == 2
    assert "choose one of" in capsys.readouterr().err
