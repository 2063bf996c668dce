"""Caches: limits, the order of eviction, and the list of all limits."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpexec
import viz
from dpexec.engine.core.cache import LIMITS, LimitedCache

ROOMS = [Path(dpexec.__file__).parent, Path(viz.__file__).parent]

FOR_EVER = {
    "engine/core/places.py::gpu_stream": "streams of GPUs",
    "engine/core/runs.py::_compiled": "kernels, by their few names",
    "engine/compile/regions/deferred.py::_packing": "a function for each number of words",
    "engine/gpu/nccl.py::_communicators": "sets of GPUs",
    "engine/graph/listings.py::python_listing": "functions of modules",
    "engine/ir/signature.py::attributes_of": "sets of parameters that operators declare",
    "engine/kernels/__init__.py::_version": "packages",
    "engine/kernels/by_numba.py::": "helpers of modules, of which machine code was made",
    "engine/kernels/code_store.py::_packs": "families of processors",
    "engine/kernels/divided.py::_plan": "kernels of modules, for the sizes of elements",
    "engine/kernels/formulas.py::_expression": "formulas that stand in files",
    "engine/kernels/gpu/": "kernels and plans, which CUDA graphs replay; handles of GPUs",
    "engine/kernels/implementations.py::_load": "packages",
    "engine/kernels/lstm.py::_projection": "kernels, by activation",
    "engine/kernels/lstm.py::_step": "kernels, by activations",
    "engine/kernels/onednn_library.py::entry_address": "functions of a library",
    "paddle/dataset/": "files of data sets",
}
"""What ``functools.cache`` keeps as long as the process is there, though it has arguments."""

WAYS = {
    "item": lambda kept, key: kept.__setitem__(key, -key),
    "setdefault": lambda kept, key: kept.setdefault(key, -key),
    "update": lambda kept, key: kept.update({key: -key}),
    "or": lambda kept, key: kept.__ior__({key: -key}),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_oldest_are_forgotten(way):
    kept = LimitedCache(2)
    for key in range(10):
        WAYS[way](kept, key)
    assert dict(kept) == {8: -8, 9: -9}


def test_what_was_used_is_kept_longer():
    kept = LimitedCache(2)
    kept[1], kept[2] = "one", "two"
    assert kept.used(1) == "one"
    kept[3] = "three"
    assert list(kept) == [1, 3]
    assert kept.used(2) is None


def calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    """The calls of a function or class in all sources, with the path of the file."""
    for room in ROOMS:
        for path in room.rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if name not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(name):
                    yield path.relative_to(room).as_posix(), node


def test_every_limit_stands_in_the_list():
    named = {ast.literal_eval(call.args[0]) for _, call in calls("limit_of")}
    assert named == LIMITS.keys()
    for name in ("LimitedCache", "lru_cache"):
        found = {path: ast.unparse(call.args[0]) for path, call in calls(name)}
        assert {p: a for p, a in found.items() if not a.startswith("limit_of(")} == {}


def test_all_else_is_kept_for_few_arguments():
    found = []
    for room in ROOMS:
        for path in room.rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            functions = ast.walk(ast.parse(text)) if "functools.cache\n" in text else ()
            for node in functions:
                if not isinstance(node, ast.FunctionDef) or not ast.unparse(node.args):
                    continue
                if any(ast.unparse(way) == "functools.cache" for way in node.decorator_list):
                    found.append(f"{path.relative_to(room).as_posix()}::{node.name}")
    assert [name for name in found if not name.startswith(tuple(FOR_EVER))] == []
    assert [name for name in FOR_EVER if not any(one.startswith(name) for one in found)] == []
