"""The command line: arguments, messages, exit codes."""

import io
import json
import os
import subprocess
import sys

import pytest

from dpexec import cli
from dpexec.commands import run
from dpexec.engine import kernels
from dpexec.engine.core.version import __version__
from dpexec.engine.kernels.gpu import convolutions
from tests.fakes.cudnn import Cudnn
from tests.fakes.cupy import install

SCRIPT = """
import os, sys
import paddle.fluid as fluid
from paddle.fluid import core
print(sys.argv[1:], __name__, os.environ.get("CPU_NUM"), core.__name__)
strategy = fluid.BuildStrategy()
print(strategy.reduce_strategy, fluid.ExecutionStrategy().scheduler)
import beside_the_script
"""


def run_cli(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "dpexec", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


def exit_code(*arguments):
    with pytest.raises(SystemExit) as info:
        cli.main(arguments)
    return info.value.code


@pytest.mark.parametrize("command", [[], ["demo"], ["run"], ["viz"], ["info"]])
def test_help_has_examples(command, capsys):
    assert exit_code(*command, "--help") == 0
    text = capsys.readouterr().out
    assert "examples:\n  dpexec " in text


def test_version(capsys):
    assert exit_code("--version") == 0
    assert capsys.readouterr().out == f"dpexec {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "COMMAND"),
        (["train"], "invalid choice: 'train'"),
        (["demo", "mnist"], "invalid choice: 'mnist'"),
        (["demo", "--devices", "0"], "'0' is not a number of at least 1"),
        (["demo", "--mode", "ring"], "invalid choice: 'ring'"),
        (["run"], "required: SCRIPT"),
        (["run", "x.py", "--devices"], "expected one argument"),
        (["run", "--fast", "x.py"], "unrecognized arguments: --fast"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(arguments, complaint, capsys):
    assert exit_code(*arguments) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
    assert error.startswith("dpexec")


def test_run_of_a_missing_script_is_one_line_and_code_2(capsys):
    assert cli.main(["run", "nowhere.py"]) == 2
    assert capsys.readouterr().err == "dpexec run: there is no script nowhere.py\n"


@pytest.mark.parametrize(
    ("given", "own", "script"),
    [
        ("s.py a --lr 0.1 --devices 4 b", "s.py --devices 4", "a --lr 0.1 b"),
        ("--mode=reduce s.py --x", "--mode=reduce s.py", "--x"),
        ("s.py --scheduler sync -- --devices mine", "s.py --scheduler sync", "--devices mine"),
        ("s.py --devicesx 3", "s.py", "--devicesx 3"),
    ],
)
def test_run_keeps_the_scripts_arguments_in_order(given, own, script):
    assert run.separate(given.split(), run.OURS) == (own.split(), script.split())


def test_run_answers_paddle_and_sets_defaults(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "beside_the_script.py").write_text("print('found')")
    options = ("--devices", "3", "--mode", "reduce", "--scheduler", "sync")
    done = run_cli("run", str(tmp_path / "train.py"), "--lr", "0.1", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "['--lr', '0.1'] __main__ 3 dpexec.core",
        "ReduceStrategy.Reduce sync",
        "found",
    ]


def test_run_shows_only_the_scripts_traceback(tmp_path):
    (tmp_path / "train.py").write_text("def work():\n    raise KeyError('lost')\nwork()\n")
    done = run_cli("run", "train.py", cwd=tmp_path)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith('  File "train.py", line 3')
    assert lines[-1] == "KeyError: 'lost'"


def test_run_passes_the_scripts_exit_code_on(tmp_path):
    (tmp_path / "train.py").write_text("import sys; sys.exit(7)")
    assert run_cli("run", "train.py", cwd=tmp_path).returncode == 7


@pytest.mark.parametrize(
    "arguments",
    [
        ["dpexec", "info"],
        ["dpexec", "demo", "fit_a_line", "--epochs", "1"],
        ["dpexec.ops", "coverage"],
    ],
)
def test_whoever_reads_may_have_read_enough(arguments, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_without_a_letter_gets_the_rest(monkeypatch):
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(cli, "_info", lambda options: print("1 µs · 2 devices") or 0)
    assert cli.main(["info"]) == 0
    assert shown.buffer.getvalue() == b"1 ?s ? 2 devices\n"


def test_an_interrupted_command_ends_without_a_traceback(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "collect_info", interrupted)
    assert exit_code("info") == 130


def test_info_json(monkeypatch, capsys):
    monkeypatch.setenv("CPU_NUM", "5")
    assert cli.main(["info", "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert info["cpu_devices"] == 5
    assert info["versions"]["dpexec"] == __version__
    assert info["cpus"] >= 1
    assert any(library["num_threads"] >= 1 for library in info["kernel_libraries"])
    assert info["machine_code"] == kernels.libraries()


def test_info_text(monkeypatch, capsys):
    monkeypatch.delenv("CPU_NUM", raising=False)
    assert cli.main(["info"]) == 0
    text = capsys.readouterr().out
    assert "CPU_NUM       not set" in text
    assert f"dpexec {__version__}" in text


def test_info_says_what_gpus_are_used_with(monkeypatch, capsys):
    cupy = install(monkeypatch, 1)
    assert cli.main(["info"]) == 0
    text = capsys.readouterr().out
    assert "on GPUs       convolutions: products of matrices\n" in text
    assert "on GPUs       biases of products: launches of their own\n" in text
    assert "on GPUs       sums: peer copies\n" in text
    cupy.cuda.nccl.available = True
    monkeypatch.setattr(convolutions, "library", lambda: Cudnn(cupy.machine))
    assert cli.main(["info"]) == 0
    text = capsys.readouterr().out
    assert "convolutions: cuDNN 92000\n" in text and "sums: NCCL 23000\n" in text


@pytest.mark.parametrize(
    ("libraries", "shown"),
    [
        ({}, "none, operators run on NumPy"),
        ({"numba": "0.61", "oneDNN": "3.2"}, "numba 0.61, oneDNN 3.2"),
    ],
)
def test_info_says_what_makes_machine_code(libraries, shown, monkeypatch, capsys):
    monkeypatch.setattr(kernels, "libraries", lambda: libraries)
    assert cli.main(["info"]) == 0
    assert f"machine code  {shown}\n" in capsys.readouterr().out
