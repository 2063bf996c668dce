"""Names, rooms and files that the guides mention exist."""

import re
import tomllib

import pytest

from dpexec import dashboard, viz
from dpexec.cli import main
from dpexec.engine.ops._differences import _parts, write
from tests import architecture, step_path
from tests.guides import GUIDES, ROOT, commands, programs

ROOMS = {"viz": viz, "dpexec.dashboard": dashboard}
each = pytest.mark.parametrize("guide", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))


@each
def test_links_and_pictures_lead_somewhere(guide):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", guide.read_text(encoding="utf-8")):
        assert (guide.parent / target).exists(), target


@each
def test_functions_exist(guide):
    text = guide.read_text(encoding="utf-8")
    for room, name in re.findall(r"(?<![\w/])(viz|dpexec\.dashboard)\.(\w+)\(", text):
        assert callable(getattr(ROOMS[room], name)), f"{room}.{name}"


@each
def test_commands_and_their_options_exist(guide, capsys):
    for given in commands(guide.read_text(encoding="utf-8"), "dpexec"):
        with pytest.raises(SystemExit, match="0"):
            main([*given[:1], "--help"])
        shown = capsys.readouterr().out
        assert {word for word in given if word.startswith("--")} <= set(shown.split()), given


@each
def test_modules_and_their_options_exist(guide):
    for module, *given in commands(guide.read_text(encoding="utf-8"), "(?:.* )?python -m"):
        if module in ("venv", "paddle.distributed.launch"):
            continue  # not ours
        place = ROOT.joinpath(*module.split("."))
        path = place / "__main__.py" if place.is_dir() else place.with_suffix(".py")
        assert path.exists(), module
        source = "".join(file.read_text(encoding="utf-8") for file in path.parent.glob("*.py"))
        for option in re.findall(r"--\w+", " ".join(given)):
            assert option in source, f"{module} {option}"


@each
def test_targets_and_extras_exist(guide):
    text = guide.read_text(encoding="utf-8")
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {target for target, *_ in filter(None, commands(text, "make"))} <= set(targets)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.findall(r"(?:\.|dpexec)\[(\w+)\]", text)
    assert set(extras) <= set(project["optional-dependencies"])


def test_programs_are_run():
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    names = [str(path.relative_to(ROOT)) for path in GUIDES]
    without = [name for name in names if programs(name) and f'programs("{name}")' not in tests]
    assert without == ["docs/gpu.md"]  # it is for clusters of GPUs


def test_maps_name_every_room():
    for folder, guide in (("dpexec", "CONTRIBUTING.md"), ("dpexec/engine", "docs/architecture.md")):
        rooms = {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}
        named = re.findall(r"`(?:dpexec/)?(\w+)`", (ROOT / guide).read_text(encoding="utf-8"))
        assert rooms - set(named) - {"engine"} == set()


def test_picture_of_the_rooms_is_that_of_the_sources():
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.picture()


def test_picture_of_a_step_is_what_is_called():
    pytest.importorskip("numba")  # without, steps are not machine code as a whole
    assert step_path.PICTURE.read_text(encoding="utf-8") == step_path.picture()


def test_guides_to_the_engine_name_files_that_are_there():
    for guide in ("architecture.md", "runtime.md"):
        text = (ROOT / "docs" / guide).read_text(encoding="utf-8")
        for name in re.findall(r"`([\w/]+\.py)`", text):
            places = [ROOT / top / name for top in ("dpexec/engine", "dpexec", "")]
            assert any(path.exists() for path in places), name


def test_pictures_are_small():
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.png"))
    assert pictures
    assert [path.name for path in pictures if path.stat().st_size > 200_000] == []


def test_the_table_of_differences_is_that_of_the_operators():
    text = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    assert write(text) == text, "run python -m dpexec.ops differences docs/differences.md"


def test_every_difference_names_tests_that_there_are():
    text = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    rows = [line for line in text.partition("<!--")[0].splitlines() if line.startswith("| ")]
    for row in (row for row in rows if not row.startswith("| where |")):
        tests = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", row.split(" | ")[-1])
        assert tests, row
        for path, name in tests:
            assert f"def {name}" in (ROOT / path).read_text(encoding="utf-8"), (path, name)


def test_a_note_that_is_no_row_is_refused():
    with pytest.raises(ValueError, match="no lines <!-- operators --> and <!-- end -->"):
        write("text")
    with pytest.raises(ValueError, match="must be 'what Paddle does; dpexec does something else'"):
        _parts("a mistake")
