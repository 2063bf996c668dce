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
    """Decorator: prepend ``comment`` to the documentation of a layer.

    Args:
        comment: text to put in front.

    Returns:
        A decorator.

    Example:
        >>> from dpexec.layers.layer_function_generator import autodoc
        >>> @autodoc("Doubles. ")
        ... def twice(x):
        ...     "For vectors."
        ...     return 2 * x
        >>> twice.__doc__
        'Doubles. For vectors.'
    """

    def decorate(function: Function) -> Function:
        function.__doc__ = comment + (function.__doc__ or "")
        return function

    return decorate


def templatedoc(op_type: str | None = None) -> Callable[[Function], Function]:
    """Decorator that returns the layer unchanged; it does not fill in the documentation.

    Args:
        op_type: ignored; accepted for compatibility.

    Returns:
        A decorator.

    Example:
        >>> from dpexec.layers.layer_function_generator import templatedoc
        >>> @templatedoc()
        ... def layer(x):
        ...     "${comment}"
        ...     return x
        >>> layer.__doc__  # stays as written
        '${comment}'
    """
    return lambda function: function


def deprecated(func_or_class: Function) -> Function:
    """Decorator: calls warn that the function is deprecated.

    Args:
        func_or_class: the layer.

    Returns:
        The layer, which warns and then does as before.

    Example:
        >>> import warnings
        >>> from dpexec.layers.layer_function_generator import deprecated
        >>> @deprecated
        ... def old():
        ...     return 5
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     print(old())
        5
        >>> caught[0].category.__name__
        'DeprecationWarning'
    """

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

    Returns:
        The layer; its arguments are ``x`` and ``name``.

    Raises:
        MissingKernelError: dpexec does not have this operator.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec.layers.layer_function_generator import generate_activation_fn
        >>> ceil = generate_activation_fn("ceil")
        >>> with fluid.program_guard(fluid.Program()):
        ...     out = ceil(fluid.layers.assign(np.array([0.2, -0.2], "float32")))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([ 1., -0.], dtype=float32)]
    """
    return unary_layer(opdef.get(op_type))
