"""``fluid.log_helper``."""

from __future__ import annotations

import logging

__all__ = ["get_logger"]


def get_logger(name: str, level: int, fmt: str | None = None) -> logging.Logger:
    """A logger that writes to the standard error output by itself.

    Args:
        name: of the logger; every call gives it one more handler.
        level: what is less important is not written.
        fmt: of the messages, as ``logging.Formatter`` takes it.
    """
    logger, handler = logging.getLogger(name), logging.StreamHandler()
    logger.setLevel(level)
    handler.setFormatter(logging.Formatter(fmt))
    logger.addHandler(handler)
    logger.propagate = False  # else the root logger would write a second time
    return logger
