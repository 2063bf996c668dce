"""Measured replacements for hot operators on CPUs: machine code that runs without the GIL.

A *kernel* is a Python function that numba compiles (:mod:`dpexec.kernels.machine`); a *lowering*
says how an operator becomes calls of kernels (:mod:`dpexec.kernels.lowering`). A sequence of such
operators of one device becomes a piece of code that runs in one call, on buffers that were laid
out before. Operators without a lowering run as they are declared in :mod:`dpexec.ops`, on NumPy;
without numba all of them do.
"""

from __future__ import annotations

import functools
import importlib.util

__all__ = ["available"]


@functools.cache
def available() -> bool:
    """Whether kernels can be compiled: numba is installed (``pip install dpexec[fast]``)."""
    return importlib.util.find_spec("numba") is not None
