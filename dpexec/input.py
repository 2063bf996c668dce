"""``fluid.embedding`` and ``fluid.one_hot``: ids without the trailing dimension of 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.ir.undo import whole
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import add_op, number_or_tensor
from dpexec.layers.nn import lookup

__all__ = ["embedding", "one_hot"]


@whole
def one_hot(input: Variable, depth: int | Variable, allow_out_of_range: bool = False) -> Variable:
    """Ids as rows with a single 1.

    Args:
        input: ids of any shape.
        depth: width of the rows.
        allow_out_of_range: give zeros for ids outside ``[0, depth)`` instead of an error.

    Returns:
        float32 ``input.shape + (depth,)``. Source: Paddle op ``one_hot_v2``.

    Raises:
        TypeError: ``input`` is no variable.
        EnforceNotMet: ``input`` does not hold int32 or int64, or ``depth`` is not positive.

    See Also:
        :func:`~dpexec.layers.one_hot`: the older form, for indices with a last axis of 1.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     fluid.one_hot(fluid.data("label", [None], "int64"), depth=10).shape
        (-1, 10)
    """
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {"allow_out_of_range": allow_out_of_range}
    number_or_tensor(depth, "depth_tensor", "depth", inputs, attrs)
    return add_op("one_hot_v2", inputs, "float32", attrs)


@whole
def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Rows of a trainable table.

    Args:
        input: int64 ids of any shape.
        size: ``[rows, width]`` of the table.
        is_sparse: make the gradient sparse: it holds only the rows that were read.
        is_distributed: keep the table on parameter servers only, not on trainers; needs is_sparse.
        padding_idx: this id (counted from the end if negative) gives zeros and gets no gradient.
        param_attr: attributes of the table.
        dtype: element type of the table.

    Returns:
        Shape ``input.shape + (width,)``. Source: Paddle op ``lookup_table_v2``.

    Raises:
        TypeError: ``input`` does not hold int64, or ``size`` is not two integers.

    See Also:
        :func:`~dpexec.layers.embedding`: the older form, for ids with a last axis of 1.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     words = fluid.data("words", [None, 7], "int64")
        ...     fluid.embedding(words, size=[1000, 16]).shape
        (-1, 7, 16)
    """
    return lookup(
        "lookup_table_v2", input, size, is_sparse, is_distributed, padding_idx, param_attr, dtype
    )
