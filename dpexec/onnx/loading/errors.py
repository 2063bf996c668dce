"""Errors of loading an ONNX model."""

from __future__ import annotations

from dpexec.engine.core.errors import EnforceNotMet

__all__ = ["LoadError", "NotConstantError", "UnsupportedError"]


class LoadError(EnforceNotMet):
    """An ONNX model cannot become a program; the message names file, node and operator."""


class UnsupportedError(LoadError):
    """A model asks for operators, attributes or data types that programs do not have."""


class NotConstantError(UnsupportedError):
    """An input must be known when the model is loaded, but is computed in a run.

    Args:
        message: says which input of which node.
        name: name of the input.
    """

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name
