"""What cannot be written as ONNX: of one operator, and of a program."""

from __future__ import annotations

from typing import Any

__all__ = ["CannotExport", "ExportError", "need"]


class CannotExport(Exception):
    """A mapping cannot write an operator as it is used here; says why."""


class ExportError(ValueError):
    """A program has operators that ONNX cannot say; names all of them with the user's lines."""


def need(condition: Any, message: str) -> None:
    """Refuse to write an operator unless ``condition`` holds; ``message`` says why."""
    if not condition:
        raise CannotExport(message)
