"""The kinds of fleet."""

from __future__ import annotations

__all__ = ["Mode"]


class Mode:
    """The kinds of fleet; ``PSLIB`` is not supported."""

    TRANSPILER = 1
    PSLIB = 2
    COLLECTIVE = 3
