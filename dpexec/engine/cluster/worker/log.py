"""Filters for the logs of dask's workers: errors that the user's program raises are left out."""

from __future__ import annotations

import logging
import re

from dpexec.engine.cluster.worker.jobs import run_jobs

__all__ = ["RESIDENT", "leave_out_told_errors"]

RESIDENT = "gang-"
"""The prefix of the tags of tasks that stay on their workers."""

_TOLD = re.compile(
    rf"Compute Failed\n.*\b{run_jobs.__name__}\(.*"
    r"\nException: ['\"](EnforceNotMet|StaleTaskError)\(",
    re.DOTALL,
)
_CANCELLED = re.compile(rf"Async instruction for <Task.* ['\"]{RESIDENT}.* CancelledError")


def _is_worth_logging(record: logging.LogRecord) -> bool:
    return not _TOLD.match(record.getMessage())


def _is_no_resident(record: logging.LogRecord) -> bool:
    return not _CANCELLED.match(record.getMessage())


def leave_out_told_errors() -> None:
    """Let this worker not log errors of steps that the client raises or handles.

    Tasks that are cancelled when the worker closes are not logged either: that is usual for tasks
    that stay.
    """
    logging.getLogger("distributed.worker").addFilter(_is_worth_logging)
    logging.getLogger("distributed.worker.state_machine").addFilter(_is_no_resident)
