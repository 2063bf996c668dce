"""Names of Paddle's C++ binding that a few programs call, though nothing here depends on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.places import CPUPlace
from dpexec.engine.core.scope import Scope
from dpexec.engine.core.tensors import LoDTensor

__all__ = [
    "__unittest_throw_exception__",
    "_create_loaded_parameter",
    "_set_eager_deletion_mode",
    "empty_var_name",
    "from_dlpack",
    "grad_var_suffix",
    "kEmptyVarName",
]


def grad_var_suffix() -> str:
    """The suffix of the names of gradients.

    Returns:
        ``"@GRAD"``.

    Example:
        >>> from dpexec import core
        >>> "fc_0.w_0" + core.grad_var_suffix()
        'fc_0.w_0@GRAD'
    """
    return "@GRAD"


def empty_var_name() -> str:
    """The name that stands for a gradient that is not needed.

    Returns:
        ``"@EMPTY@"``.

    Example:
        >>> from dpexec import core
        >>> core.empty_var_name()
        '@EMPTY@'
    """
    return "@EMPTY@"


kEmptyVarName = empty_var_name


def _set_eager_deletion_mode(threshold: float, fraction: float, fast: bool) -> None:
    """Accepted: temporaries are always freed after their last use."""


def _create_loaded_parameter(variables: Iterable[Any], scope: Scope, executor: Any) -> None:
    """Make tensors of zeros in a scope for those variables that have no value there."""
    for var in variables:
        tensor = scope.var(var.name).get_tensor()
        if not tensor._is_initialized():
            tensor._set_dims(var.shape)
            tensor._mutable_data(CPUPlace(), var.dtype)


class _Capsule:
    """Wraps a DLPack capsule of host memory with the methods that NumPy calls."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU of dlpack.h


def from_dlpack(capsule: Any) -> LoDTensor:
    """The tensor of a DLPack capsule, with its memory.

    Args:
        capsule: of host memory, as ``LoDTensor._to_dlpack`` gives it; used up.

    Returns:
        A tensor that shares the memory.

    Raises:
        ValueError: ``capsule`` is no capsule of DLPack.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> numbers = np.arange(3, dtype="float32")
        >>> tensor = fluid.core.from_dlpack(numbers.__dlpack__())
        >>> numbers[0] = 7  # the memory is shared, nothing was copied
        >>> np.array(tensor)
        array([7., 1., 2.], dtype=float32)
    """
    made = LoDTensor()
    made.array = np.from_dlpack(_Capsule(capsule))
    return made


def __unittest_throw_exception__() -> NoReturn:
    """Raise what the runtime raises for a broken rule.

    Raises:
        EnforceNotMet: always.
    """
    raise EnforceNotMet("This is a test of exception")
