"""Errors of loading an ONNX model."""

from __future__ import annotations

from dpexec.engine.core.errors import EnforceNotMet, see

__all__ = ["DAMAGE", "LoadError", "NotConstantError", "UnsupportedError"]


class LoadError(EnforceNotMet):
    """An ONNX model cannot become a program; the message names file, node and operator.

    Args:
        message: says so.

    Example:
        >>> from dpexec import onnx
        >>> try:
        ...     onnx.load(b"no model")
        ... except onnx.LoadError as error:
        ...     print(type(error).__name__)
        LoadError
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        see("an-onnx-file-that-does-not-load", self)


class UnsupportedError(LoadError):
    """A model asks for operators, attributes or data types that programs do not have.

    Args:
        message: names them.

    Example:
        >>> from onnx import helper, TensorProto
        >>> from dpexec import onnx
        >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
        >>> graph = helper.make_graph([helper.make_node("Warp", ["x"], ["y"])], "net", [x], [y])
        >>> try:
        ...     onnx.load(helper.make_model(graph))
        ... except onnx.UnsupportedError as error:
        ...     "Warp" in str(error)
        True
    """


class NotConstantError(UnsupportedError):
    """An input must be known when the model is loaded, but is computed in a run.

    Args:
        message: says which input of which node.
        name: name of the input.

    Example:
        >>> from dpexec import onnx
        >>> issubclass(onnx.NotConstantError, onnx.UnsupportedError)
        True
    """

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


DAMAGE = (TypeError, ValueError, AssertionError, AttributeError, LookupError, ArithmeticError)
"""What reading a model raises that is not as ONNX says: a missing attribute, a wrong size, ..."""
