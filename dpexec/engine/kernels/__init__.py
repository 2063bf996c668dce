"""Measured replacements for hot operators on CPUs: machine code that runs without the GIL.

A *kernel* is a Python function that numba compiles (:mod:`dpexec.engine.kernels.machine`). A
*lowering* translates an operator into calls of kernels (:mod:`dpexec.engine.kernels.lowering`).
Consecutive lowered operators of a device become a piece of code that runs in one call, on buffers
allocated beforehand. Operators without a lowering run their declaration in
:mod:`dpexec.engine.ops` on NumPy; without numba all operators do.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Mapping

from dpexec.engine.core.interrupts import Uninterrupted
from dpexec.engine.core.version import metadata

__all__ = ["available", "libraries", "load", "require", "require_halves"]


@functools.cache
def available() -> bool:
    """Whether kernels can be compiled: numba is there, and ``DPEXEC_NATIVE`` is not 0."""
    wanted = os.environ.get("DPEXEC_NATIVE", "1") != "0"
    return wanted and importlib.util.find_spec("numba") is not None


def libraries() -> dict[str, str]:
    """The libraries that make machine code, by name with version; empty if kernels are not used."""
    if not available():
        return {}
    from dpexec.engine.kernels import onednn

    found = {"numba": _version("numba")}
    return {**found, "oneDNN": onednn.version()} if onednn.available() else found


@functools.cache
def _version(package: str) -> str:
    return str(metadata().version(package))


def load() -> None:
    """Import numba with Ctrl-C deferred; called before modules that need it are imported.

    If an import of numba is interrupted, no later import of it succeeds.
    """
    with Uninterrupted():
        importlib.import_module("dpexec.engine.kernels.machine")


def require(wanted: Mapping[str, str]) -> None:
    """Refuse to go on in a process whose results would differ from others' in their last bits.

    If it can go on, numba is loaded.

    Args:
        wanted: the libraries of the process that sent the program.

    Raises:
        RuntimeError: this process has other libraries.
    """
    found = libraries()
    if found != wanted:
        raise RuntimeError(
            f"the process that sent the program makes machine code with {_listed(wanted)}, but "
            f"this one with {_listed(found)}, and results would differ in their last bits: "
            "install the same versions here (dpexec[fast]), or set "
            "BuildStrategy.native_kernels = False"
        )
    load()


def require_halves() -> None:
    """Refuse to go on in a process that cannot compute matrix products in bfloat16.

    Raises:
        RuntimeError: names what is missing.
    """
    from dpexec.engine.kernels import onednn

    lacking = onednn.lacks_halves()
    if lacking:
        raise RuntimeError(
            f"BuildStrategy.product_precision = 'bfloat16' does not work here: {lacking}"
        )


def _listed(libraries: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in libraries.items()) or "nothing"
