"""The table of operators: every operator of dpexec and of Paddle has its row."""

import re
import subprocess
import sys

import pytest

from dpexec import ops as command
from dpexec.engine.ir import opdef
from dpexec.engine.ops._absent import ABSENT, here, paddle_types


def rows(text):
    """Name and columns of every operator."""
    lines = text.split("\n\n")[0].splitlines()[1:]
    return {line.split()[0]: line.split()[1:] for line in lines}


def test_list_of_types_has_no_doubles():
    types = command.tier1()
    assert len(types) == len(set(types)) == 175


def test_every_operator_has_a_row():
    table = rows(command.coverage())
    assert list(table) == sorted(opdef.registered())
    assert table["relu"][1] == "yes" and table["relu"][-1] == "yes"
    assert table["sgd"][1] == "none"


def test_the_table_tells_what_kernels_operators_have():
    pytest.importorskip("numba")
    table = rows(command.coverage())
    found = {type: table[type][0] for type in ("relu", "lstm", "conv2d", "yolo_box", "adam")}
    assert found == {
        "relu": "code", "lstm": "code+host", "conv2d": "code+gpu", "yolo_box": "-",
        "adam": "code+gpu",
    }  # fmt: skip


def test_the_types_of_paddle_are_sorted_and_come_once():
    types = paddle_types()
    assert types == sorted(set(types)) and len(types) == 675


def test_every_absent_operator_of_paddle_has_a_reason():
    absent = set(paddle_types()) - set(opdef.registered())
    assert absent == set(ABSENT), (
        "a line of dpexec/engine/ops/_absent.py for each, and for no other"
    )
    text = command.coverage()
    assert f"{len(here())} are here, {len(absent)} are not" in text
    for type, reason in ABSENT.items():
        assert re.search(rf"^  {type} +{re.escape(reason)}$", text, re.MULTILINE)


def test_missing_types_are_named():
    assert command.missing(["relu", "feed", "no_such_operator"]) == ["no_such_operator"]
    last = command.coverage().splitlines()[-1]
    absent = command.missing(command.tier1())
    assert last == "missing: " + (", ".join(absent) or "nothing")


def test_command_line_prints_the_table():
    command_line = [sys.executable, "-W", "error", "-m", "dpexec.ops", "coverage"]
    run = subprocess.run(command_line, capture_output=True, text=True, check=True)
    assert run.stdout.rstrip("\n") == command.coverage()
    assert run.stderr == ""


def test_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit):
        command.main(["cover"])
    assert "invalid choice: 'cover'" in capsys.readouterr().err
