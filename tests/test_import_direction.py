"""Checks the sources for imports in forbidden directions between packages.

Imports inside of functions and for type checkers count like all others.
"""

import ast
import functools
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*(ROOT / "dpexec").rglob("*.py"), *(ROOT / "viz").rglob("*.py")])

FLOORS = (
    *("core", "arguments", "dask", "formats", "ir", "feeds", "graph", "ops", "kernels"),
    *("kernels.gpu", "kernels.gpu.generated"),
    *("passes", "passes.prediction", "autodiff", "strategy", "threads", "trace"),
    *("compile.regions", "compile.plans", "compile.bindings"),
    *("gpu", "exchange", "run.trainers", "run", "cluster", "cluster.worker", "cluster.client"),
    *("dispatch", "parameter_server", "executors"),
)
"""The folders of the engine, the lowest first: each imports from those before it alone."""

PROGRAM = {"program", "block", "operator", "variable"}
"""Files of ir that may know each other, and the files of ir that hold methods of theirs."""

METHODS_ELSEWHERE = {
    ("compile.bindings.binding", "recording"),
    ("graph.describe", "ssa"),
    ("trace.events", "files"),
}
"""Further files that import each other: a class, and what its shortest method calls."""

PICTURES = ("dashboard", "viz")
"""Above the engine, the lower one first. Nothing of fluid's surface imports them."""

VIEWS = ("pages", "measured", "comparing", "advising", "graphs", "live_panels", "tuning")
"""The folders of viz, the lowest first; the calls of users stand above them."""

ENTRY = {"", "__main__", "cli", "commands", "examples", "onnx", "paddle", "sklearn"}
"""May import everything, and nobody imports them."""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = ("dpexec", *parts) if parts[0] == "viz" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Those below a node; its expressions, most of the tree, hold none."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        found = getattr(node, field, ())
        for child in found if isinstance(found, list) else ():  # of a lambda it is no list
            yield child
            yield from statements(child)


@functools.cache
def imports(path: Path) -> list[tuple[int, str]]:
    """Line and absolute name of everything that a file imports, inside functions too."""
    found: list[tuple[int, str]] = []
    module = module_name(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                start = parts[: len(parts) - node.level + 1]
                base = ".".join([*start, base] if base else start)
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def floor_of(module: list[str]) -> int:
    """How high the folder of a module of the engine lies; -1: it is no folder that is known."""
    for folder in (".".join(module[1:4]), ".".join(module[1:3]), module[1]):
        if folder in FLOORS:
            return FLOORS.index(folder)
    return -1


def height_in_viz(module: list[str]) -> int:
    """How high the folder of a module of viz lies."""
    return VIEWS.index(module[1]) if module[1] in VIEWS else len(VIEWS)


def may_import(here: list[str], there: list[str]) -> bool:
    """Whether a module may import another one; both as the parts of their names below dpexec."""
    if here[0] == there[0] == "viz":
        return height_in_viz(there) <= height_in_viz(here)
    if here[0] == there[0] != "engine":
        return True
    if here[0] == "engine":
        floors = floor_of(here), floor_of(there)
        return there[0] == "engine" and -1 not in floors and floors[1] <= floors[0]
    if here[0] in PICTURES:
        return there[0] == "engine" or there[0] in PICTURES[: PICTURES.index(here[0])]
    if here[0] in ENTRY or there[0] == "engine":
        return True
    return there[0] not in (*ENTRY, *PICTURES)


def violations(path: Path) -> Iterator[str]:
    here = [*module_name(path).split(".")[1:], "", ""]
    for line, name in imports(path):
        where = f"{path.relative_to(ROOT)}:{line}"
        top, *there = name.split(".")
        if top == "cupy" and here[:2] not in (["engine", "core"], ["engine", "kernels"]):
            yield f"{where}: only core and kernels may import cupy"
        if top == "dpexec" and not may_import(here, [*there, "", ""]):
            yield f"{where}: {'.'.join(here).strip('.')} must not import {name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_lead_downwards(path):
    assert list(violations(path)) == []


def test_no_two_files_import_each_other():
    modules = {module_name(path): path for path in SOURCES}
    found = {
        here: {name if name in modules else name.rpartition(".")[0] for _, name in imports(path)}
        for here, path in modules.items()
    }
    pairs = {(one, two) for one in found for two in found[one] & modules.keys() if one < two}
    mutual = {pair for pair in pairs if pair[0] in found[pair[1]]}
    assert {pair for pair in mutual if not _may_know_each_other(*pair)} == set()


def folders_imported() -> dict[str, set[str]]:
    """By folder, the others whose files its files import; fluid's surface at the root knows all."""
    folders = {module_name(path): str(path.parent.relative_to(ROOT)) for path in SOURCES}
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        here = folders[module_name(path)]
        for _, name in imports(path):
            there = folders.get(name) or folders.get(name.rpartition(".")[0], here)
            if "dpexec" not in (here, there) and here != there:
                found.setdefault(here, set()).add(there)
    return found


def test_no_folders_import_each_other_in_a_circle():
    found = folders_imported()
    assert "dpexec/engine/ir" in found["dpexec/engine/ops"] and "viz/pages" in found["viz/measured"]
    graphlib.TopologicalSorter(found).prepare()


def _may_know_each_other(one: str, two: str) -> bool:
    """Whether one has a method that the other one holds, or a view of it."""
    folder, _, name = one.removeprefix("dpexec.engine.").rpartition(".")
    other = two.rpartition(".")[2]
    if folder == "ir":
        return bool({name, other} & PROGRAM)
    return (f"{folder}.{name}", other) in METHODS_ELSEWHERE


def test_every_folder_of_the_engine_has_a_floor():
    engine = ROOT / "dpexec" / "engine"
    modules = {path.parent for path in engine.rglob("*.py") if path.name != "__init__.py"}
    folders = {".".join(path.relative_to(engine).parts) for path in modules - {engine}}
    assert folders == set(FLOORS)


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("engine/core/a.py", "from dpexec.engine.ir import program", "must not import"),
        ("engine/ops/a.py", "def f():\n    import dpexec.layers", "must not import dpexec.layers"),
        ("engine/ops/a.py", "from .. import graph", None),
        ("engine/graph/a.py", "from .. import ops", "must not import dpexec.engine.ops"),
        ("engine/ops/a.py", "import cupy.cuda", "only core and kernels may import cupy"),
        ("engine/graph/a.py", "def draw():\n    from dpexec import viz", "must not import"),
        ("dashboard/a.py", "from dpexec import viz", "must not import dpexec.viz"),
        ("viz/pages/a.py", "from dpexec.viz.graphs import b", "must not import dpexec.viz.graphs"),
        ("viz/a.py", "from dpexec.viz.graphs import b", None),
        ("layers/a.py", "from dpexec import cli", "layers.a must not import dpexec.cli"),
        ("layers/a.py", "import dpexec", "must not import dpexec"),
        ("layers/a.py", "from dpexec import viz", "must not import dpexec.viz"),
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
