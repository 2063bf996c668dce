"""What dask's workers need not log: operators' errors, which are raised in the user's program."""

from __future__ import annotations

import logging
import re

from dpexec.engine.cluster.worker.jobs import run_jobs

__all__ = ["leave_out_told_errors"]

_TOLD = re.compile(
    rf"Compute Failed\n.*\b{run_jobs.__name__}\(.*"
    r"\nException: ['\"](EnforceNotMet|StaleTaskError)\(",
    re.DOTALL,
)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    return not _TOLD.match(record.getMessage())


def leave_out_told_errors() -> None:
    """Let this worker not log errors of steps that the client raises, or deals with."""
    logging.getLogger("distributed.worker").addFilter(_is_worth_logging)
