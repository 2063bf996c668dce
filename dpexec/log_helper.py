"""``fluid.log_helper``."""

from __future__ import annotations

import logging

__all__ = ["get_logger"]


def get_logger(name: str, level: int, fmt: str | None = None) -> logging.Logger:
    """A logger with its own handler, which writes to stderr.

    Args:
        name: name of the logger; every call adds one more handler.
        level: lowest level that is written.
        fmt: format of the messages, as for ``logging.Formatter``.

    Returns:
        The logger.

    Example:
        >>> import logging
        >>> from dpexec.log_helper import get_logger
        >>> logger = get_logger("train", logging.INFO, fmt="%(levelname)s %(message)s")
        >>> logger.isEnabledFor(logging.DEBUG)
        False
    """
    logger, handler = logging.getLogger(name), logging.StreamHandler()
    logger.setLevel(level)
    handler.setFormatter(logging.Formatter(fmt))
    logger.addHandler(handler)
    logger.propagate = False  # else the root logger would write a second time
    return logger
