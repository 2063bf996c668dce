"""Where data enters a program: ``fluid.layers.data`` and ``fluid.data``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import check_type
from dpexec.core.dtypes import VarType
from dpexec.ir.variable import Variable
from dpexec.layer_helper import LayerHelper

__all__ = ["data"]


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: VarType = VarType.LOD_TENSOR,
    stop_gradient: bool = True,
) -> Variable:
    """Declare a variable that is fed, without its batch dimension.

    Args:
        name: under which it is fed.
        shape: dimensions of one sample; with an unknown one (-1 or None) among them, all of them.
        append_batch_size: put an unknown batch dimension in front.
        dtype: element type.
        lod_level: nesting depth of sequences.
        type: what it holds.
        stop_gradient: whether gradients stop here.

    Raises:
        TypeError: the name is not a string, or the shape not a list or tuple.
    """
    check_type(name, "name", (str, bytes), "data")
    check_type(shape, "shape", (list, tuple), "data")
    dims = [-1 if dim is None else dim for dim in shape]
    if append_batch_size and all(dim >= 0 for dim in dims):
        dims = [-1, *dims]
    return LayerHelper("data", name=name).create_global_variable(
        name=name,
        shape=dims,
        dtype=dtype,
        type=type,
        stop_gradient=stop_gradient,
        lod_level=lod_level,
        is_data=True,
    )
