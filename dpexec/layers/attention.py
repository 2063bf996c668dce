"""Position encodings, and a similarity mask."""

from __future__ import annotations

from dpexec.checks import SINGLE_DOUBLE, check_choice, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import add_op

__all__ = ["add_position_encoding", "similarity_focus"]


def add_position_encoding(
    input: Variable, alpha: float, beta: float, name: str | None = None
) -> Variable:
    """``alpha * input + beta * encoding``, with sinusoidal position encodings.

    Args:
        input: ``(N, positions, width)``, or sequences of ``(rows, width)``; the width even.
        alpha: factor of the input.
        beta: factor of the encoding.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``add_position_encoding``; Vaswani and others, 2017.

    Raises:
        TypeError: ``input`` is no variable of type float32 or float64.
        EnforceNotMet: ``input`` has no such shape, its width is odd, or ``alpha`` or ``beta`` is
            negative.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 10, 8])
        ...     fluid.layers.add_position_encoding(x, alpha=1.0, beta=1.0).shape
        (-1, 10, 8)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "add_position_encoding")
    attrs = {"alpha": alpha, "beta": beta}
    return add_op("add_position_encoding", {"X": input}, input.dtype, attrs, name=name)


def similarity_focus(
    input: Variable, axis: int, indexes: list[int], name: str | None = None
) -> Variable:
    """A mask of the largest elements of slices, at most one for each row and column.

    Args:
        input: ``(N, A, B, C)``.
        axis: axis to slice along: 1, 2 or 3.
        indexes: numbers of the slices.
        name: prefix of names.

    Returns:
        Ones and zeros in the same shape, the same all along ``axis``. Source: Paddle op
        ``similarity_focus``; He and Lin, 2016.

    Raises:
        ValueError: ``axis`` or ``indexes`` are out of range.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[[[0.9, 0.8], [0.7, 0.1]]]], "float32"))
        ...     out = fluid.layers.similarity_focus(x, axis=1, indexes=[0])
        ...     (found,) = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        >>> found.tolist()  # 0.9 takes its row and column; what is left is 0.1
        [[[[1.0, 0.0], [0.0, 1.0]]]]
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "similarity_focus")
    check_type(axis, "axis", int, "similarity_focus")
    check_type(indexes, "indexes", list, "similarity_focus")
    check_choice(axis, "axis", (1, 2, 3), "similarity_focus")
    if not indexes:
        raise ValueError("similarity_focus needs indexes, but they are empty")
    attrs = {"axis": axis, "indexes": indexes}
    return add_op("similarity_focus", {"X": input}, input.dtype, attrs, name=name)
