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
    """False: parameter servers use dpexec's own protocol.

    Returns:
        False.

    Example:
        >>> from dpexec import core
        >>> core.is_compiled_with_brpc()
        False
    """
    return False


def is_compiled_with_dist() -> bool:
    """True: trainers and parameter servers are supported.

    Returns:
        True.

    Example:
        >>> from dpexec import core
        >>> core.is_compiled_with_dist()
        True
    """
    return True


def is_compiled_with_mkldnn() -> bool:
    """False: ``use_mkldnn`` has no effect; kernels are chosen by measurements.

    Returns:
        False.

    Example:
        >>> from dpexec import core
        >>> core.is_compiled_with_mkldnn()
        False
    """
    return False


def size_of_dtype(dtype: object) -> int:
    """The size of an element of a data type, in bytes.

    Args:
        dtype: a ``VarType`` such as ``fluid.core.VarType.FP32``.

    Returns:
        The size, 4 for float32.

    Raises:
        TypeError: ``dtype`` is no type of tensors.

    Example:
        >>> from dpexec import core
        >>> [core.size_of_dtype(kind) for kind in (core.VarType.FP32, core.VarType.INT64)]
        [4, 8]
    """
    return to_numpy(as_var_type(dtype)).itemsize


def get_variable_tensor(scope: Scope, name: str) -> LoDTensor:
    """The tensor of a variable.

    Args:
        scope: where the variable is looked up, and in the parents of this scope.
        name: name of the variable.

    Returns:
        The tensor itself; changes of it are seen by the next run.

    Raises:
        EnforceNotMet: the scope has no such variable.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> scope = fluid.Scope()
        >>> scope.var("w").get_tensor().set(np.ones([2, 3], "float32"), fluid.CPUPlace())
        >>> fluid.core.get_variable_tensor(scope, "w").shape()
        [2, 3]
    """
    found = scope.find_var(name)
    if found is None:
        raise EnforceNotMet(f"there is no variable {name} in this scope")
    return found.get_tensor()
