"""Names of Paddle's C++ binding that a few programs call, though nothing here depends on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from dpexec.core.places import CPUPlace
from dpexec.core.scope import Scope
from dpexec.errors import EnforceNotMet

__all__ = [
    "__unittest_throw_exception__",
    "_create_loaded_parameter",
    "_set_eager_deletion_mode",
]


def _set_eager_deletion_mode(threshold: float, fraction: float, fast: bool) -> None:
    """Accepted: temporaries are always freed after their last use."""


def _create_loaded_parameter(variables: Iterable[Any], scope: Scope, executor: Any) -> None:
    """Make tensors of zeros in a scope for those variables that have no value there."""
    for var in variables:
        tensor = scope.var(var.name).get_tensor()
        if not tensor._is_initialized():
            tensor._set_dims(var.shape)
            tensor._mutable_data(CPUPlace(), var.dtype)


def __unittest_throw_exception__() -> NoReturn:
    """Raise what the runtime raises for a broken rule.

    Raises:
        EnforceNotMet: always.
    """
    raise EnforceNotMet("This is a test of exception")
