"""Every notebook runs in a kernel of its own, and is stored with its output."""

import json
import subprocess
import sys
from itertools import groupby

import pytest

pytest.importorskip("nbclient", reason="needs nbclient and ipykernel (extra: test)")

from tests.notebooks import FOLDER

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path, kind="code"):
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == kind]


def shown(path):
    """What kinds of outputs the cells have; a text may come in several pieces."""
    return [[kinds for kinds, _ in groupby(map(_kinds, cell["outputs"]))] for cell in cells(path)]


def _kinds(output):
    return sorted(output.get("data", [output["output_type"]]))


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The folder of the notebooks as they are after a run."""
    folder = tmp_path_factory.mktemp("notebooks")
    command = [sys.executable, "-m", "tests.notebooks", "--into", str(folder)]
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder


def test_they_are_ten():
    assert [path.name[:3] for path in NOTEBOOKS] == [f"{k:02}_" for k in range(1, 11)]


@each
def test_notebook_runs_without_warnings_and_shows_what_is_stored(executed, path):
    again = executed / path.name
    said = [
        output["text"]
        for cell in cells(again)
        for output in cell["outputs"]
        if output.get("name") == "stderr"
    ]
    assert not said
    assert shown(again) == shown(path)


@each
def test_stored_outputs_are_small_and_need_no_scripts(path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < 400_000
    assert "<script" not in text and "<iframe" not in text
    assert any("image/svg+xml" in kinds for outputs in shown(path) for kinds in outputs)


@each
def test_links_lead_somewhere_and_the_last_cell_says_what_to_try_next(path):
    texts = ["".join(cell["source"]) for cell in cells(path, "markdown")]
    for text in texts:
        for link in text.split("](")[1:]:
            target = link.partition(")")[0]
            assert (FOLDER / target).exists(), target
    assert texts[-1].startswith("## Try next")
