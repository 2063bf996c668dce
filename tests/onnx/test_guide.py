"""The programs and tables of docs/onnx.md."""

import onnx
import pytest

from dpexec.onnx.loading.mapping import MAPPINGS
from dpexec.onnx.tables import loaded, main, update
from tests.guides import ROOT, programs


def test_programs_of_the_guide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for program in programs("docs/onnx.md"):
        exec(program, names)
    onnx.checker.check_model(onnx.load("classifier.onnx"), full_check=True)


def test_the_tables_of_operators_are_those_of_the_mappings():
    text = (ROOT / "docs" / "onnx.md").read_text(encoding="utf-8")
    assert update(text) == text, "run python -m dpexec.onnx.tables docs/onnx.md"


def test_every_loaded_operator_is_in_the_table():
    names = [f"{domain}.{name}".lstrip(".") for domain, name in MAPPINGS]
    assert all(f"`{name}`" in loaded() for name in names)


def test_tables_are_written_between_their_marks(tmp_path):
    guide = tmp_path / "guide.md"
    marks = [f"<!-- {kind} operators -->\nof yesterday\n" for kind in ("exported", "loaded")]
    ends = [f"<!-- end of {kind} operators -->\n" for kind in ("exported", "loaded")]
    guide.write_text("".join(mark + end for mark, end in zip(marks, ends, strict=True)))
    assert main([str(guide)]) == 0
    text = guide.read_text()
    assert "`relu`" in text and "`Relu`" in text and "yesterday" not in text
    with pytest.raises(ValueError, match="no lines <!-- exported operators -->"):
        update("text")
