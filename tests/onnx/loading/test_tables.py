"""The table of loaded operators in docs/onnx.md."""

from pathlib import Path

import pytest

pytest.importorskip("onnx")
from dpexec.onnx.loading.mapping import MAPPINGS
from dpexec.onnx.loading.tables import table, update

GUIDE = Path(__file__).parents[3] / "docs" / "onnx.md"


def test_the_guide_has_the_table():
    text = GUIDE.read_text(encoding="utf-8")
    assert update(text) == text, "run python -m dpexec.onnx.loading.tables docs/onnx.md"


def test_every_operator_is_in_the_table():
    assert all(f"`{name}`" in table() for _, name in MAPPINGS)


def test_a_guide_without_marks_is_refused():
    with pytest.raises(ValueError, match="no lines"):
        update("nothing")
