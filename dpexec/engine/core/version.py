"""The version of dpexec, which pyproject.toml reads too, and those of what is installed."""

import importlib
import sys
from typing import Any

__all__ = ["__version__", "metadata"]

__version__ = "0.3.0.dev0"


def metadata() -> Any:
    """``importlib.metadata``; on Python 3.11 its twin, which Dask has: the other takes 10 ms."""
    return sys.modules.get("importlib_metadata") or importlib.import_module("importlib.metadata")
