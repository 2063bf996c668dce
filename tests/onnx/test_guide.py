"""The programs of docs/onnx.md."""

import onnx
import pytest

from dpexec.onnx.exporting.__main__ import main, write
from tests.guides import ROOT, programs


def test_programs_of_the_guide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for program in programs("docs/onnx.md"):
        exec(program, names)
    onnx.checker.check_model(onnx.load("classifier.onnx"), full_check=True)


def test_the_table_of_operators_is_that_of_the_mappings():
    text = (ROOT / "docs" / "onnx.md").read_text(encoding="utf-8")
    assert write(text) == text, "run python -m dpexec.onnx.exporting docs/onnx.md"


def test_the_table_is_written_between_its_lines(tmp_path):
    guide = tmp_path / "guide.md"
    guide.write_text(
        "<!-- exported operators -->\nof yesterday\n<!-- end of exported operators -->\n"
    )
    assert main([str(guide)]) == 0
    assert "`relu`" in guide.read_text() and "yesterday" not in guide.read_text()
    with pytest.raises(ValueError, match="no lines <!-- exported operators -->"):
        write("text")
