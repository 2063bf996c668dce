"""What is installed in a process, without importing it.

Workers get this file as a text: one without dpexec, or with another, could not load it from there.
So it imports nothing but Python's own modules.
"""

from __future__ import annotations

from importlib import metadata, util
from pathlib import Path
from platform import python_version

__all__ = ["installed"]

_NUMBERS = ("numpy", "numba", "onednn-cpu-gomp")  # the last digits of results depend on them


def installed() -> dict[str, str]:
    """The versions of Python, of dpexec, and of packages that compute; empty: it is not there."""
    found = {"dpexec": "", "python": python_version()}
    spec = util.find_spec("dpexec")
    if spec is not None and spec.origin is not None:  # its metadata may be of another folder
        file = Path(spec.origin).parent / "engine" / "core" / "version.py"
        lines = file.read_text().splitlines() if file.exists() else []
        texts = [line.split('"')[1] for line in lines if line.startswith("__version__")]
        found["dpexec"] = texts[0] if texts else "of another age"
    for name in _NUMBERS:
        there = next(iter(metadata.distributions(name=name)), None)
        found[name] = "" if there is None else there.version
    return found
