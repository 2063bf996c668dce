"""Every public name of Paddle exists, or its error names a replacement."""

import functools
import importlib
import json
from pathlib import Path

import pytest

from dpexec.commands.paddle_alias import paddle_is_dpexec
from dpexec.compat.absent import explain_import

NAMES = json.loads((Path(__file__).parent / "fixtures" / "public_names.json").read_text())


@functools.cache
def missing():
    """What is missing of the original: errors by the names of modules and of what is in them."""
    found = {}
    with paddle_is_dpexec():
        for name, members in NAMES.items():
            try:
                module = importlib.import_module(name)
            except ModuleNotFoundError as error:
                found[name] = str(error)
                continue
            for member in members:
                try:
                    getattr(module, member)
                except AttributeError as error:
                    found[f"{name}.{member}"] = str(error)
    return found


def test_what_is_missing_says_why():
    unexplained = {
        name: error for name, error in missing().items() if "is not supported" not in error
    }
    assert unexplained == {}


def test_most_is_there():
    names = [f"{module}.{member}" for module, members in NAMES.items() for member in members]
    gone = [name for name in names if name in missing()]
    assert len(names) > 1500
    assert len(gone) < len(names) / 8


@pytest.mark.parametrize(
    ("name", "noted"), [("HDFSClient", ["HDFSClient is not supported by dpexec"]), ("other", [])]
)
def test_imports_of_missing_names_are_explained(name, noted):
    error = ImportError(f"cannot import name {name!r} from 'dpexec.contrib'")
    explain_import(error)
    notes = getattr(error, "__notes__", [])
    assert [note.partition(":")[0] for note in notes] == noted


@pytest.mark.parametrize(
    ("name", "package"),
    [("six", "six"), ("PIL", "pillow"), ("google.protobuf", "protobuf"), ("mine", None)],
)
def test_modules_that_come_with_paddle_are_explained(name, package):
    error = ModuleNotFoundError(f"No module named {name!r}", name=name)
    explain_import(error)
    notes = getattr(error, "__notes__", [])
    assert [note.rpartition("pip install ")[2] for note in notes] == ([package] if package else [])
