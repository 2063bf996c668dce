"""Errors of operators and programs that cannot be written as ONNX."""

from __future__ import annotations

from typing import Any

__all__ = ["CannotExport", "ExportError", "need"]


class CannotExport(Exception):
    """A mapping cannot write an operator as it is used here; the message gives the reason."""


class ExportError(ValueError):
    """A program has operators that cannot be written as ONNX.

    The message names all of them with the lines of the user's code.
    """


def need(condition: Any, message: str) -> None:
    """Refuse to write an operator unless ``condition`` holds; ``message`` gives the reason."""
    if not condition:
        raise CannotExport(message)
