"""Plugins of dpexec on a scheduler."""

from __future__ import annotations

import contextlib
from typing import Any

__all__ = ["install", "introduce"]

_IMPORT = 30.0  # seconds in which a scheduler has imported dpexec; it does nothing else meanwhile


def introduce(client: Any, limit: float) -> None:
    """Let a scheduler import dpexec now; later, it would seem silent during the import.

    Errors are not raised here, but by the next use of the scheduler.

    Args:
        client: a connected ``distributed.Client``.
        limit: see :func:`install`.
    """
    with contextlib.suppress(ImportError, OSError, TimeoutError):
        client.sync(client._run_on_scheduler, _nothing, callback_timeout=max(limit, _IMPORT))


def _nothing() -> None:
    """Imports dpexec where it is called."""


def install(client: Any, plugin: Any, name: str, limit: float = 0.0) -> str:
    """Install a plugin on a scheduler.

    Args:
        client: a connected ``distributed.Client``.
        plugin: the plugin.
        name: name of the plugin; replaces another one of this name.
        limit: seconds in which the scheduler has to answer, if they are more than importing takes.

    Returns:
        Why it failed; empty if it worked.
    """
    try:
        patience = max(limit, _IMPORT)
        client.sync(client.register_plugin, plugin, name=name, callback_timeout=patience)
    except Exception as error:  # of the scheduler's process, which raises what it likes
        return str(error) or f"it did not answer ({type(error).__name__})"
    return ""
