"""Loss curves in terminals and as PNG."""

import sys

import numpy as np

from dpexec.examples import curve


def test_terminal_curve_falls_from_top_left():
    lines = curve.terminal(list(np.linspace(2.0, 0.5, 300)), width=30, height=5).splitlines()
    assert len(lines) == 5
    assert lines[0].startswith(" 1.98 █")
    assert lines[-1].startswith("0.523 ")
    assert lines[0].count("█") < lines[2].count("█") < lines[-1].count("█")


def test_terminal_curve_of_one_step_and_of_equal_losses():
    assert len(curve.terminal([1.5], height=3).splitlines()) == 3
    assert "█" not in curve.terminal([2.0, 2.0])


def test_png(tmp_path):
    path = tmp_path / "loss.png"
    assert curve.png([3.0, 2.0, 1.0], "a net", path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_png_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert not curve.png([1.0], "a net", tmp_path / "loss.png")
    assert list(tmp_path.iterdir()) == []
