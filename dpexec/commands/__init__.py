"""The longer commands of the command line, one module each."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator

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
INTERRUPTED = 128 + signal.SIGINT
"""Exit code after Ctrl-C, as shells have it."""
OTHER_FAILED = 75
"""Exit code of a script that failed because another process of its run did (EX_TEMPFAIL)."""


class CommandError(Exception):
    """The user's request cannot be fulfilled; shown as one line."""


def count(text: str) -> int:
    """Parse a number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


@contextlib.contextmanager
def quiet_ends() -> Iterator[None]:
    """End without a traceback on Ctrl-C, on a closed pipe, and on unencodable output.

    Raises:
        SystemExit: after Ctrl-C, or when the reader of the output has closed the pipe.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may not have µ, · or →
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
