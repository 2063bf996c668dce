"""The longer commands of the command line, one module each."""

from __future__ import annotations

import argparse

from dpexec.engine.core.interrupts import INTERRUPTED, quiet_ends

__all__ = [
    "INTERRUPTED",
    "OTHER_FAILED",
    "SCRIPT_ERROR",
    "USAGE_ERROR",
    "CommandError",
    "count",
    "quiet_ends",
]

USAGE_ERROR = 2
SCRIPT_ERROR = 1
OTHER_FAILED = 75
"""Exit code of a script that failed because another process of its run did (EX_TEMPFAIL)."""


class CommandError(Exception):
    """The user's request cannot be fulfilled; shown as one line."""


def count(text: str) -> int:
    """Parse a number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)
