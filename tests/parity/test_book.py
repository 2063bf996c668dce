"""Whole programs in the manner of Paddle's book and model zoo print what the real Paddle prints.

They run unchanged through ``dpexec run``. Recorded by tests/fixtures/record_book.py.
"""

import re
import sys
from pathlib import Path

import pytest

from dpexec import cli
from dpexec.engine.trace import profile

BOOK = Path(__file__).parents[1] / "fixtures" / "book"
FRACTION = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """A process and a folder of its own, as far as programs can tell."""
    monkeypatch.setenv("CPU_NUM", "2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr("sys.argv", [])
    yield
    profile.stop()  # one of them leaves its profiler on


@pytest.mark.usefixtures("alone")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("script", sorted(BOOK.glob("*.py")), ids=lambda path: path.stem)
def test_program_prints_what_the_real_paddle_prints(script, capsys):
    assert cli.main(["run", str(script)]) == 0
    found = capsys.readouterr().out.splitlines()
    wanted = script.with_suffix(".txt").read_text().splitlines()
    for number, (line, expected) in enumerate(zip(found, wanted, strict=True), 1):
        assert text_of(line) == text_of(expected), f"line {number}"
        for value, other in zip(FRACTION.findall(line), FRACTION.findall(expected), strict=True):
            last_digit = 10.0 ** -len(other.partition("e")[0].partition(".")[2])
            near = pytest.approx(float(other), rel=1e-5, abs=1.01 * last_digit)
            assert float(value) == near, f"line {number}: {line} instead of {expected}"


def text_of(line):
    """A line without its fractions and the width of its blanks."""
    return " ".join(FRACTION.sub("#", line).split())
