"""Errors of operators and programs that cannot be written as ONNX."""

from __future__ import annotations

from typing import Any

__all__ = ["CannotExport", "ExportError", "need"]


class CannotExport(Exception):
    """A mapping cannot write an operator as it is used here; the message gives the reason."""


class ExportError(ValueError):
    """A program has operators that cannot be written as ONNX.

    The message names all of them with the lines of the user's code.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec import onnx
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     x = fluid.data("x", [None, 2])
        ...     y = main.current_block().create_var(name="y", shape=[-1, 2], dtype="float32")
        ...     _ = fluid.layers.py_func(lambda x: x + 1, x, y)
        >>> try:
        ...     onnx.export(main, "net.onnx", targets=[y])
        ... except onnx.ExportError as error:
        ...     "py_func" in str(error)
        True
    """


def need(condition: Any, message: str) -> None:
    """Refuse to write an operator unless ``condition`` holds; ``message`` gives the reason."""
    if not condition:
        raise CannotExport(message)
