"""Limits on the lengths of files, functions and folders."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import LONGEST

ROOT = Path(__file__).parents[1]


def body_lengths(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Lines of every function, without its signature and documentation; 0 for tables."""
    for node in getattr(tree, "body", ()):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            documented = ast.get_docstring(node, clean=False) is not None
            match node.body[documented:]:
                case [] | [ast.Return(ast.List() | ast.Dict())]:
                    yield node.name, 0
                case [first, *_] as body:
                    yield node.name, (body[-1].end_lineno or 0) - first.lineno + 1
        elif isinstance(node, ast.stmt):
            yield from body_lengths(node)  # methods; what a function defines is a part of it


def test_files_have_400_lines_at_most():
    paths = [path for room in ("dpexec", "viz", "tests") for path in (ROOT / room).rglob("*.py")]
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert {path: length for path, length in lengths.items() if length > 400} == {}


def test_folders_have_25_files_at_most():
    """But for lists of many alike, and the root, whose names are fluid's."""
    long = {
        *("dpexec", "dpexec/engine/kernels", "dpexec/engine/ops", "dpexec/layers"),
        *("dpexec/onnx/exporting/mappings", "dpexec/onnx/loading/operators"),
    }
    modules = [path for room in ("dpexec", "viz") for path in (ROOT / room).rglob("*.py")]
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in modules)
    assert {folder for folder, count in counts.items() if count > 25} <= long


def test_functions_have_40_lines_at_most():
    paths = [path for room in ("dpexec", "viz") for path in (ROOT / room).rglob("*.py")]
    read = (path.read_text(encoding="utf-8") for path in paths)
    long = [
        (path, name, length)
        for path, source in zip(paths, read, strict=True)
        for name, length in body_lengths(ast.parse(source))
        if length > 40
    ]
    assert long == []


def test_files_of_tests_that_take_long_exist():
    assert [name for name in LONGEST if not (ROOT / "tests" / name).exists()] == []
