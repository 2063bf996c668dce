"""``fluid.dygraph``: eager execution. dpexec has none: it runs programs.

Packages that can do both import names from here and derive their classes from ``Layer``. That
works; calling one of these names raises an error.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NoReturn

__all__ = ["disable_dygraph", "enable_dygraph", "enabled"]

_MODULES = {
    "backward_strategy",
    "base",
    "checkpoint",
    "container",
    "dygraph_to_static",
    "io",
    "jit",
    "layers",
    "learning_rate_scheduler",
    "nn",
    "parallel",
    "parallel_helper",
    "profiler",
    "static_runner",
    "tracer",
}
"""fluid's own modules below this one; here they are all the same."""

_FUNCTIONS = {
    "declarative",
    "dygraph_only",
    "dygraph_to_static_func",
    "grad",
    "guard",
    "load_dygraph",
    "no_grad",
    "param_guard",
    "prepare_context",
    "save_dygraph",
    "seed",
    "to_variable",
}
"""fluid's functions here; all other names are of classes."""

__path__: list[str] = []  # imports look for them


def enabled() -> bool:
    """Always False: there is no eager mode.

    Returns:
        False.

    Example:
        >>> from dpexec import dygraph
        >>> dygraph.enabled()
        False
    """
    return False


def enable_dygraph(place: Any = None) -> NoReturn:
    """Raise an error: there is no eager mode.

    Args:
        place: ignored; accepted for compatibility.

    Raises:
        RuntimeError: always.

    Example:
        >>> import dpexec as fluid
        >>> try:
        ...     fluid.enable_dygraph()
        ... except RuntimeError as error:
        ...     print(str(error)[:38])
        fluid.enable_dygraph is not supported:
    """
    raise _error("enable_dygraph")


def disable_dygraph() -> None:
    """Do nothing: there is no eager mode to leave.

    Example:
        >>> import dpexec as fluid
        >>> fluid.disable_dygraph()
        >>> fluid.in_dygraph_mode()
        False
    """


enable_imperative, disable_imperative = enable_dygraph, disable_dygraph  # older names


def _error(name: str) -> RuntimeError:
    return RuntimeError(
        f"fluid.{name} is not supported: it executes eagerly; dpexec runs programs, made of "
        "fluid.layers"
    )


class _Refused(type):
    """The type of names that can be imported and derived from, but not called."""

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise _error(f"dygraph.{cls.__name__}")


def __getattr__(name: str) -> ModuleType | _Refused:
    """Any other name of ``fluid.dygraph``."""
    if name in _MODULES:
        return sys.modules[__name__]
    if name in _FUNCTIONS or name[0].isupper():
        return _Refused(name, (), {})
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
