"""The kinds of fleet."""

from __future__ import annotations

__all__ = ["Mode"]


class Mode:
    """The kinds of fleet; ``PSLIB`` is not supported.

    Example:
        >>> from dpexec.incubate.fleet.base.fleet_base import Mode
        >>> Mode.TRANSPILER, Mode.COLLECTIVE
        (1, 3)
    """

    TRANSPILER = 1
    PSLIB = 2
    COLLECTIVE = 3
