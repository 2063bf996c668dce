"""``fluid.data``: declares variables that are fed, and has every feed checked against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import check_type
from dpexec.engine.arguments.converted import as_name
from dpexec.engine.ir.undo import whole
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper

__all__ = ["data"]


@whole
def data(
    name: str, shape: Sequence[int | None], dtype: Any = "float32", lod_level: int = 0
) -> Variable:
    """Declare a variable that is fed; feeds must match its shape and type.

    Args:
        name: the key in feeds.
        shape: all dimensions; None or -1 for any size, such as the batch's.
        dtype: element type.
        lod_level: nesting depth of sequences.

    Returns:
        The variable, of which no gradient is computed unless its ``stop_gradient`` is set to False.

    Raises:
        TypeError: the name is not a string, or the shape not a list or tuple.

    See Also:
        :func:`~dpexec.layers.data`: the older form, which prepends the batch size.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", shape=[None, 784])
        ...     words = fluid.data("words", shape=[None, 1], dtype="int64", lod_level=1)
        ...     x.shape, words.lod_level
        ((-1, 784), 1)
    """
    check_type(name, "name", (str, bytes), "data")
    check_type(shape, "shape", (list, tuple), "data")
    name = as_name(name)
    return LayerHelper("data", name=name).create_data(
        name,
        shape=shape,
        dtype=dtype,
        stop_gradient=True,
        lod_level=lod_level,
        need_check_feed=True,
    )
