"""Who may import whom: the layout of the project, kept by reading the sources."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "dpexec").rglob("*.py"))

# What each room may import from dpexec, itself apart. Rooms that are not named here form the
# front (layers, optimizer, nets, io ...): see FRONT.
ALLOWED = {
    "version": set(),
    "errors": set(),
    "core": {"errors"},
    "trace": {"core", "errors"},
    "kernels": {"ops", "ir", "core", "errors"},
    "ir": {"core", "errors"},
    "ops": {"ir", "core", "errors"},
    "autodiff": {"ops", "ir", "core", "errors"},
    "graph": {"ir", "core", "errors"},
    "passes": {"graph", "ir", "core", "errors"},
    "dashboard": {"graph", "core", "errors", "trace"},
    "runtime": {*("passes", "graph", "ops", "ir", "core", "errors", "trace", "kernels", "version")},
}
# May import everything, and nobody imports them:
ENTRY = {"", "__main__", "cli", "commands", "examples", "paddle"}
FRONT_NEVER = ENTRY | {"viz", "graph", "passes"}


def room_of(module: str) -> str:
    """Name of the room of a module of dpexec; "" for the package itself."""
    return [*module.split("."), ""][1]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, absolute name) of everything a file imports, inside functions too."""
    module = module_name(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                start = parts[: len(parts) - node.level + 1]
                base = ".".join([*start, base] if base else start)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def violations(path: Path) -> Iterator[str]:
    here = room_of(module_name(path))
    for line, name in imports(path):
        where = f"{path.relative_to(ROOT)}:{line}"
        if name.split(".")[0] == "cupy" and here not in ("core", "kernels"):
            yield f"{where}: only core and kernels may import cupy"
        if name.split(".")[0] != "dpexec":
            continue
        there = room_of(name)
        if there == "viz" and here not in ENTRY:
            yield f"{where}: only dpexec itself connects what draws (dpexec.engine.core.hooks)"
        elif here in ENTRY or there == here:
            continue
        elif there not in ALLOWED[here] if here in ALLOWED else there in FRONT_NEVER:
            yield f"{where}: {here} must not import {there or 'the whole of dpexec'}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_layout(path):
    assert list(violations(path)) == []


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("core/a.py", "from dpexec.engine.ir import program", "core must not import ir"),
        ("ops/a.py", "def f():\n    import dpexec.layers", "ops must not import layers"),
        ("ops/a.py", "from .. import graph", "ops must not import graph"),
        ("ops/a.py", "import cupy.cuda", "only core and kernels may import cupy"),
        ("layers/a.py", "from dpexec import cli", "layers must not import cli"),
        ("layers/a.py", "import dpexec", "layers must not import the whole of dpexec"),
        ("graph/a.py", "def draw():\n    from dpexec import viz", "connects what draws"),
        ("layers/a.py", "from dpexec.engine.ops import mul\nfrom dpexec.layers import b", None),
    ],
)
def test_the_check_itself(tmp_path, monkeypatch, file, source, complaint):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "dpexec" / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    found = list(violations(path))
    assert (found == []) if complaint is None else (len(found) == 1 and complaint in found[0])
