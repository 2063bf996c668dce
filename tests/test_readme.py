"""The README's program runs, and its picture is the graph of that program.

``python tests/test_readme.py`` draws the picture anew.
"""

import re

import pytest

import dpexec as fluid
from dpexec import viz
from tests.guides import ROOT, programs

README = (ROOT / "README.md").read_text(encoding="utf-8")


def run_program():
    """Run the README's program and return its variables."""
    (program,) = programs("README.md")
    names = {}
    fresh = fluid.program_guard(fluid.Program(), fluid.Program())
    with fresh, fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        exec(compile(program, "README.md", "exec"), names)
    return names


def picture():
    (name,) = re.findall(r"!\[.*?\]\((.*?\.svg)\)", README)
    return ROOT / name


@pytest.fixture(scope="module")
def names():
    return run_program()


def test_program_learns(names, capsys):
    assert names["step"] == 19
    assert names["losses"].shape == (2,)
    assert names["losses"].mean() < 1.0  # ln 10 = 2.3 at the beginning


def test_picture_shows_the_graph_of_the_program(names):
    assert viz.draw(names["replicas"].graph).svg == picture().read_text(encoding="utf-8")


if __name__ == "__main__":
    viz.draw(run_program()["replicas"].graph).save(picture())
