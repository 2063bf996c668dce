"""How the threads of OpenMP, oneDNN's own, wait for work and for each other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["impatient"]

_USERS = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"
_TURNS = "3000"
"""Turns of spinning, together 0.07 to 0.2 ms, before a thread sleeps. libgomp would take 300,000:
where another process uses a core, all others then spin while the one that they wait for cannot
run. MobileNet with 8 images and two threads took 2 to 20 times as long on two busy cores."""


@contextmanager
def impatient() -> Iterator[None]:
    """Let the libgomp that is loaded here sleep soon, unless the user's environment says more."""
    if any(name in os.environ for name in _USERS):
        yield
        return
    os.environ[_USERS[0]] = _TURNS
    try:
        yield
    finally:
        del os.environ[_USERS[0]]
