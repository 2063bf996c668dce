"""``paddle.utils.plot.Ploter``."""

import sys
from types import SimpleNamespace

import pytest

from dpexec.commands.paddle_alias import paddle_is_dpexec
from dpexec.paddle.utils import Ploter


def test_scripts_find_it_by_both_names():
    with paddle_is_dpexec():
        from paddle.utils import Ploter as short
        from paddle.utils.plot import Ploter as long
    assert short is long is Ploter


def test_curves_with_points_are_drawn_into_a_file(tmp_path):
    pytest.importorskip("matplotlib")
    curves = Ploter("train cost", "test cost", "unused")
    for step in range(3):
        curves.append("train cost", step, 1.0 / (step + 1))
    curves.append("test cost", 2, 0.4)
    curves.plot(str(tmp_path / "curves.svg"))
    drawn = (tmp_path / "curves.svg").read_text()
    assert "train cost" in drawn and "test cost" in drawn and "unused" not in drawn
    curves.reset()
    curves.plot(str(tmp_path / "empty.svg"))
    assert "train cost" not in (tmp_path / "empty.svg").read_text()


def test_notebooks_show_the_picture_and_scripts_go_on(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    Ploter("cost").plot()
    shown = []
    screen = SimpleNamespace(clear_output=lambda wait: shown.clear(), display=shown.append)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=screen))
    curves = Ploter("cost")
    for step in range(2):
        curves.append("cost", step, 0.5)
        curves.plot()
    (figure,) = shown
    assert len(figure.axes[0].lines[0].get_xdata()) == 2


def test_unknown_curve_is_refused(monkeypatch):
    monkeypatch.setenv("DISABLE_PLOT", "True")
    with pytest.raises(AssertionError, match=r"'other'.*'cost'"):
        Ploter("cost").append("other", 0, 1.0)


def test_matplotlib_is_named_where_it_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="DISABLE_PLOT=True"):
        Ploter("cost")
    monkeypatch.setenv("DISABLE_PLOT", "True")
    Ploter("cost").plot(str(tmp_path / "none.png"))
    assert not list(tmp_path.iterdir())
