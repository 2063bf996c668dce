"""Small questions that tools ask ``fluid.core``."""

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
    """False: parameter servers have a protocol of their own."""
    return False


def is_compiled_with_dist() -> bool:
    """True: there are trainers and parameter servers."""
    return True


def is_compiled_with_mkldnn() -> bool:
    """False: ``use_mkldnn`` has no effect; which kernels run follows from measurements."""
    return False


def size_of_dtype(dtype: object) -> int:
    """Bytes of an element of a data type."""
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
