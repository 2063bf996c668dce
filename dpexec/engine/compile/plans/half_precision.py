"""Half precision: kept in 16 bits, computed in 32 where the array library would do worse.

NumPy calculates with float16 number by number and rounds every partial sum of a product or a
reduction. GPUs add up in float32; CuPy is left to it, but for operators that mix both types
(batch_norm with its float32 statistics).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.operator import Operator

__all__ = ["computes_in_single", "rounding", "widening"]


def computes_in_single(op: Operator, xp: Any) -> bool:
    """Whether the float16 inputs of an operator go into its kernel as float32.

    Args:
        op: the operator; one that may overwrite a float16 input takes it as it is, and one that
            has a body leaves the choice to the operators there.
        xp: ``numpy`` or ``cupy``.
    """
    found = {_dtype(op, name) for name in op.input_arg_names}
    if VarType.FP16 not in found or "sub_block" in op.attrs:
        return False
    overwritten = (n for slot in op.definition.inplace.values() for n in op.inputs.get(slot, []))
    if any(_dtype(op, name) == VarType.FP16 for name in overwritten):
        return False
    return xp is np or VarType.FP32 in found


def _dtype(op: Operator, name: str) -> VarType | None:
    var = op.block._find_var_recursive(name)
    return None if var is None else var.dtype


def widening(arguments: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    """``arguments``, with the float16 arrays among them as float32."""
    return lambda env: [_wide(value) for value in arguments(env)]


def _wide(value: Any) -> Any:
    if isinstance(value, list):
        return [_wide(item) for item in value]
    return _converted(value, np.float16, np.float32)


def _converted(value: Any, source: type, target: type) -> Any:
    if isinstance(value, SelectedRows):
        return SelectedRows(value.row_array, value.height_, _converted(value.value, source, target))
    return value.astype(target) if getattr(value, "dtype", None) == source else value


def rounding(
    store: Callable[[Any, Any], None], op: Operator, names: Iterable[str]
) -> Callable[[Any, Any], None]:
    """``store``, with float32 arrays rounded for the variables that hold float16.

    Args:
        store: puts results into an env.
        op: the operator that made them.
        names: its outputs.
    """
    halves = [name for name in names if _dtype(op, name) == VarType.FP16]

    def store_rounded(env: Any, results: Any) -> None:
        store(env, results)
        for name in halves:
            if name in env:
                env[name] = _converted(env[name], np.float32, np.float16)

    return store_rounded
