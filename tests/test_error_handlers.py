"""No handler swallows all exceptions; some pass them to another thread or process."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

HANDS_ON = {
    "dpexec/commands/run.py::execute": "the process that started the script, as its exit status",
    "dpexec/engine/cluster/client/gang_calls.py::_outcome": "who puts outcomes together",
    "dpexec/engine/cluster/client/open_run.py::wait": "who settles the run",
    "dpexec/engine/cluster/client/runner.py::_made": "the caller, after the steps that were made",
    "dpexec/engine/cluster/client/usual_runs.py::_make": "who settles the run",
    "dpexec/engine/cluster/worker/gang.py::obey": "the client, and the other members",
    "dpexec/engine/cluster/worker/resident.py::_outcome": "the client",
    "dpexec/engine/cluster/worker/telling.py::copy_to_send": "the client, in words if it must be",
    "dpexec/engine/compile/regions/python_row.py::_run": "who runs the code, through C",
    "dpexec/engine/dask/plugins.py::install": "the caller, as words: it came from the scheduler",
    "dpexec/engine/exchange/nccl.py::call": "the thread that waits for the result",
    "dpexec/engine/executors/steps_elsewhere.py::_outcome": "the worker whose task is the step",
    "dpexec/engine/parameter_server/server.py::_welcome": "all trainers",
    "dpexec/engine/threads/prepared.py::_work": "the thread that called",
    "dpexec/reading/prefetch.py::_read": "the thread that reads",
}
"""Functions that catch everything, and to whom they hand it."""


def is_broad(handler: ast.ExceptHandler) -> bool:
    """Whether a handler takes every exception and raises none."""
    caught = handler.type
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    everything = any(
        name is None or (isinstance(name, ast.Name) and name.id in ("Exception", "BaseException"))
        for name in names
    )
    return everything and not any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def broad_handlers(tree: ast.AST, function: str = "") -> Iterator[str]:
    """The functions that such handlers stand in, the innermost ones."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ExceptHandler) and is_broad(node):
            yield function
        named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        yield from broad_handlers(node, node.name if named else function)


def test_who_catches_everything_hands_it_on():
    paths = [path for room in ("dpexec", "viz") for path in (ROOT / room).rglob("*.py")]
    sources = {path: path.read_text(encoding="utf-8") for path in paths}
    found = {
        f"{path.relative_to(ROOT)}::{function}"
        for path, source in sources.items()
        if "except" in source
        for function in broad_handlers(ast.parse(source))
    }
    assert found == set(HANDS_ON)


def test_the_check_itself():
    source = """
def swallows():
    try: f()
    except (ValueError, Exception): pass
def raises():
    try: f()
    except BaseException: raise
def chosen():
    try: f()
    except ValueError: pass
"""
    assert list(broad_handlers(ast.parse(source))) == ["swallows"]
