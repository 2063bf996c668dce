"""Small query functions of ``fluid.core``."""

from __future__ import annotations

from dpexec.engine.core.dtypes import as_var_type, to_numpy
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.scope import Scope
from dpexec.engine.core.tensors import LoDTensor

__all__ = [
    "get_variable_tensor",
    "is_compiled_with_brpc",
    "is_compiled_with_dist",
    "is_compiled_with_mkldnn",
    "size_of_dtype",
]


def is_compiled_with_brpc() -> bool:
    """False: parameter servers use dpexec's own protocol."""
    return False


def is_compiled_with_dist() -> bool:
    """True: trainers and parameter servers are supported."""
    return True


def is_compiled_with_mkldnn() -> bool:
    """False: ``use_mkldnn`` has no effect; kernels are chosen by measurements."""
    return False


def size_of_dtype(dtype: object) -> int:
    """The size of an element of a data type, in bytes."""
    return to_numpy(as_var_type(dtype)).itemsize


def get_variable_tensor(scope: Scope, name: str) -> LoDTensor:
    """The tensor of a variable.

    Raises:
        EnforceNotMet: the scope has no such variable.
    """
    found = scope.find_var(name)
    if found is None:
        raise EnforceNotMet(f"there is no variable {name} in this scope")
    return found.get_tensor()
