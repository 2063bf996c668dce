"""Names of fluid 1.8 that dpexec does not have yet: a program learns which, and what to use."""

from __future__ import annotations

import sys
from typing import NoReturn

from dpexec.errors import similar

KNOWN = {
    "dygraph": "eager execution; dpexec runs programs",
}
"""What names of fluid stand for that are missing."""


def __getattr__(name: str) -> NoReturn:
    """Raise AttributeError for ``fluid.<name>``, saying what the name stands for in fluid.

    Imported by the package as its own, where Python calls it for names that are not found.
    """
    if name in KNOWN:
        raise AttributeError(f"fluid.{name} is not supported by dpexec: {KNOWN[name]}")
    known = getattr(sys.modules["dpexec"], "__all__", [])
    raise AttributeError(f"module 'dpexec' has no attribute {name!r}{similar(name, known)}")
