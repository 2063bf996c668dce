"""``fluid.layers.layer_function_generator``: decorators for users' layers."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from dpexec.engine.ir import opdef
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import unary_layer

__all__ = ["autodoc", "deprecated", "generate_activation_fn", "templatedoc"]

Function = Callable[..., Any]


def autodoc(comment: str = "") -> Callable[[Function], Function]:
    """Decorator: prepend ``comment`` to the documentation of a layer."""

    def decorate(function: Function) -> Function:
        function.__doc__ = comment + (function.__doc__ or "")
        return function

    return decorate


def templatedoc(op_type: str | None = None) -> Callable[[Function], Function]:
    """Decorator that returns the layer unchanged; it does not fill in the documentation.

    Args:
        op_type: ignored; accepted for compatibility.
    """
    return lambda function: function


def deprecated(func_or_class: Function) -> Function:
    """Decorator: calls warn that the function is deprecated."""

    @functools.wraps(func_or_class)
    def call(*args: Any, **kwargs: Any) -> Any:
        name = func_or_class.__name__
        warnings.warn(f"API {name} is deprecated", DeprecationWarning, stacklevel=2)
        return func_or_class(*args, **kwargs)

    return call


def generate_activation_fn(op_type: str) -> Callable[..., Variable]:
    """The layer of an operator with one input and one output of the same shape.

    Args:
        op_type: the operator's type, such as ``"tanh"``.

    Raises:
        MissingKernelError: dpexec does not have this operator.
    """
    return unary_layer(opdef.get(op_type))
