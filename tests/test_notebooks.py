"""Every notebook runs from top to bottom, and is stored without outputs."""

import json
from pathlib import Path

import pytest

import dpexec as fluid

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def code_cells(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_there_is_one():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    fresh = fluid.program_guard(fluid.Program(), fluid.Program())
    with fresh, fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        for number, cell in enumerate(code_cells(path)):
            exec(compile("".join(cell["source"]), f"{path.name}[{number}]", "exec"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_holds_no_outputs(path):
    for cell in code_cells(path):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
