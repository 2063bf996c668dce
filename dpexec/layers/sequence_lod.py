"""Sequences of different lengths that lie one after another in one tensor (LoD)."""

from __future__ import annotations

from dpexec.checks import check_variable_and_dtype
from dpexec.ir.variable import Variable
from dpexec.layer_helper import LayerHelper

__all__ = ["sequence_first_step", "sequence_last_step", "sequence_pool"]

_FLOATS = ("float32", "float64")


def sequence_pool(
    input: Variable, pool_type: str, is_test: bool = False, pad_value: float = 0.0
) -> Variable:
    """One row for every sequence of the finest level.

    Args:
        input: float32 or float64 ``(rows, ...)`` with one or two levels of sequences.
        pool_type: ``average``, ``sum``, ``sqrt`` (the sum divided by the root of the length),
            ``max``, ``last`` or ``first``.
        is_test: of ``max``: no gradient will be asked for.
        pad_value: the elements of sequences without rows.

    Returns:
        ``(sequences, ...)``, with one level less. Source: Paddle op ``sequence_pool``.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     words = fluid.data("words", [None, 8], lod_level=1)
        ...     fluid.layers.sequence_pool(words, "max").shape
        (-1, 8)
    """
    check_variable_and_dtype(input, "input", _FLOATS, "sequence_pool")
    helper = LayerHelper("sequence_pool")
    out = helper.create_variable_for_type_inference(input.dtype)
    index = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(
        type="sequence_pool",
        inputs={"X": input},
        outputs={"Out": out, "MaxIndex": index},
        attrs={"pooltype": pool_type.upper(), "is_test": is_test, "pad_value": pad_value},
    )
    if pool_type == "max":
        index.stop_gradient = True
    return out


def sequence_first_step(input: Variable) -> Variable:
    """The first row of every sequence.

    Args:
        input: float32 or float64 ``(rows, ...)`` with one or two levels of sequences.

    Returns:
        ``(sequences, ...)``, with one level less.
    """
    check_variable_and_dtype(input, "input", _FLOATS, "sequence_first_step")
    return sequence_pool(input, "first")


def sequence_last_step(input: Variable) -> Variable:
    """The last row of every sequence.

    Args:
        input: float32 or float64 ``(rows, ...)`` with one or two levels of sequences.

    Returns:
        ``(sequences, ...)``, with one level less.
    """
    check_variable_and_dtype(input, "input", _FLOATS, "sequence_last_step")
    return sequence_pool(input, "last")
