"""Functions that higher layers register with the engine: pictures, reports for dashboards.

The engine imports nothing of what lies above it. ``dpexec`` itself connects both when it is
imported, and what is supplied is loaded at the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Hook", "draw_panel", "picture", "show_on_dashboard"]


class Hook:
    """A function that a room above the engine supplies.

    Args:
        purpose: what the function does; part of the error message.
    """

    def __init__(self, purpose: str) -> None:
        self.purpose = purpose
        self._function: Callable[..., Any] | None = None

    def supply(self, function: Callable[..., Any]) -> None:
        """Set the function; what was set before is replaced."""
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function.

        Raises:
            RuntimeError: nobody has supplied it.
        """
        if self._function is None:
            raise RuntimeError(f"nobody supplies {self.purpose}: import dpexec first")
        return self._function(*args, **kwargs)


picture = Hook("pictures for notebooks")
"""``picture(shown)``: a program, graph, plan or trace as a MIME bundle."""

draw_panel = Hook("panels of the live view")
"""``draw_panel(board, name)``: a panel as HTML; without a board the style sheet of all panels."""

show_on_dashboard = Hook("reports for dask's dashboard")
"""``show_on_dashboard(client, engine, token)``: what an engine does appears on the dashboard."""
