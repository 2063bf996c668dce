"""What the guides name is there."""

import re
from pathlib import Path

import pytest

import dpexec as fluid
from dpexec import dashboard, trace, viz

ROOT = Path(__file__).parents[1]
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ROOMS = {"viz": viz, "dpexec.trace": trace, "dpexec.dashboard": dashboard}
each = pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)


@each
def test_links_and_pictures_lead_somewhere(guide):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", guide.read_text(encoding="utf-8")):
        assert (guide.parent / target).exists(), target


@each
def test_functions_exist(guide):
    text = guide.read_text(encoding="utf-8")
    for room, name in re.findall(r"(?<![\w/])(viz|dpexec\.trace|dpexec\.dashboard)\.(\w+)\(", text):
        assert callable(getattr(ROOMS[room], name)), f"{room}.{name}"


def test_the_guide_to_sequences_runs():
    text = (ROOT / "docs" / "sequences.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict = {}
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        for example in examples:
            exec(example, names)
        names["exe"].run(fluid.default_startup_program())
        run = {"feed": names["batch"], "fetch_list": [names["states"]], "return_numpy": False}
        (states,) = names["exe"].run(**run)
    assert 0 < float(names["value"]) < 2
    assert states.lod() == [[0, 3, 5]] and states.shape() == [5, 16]


def test_a_cell_as_the_answers_have_it_may_run_again():
    text = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    (cell,) = re.findall(r"```python\n(main, startup = .*?)```", text, re.DOTALL)
    names, built = {"fluid": fluid}, []
    for _ in range(2):
        exec(cell, names)
        built.append([op.type for op in names["main"].global_block().ops])
        assert [p.name for p in names["main"].all_parameters()] == ["fc_0.w_0", "fc_0.b_0"]
    assert built[0] == built[1]


def test_map_of_the_runtime_names_files_that_are_there():
    text = (ROOT / "docs" / "runtime.md").read_text(encoding="utf-8")
    there = {str(path) for path in (ROOT / "dpexec").glob("**/*.py")}
    for name in re.findall(r"`([\w/]+\.py)`", text):
        assert any(path.endswith(f"/{name}") for path in there), name


def test_pictures_are_small():
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.png"))
    assert pictures
    assert [path.name for path in pictures if path.stat().st_size > 200_000] == []
