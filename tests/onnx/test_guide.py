"""The programs of docs/onnx.md."""

import onnx

from tests.guides import programs


def test_programs_of_the_guide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for program in programs("docs/onnx.md"):
        exec(program, names)
    onnx.checker.check_model(onnx.load("classifier.onnx"), full_check=True)
