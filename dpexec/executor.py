"""``fluid.executor``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import to_numpy
from dpexec.engine.core.places import Place
from dpexec.engine.core.scope import Scope, global_scope, scope_guard
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.executors.dataset_runs import FetchHandler
from dpexec.engine.executors.executor import Executor
from dpexec.engine.ir.feed_fetch import has_feed_operators, has_fetch_operators  # noqa: F401  fluid's

__all__ = ["Executor", "FetchHandler", "as_numpy", "global_scope", "scope_guard"]


def _as_lodtensor(data: Any, place: Place, dtype: Any = None) -> LoDTensor:
    """An array as a tensor; for a Python number ``dtype`` is required."""
    if isinstance(data, list):
        raise RuntimeError(
            "Some of your feed data hold LoD information. They can not be completely cast from a "
            "list of Python ndarray to LoDTensor. Please convert data to LoDTensor directly "
            "before feeding the data."
        )
    if np.isscalar(data):
        if dtype is None:
            raise AssertionError("dtype should be given when casting python scalar to tensor")
        data = np.array([data]).astype(to_numpy(dtype))
    tensor = LoDTensor()
    tensor.set(data, place)
    return tensor


def as_numpy(tensor: Any) -> Any:
    """Convert a tensor to an array, and a list of tensors to a list of arrays; None stays None.

    Args:
        tensor: a tensor, a list of tensors, or None.

    Returns:
        An array, a list of arrays, or None.

    Raises:
        RuntimeError: a tensor holds sequences.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> tensor = fluid.LoDTensor()
        >>> tensor.set(np.array([1.0, 2.0]), fluid.CPUPlace())
        >>> fluid.executor.as_numpy(tensor)
        array([1., 2.])
    """
    if isinstance(tensor, list):
        return [as_numpy(part) for part in tensor]
    if isinstance(tensor, LoDTensor) and tensor.lod():
        raise RuntimeError(
            "Some of your fetched tensors hold LoD information. They can not be completely cast "
            "to Python ndarray. Please set the parameter 'return_numpy' as 'False' to return "
            "LoDTensor itself directly."
        )
    return None if tensor is None else np.array(tensor)


def _fetch_var(name: str, scope: Scope | None = None, return_numpy: bool = True) -> Any:
    """The value of a variable in a scope."""
    if not isinstance(name, str):
        raise AssertionError(f"name must be a str, not {name!r}")
    holder = (global_scope() if scope is None else scope).find_var(name)
    if holder is None:
        raise AssertionError(
            f"Cannot find {name} in scope. Perhaps you need to make the variable persistable by "
            "using var.persistable = True in your program."
        )
    tensor = holder.get_tensor()
    return np.array(tensor) if return_numpy else tensor
