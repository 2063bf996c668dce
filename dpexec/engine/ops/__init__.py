"""All operators, one file each or one for a family.

A file declares its operators when it is imported: when one of their types is first looked up
(:func:`dpexec.engine.ir.opdef.find`), or when somebody lists all. ``files.txt`` says which file
declares a type; ``python -m dpexec.ops files`` writes it anew, and a type that it lacks is found,
too, but all files are imported for that.
"""

import functools
import pkgutil
from pathlib import Path

from dpexec.engine.ir import opdef

__all__ = ["LAYER", "files", "index"]

LAYER = "+"
"""Marks, in ``files.txt``, the types of which ``dpexec.layers`` makes a layer."""


@functools.cache
def index() -> dict[str, list[str]]:
    """The content of ``files.txt``: by file, the types that it declares, some of them marked."""
    text = Path(__file__).with_name("files.txt").read_text("utf-8")
    rows = (line.partition(":") for line in text.splitlines())
    return {name: types.split() for name, _, types in rows}


@functools.cache
def _module_by_type() -> dict[str, str]:
    rows = ((f"{__name__}.{name}", types) for name, types in index().items())
    return {type.rstrip(LAYER): module for module, types in rows for type in types}


def files() -> list[str]:
    """The names of all modules that declare operators."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return [f"{__name__}.{name}" for name in found if name != "__main__"]


opdef.library.supply(lambda type: _module_by_type().get(type), files)
