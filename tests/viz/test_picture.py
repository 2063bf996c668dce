"""PNG and PDF of any view."""

import builtins
import struct

import pytest
from dpexec.viz.pages.picture import convert

from dpexec import viz
from tests.viz.graphs import mlp
from tests.viz.traces import straggling


@pytest.fixture
def cairo():
    try:
        import cairosvg  # noqa: F401
    except (ImportError, OSError) as error:
        pytest.skip(f"no Cairo: {error}; pip install 'dpexec[viz]', apt-get install libcairo2")


def views():
    return {"graph": viz.draw(mlp(2).data()), "timeline": viz.timeline(straggling())}


@pytest.mark.parametrize("name", views())
def test_pictures_of_views(cairo, tmp_path, name):
    view = views()[name]
    png = view.save(tmp_path / "x.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png[16:24])
    assert width > 500 and height > 200
    assert view.save(tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")


def test_pixels_are_twice_the_size_of_the_drawing(cairo):
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20"/>'
    assert struct.unpack(">II", convert(svg, ".png")[16:24]) == (60, 40)


def test_without_cairo_it_says_what_to_install(monkeypatch, tmp_path):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name == "cairosvg":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(RuntimeError, match=r"dpexec\[viz\]"):
        viz.timeline(straggling()).save(tmp_path / "x.png")
