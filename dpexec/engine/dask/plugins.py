"""Plugins of dpexec on a scheduler."""

from __future__ import annotations

from typing import Any

__all__ = ["install"]

_IMPORT = 30.0  # seconds in which a scheduler has imported dpexec; it does nothing else meanwhile


def install(client: Any, plugin: Any, name: str, limit: float = 0.0) -> str:
    """Let a scheduler take a plugin in.

    Args:
        client: a connected ``distributed.Client``.
        plugin: what it takes.
        name: of the plugin; another one of that name goes.
        limit: seconds in which the scheduler has to answer, if they are more than importing takes.

    Returns:
        Why it did not; empty if it did.
    """
    try:
        patience = max(limit, _IMPORT)
        client.sync(client.register_plugin, plugin, name=name, callback_timeout=patience)
    except Exception as error:  # of the scheduler's process, which raises what it likes
        return str(error) or f"it did not answer ({type(error).__name__})"
    return ""
