"""Ranking losses."""

from __future__ import annotations

from dpexec.checks import FLOATS, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs

__all__ = ["bpr_loss", "margin_rank_loss", "rank_loss"]


def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Variable:
    """Bayesian personalised ranking: the label should score above all other classes.

    Args:
        input: scores ``(N, classes)``.
        label: class indices, int64 ``(N, 1)``.
        name: prefix of names.

    Returns:
        Losses ``(N, 1)``. Source: Paddle op ``bpr_loss``; Hidasi and others, 2016.

    Raises:
        TypeError: ``input`` is no variable of type float16, float32 or float64.
        EnforceNotMet: ``label`` does not hold one integer for each row of ``input``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     scores = fluid.layers.assign(np.array([[2.0, 0.0, 1.0]], "float32"))
        ...     label = fluid.layers.assign(np.array([[0]], "int64"))
        ...     out = fluid.layers.bpr_loss(scores, label)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([[0.2201]], dtype=float32)
    """
    check_variable_and_dtype(input, "input", FLOATS, "bpr_loss")
    inputs = {"X": input, "Label": label}
    return add_op("bpr_loss", inputs, input.dtype, slot="Y", name=name)


def rank_loss(
    label: Variable, left: Variable, right: Variable, name: str | None = None
) -> Variable:
    """Cross entropy of "left ranks above right" (RankNet).

    Args:
        label: float32 ``(N, 1)``: 1 if left ranks above right, 0 if below, 0.5 for a tie.
        left: scores, float32 ``(N, 1)``.
        right: scores, float32 ``(N, 1)``.
        name: prefix of names.

    Returns:
        Losses ``(N, 1)``. Source: Paddle op ``rank_loss``; Burges and others, 2005.

    Raises:
        TypeError: ``label``, ``left`` or ``right`` is no variable of type float32.
        EnforceNotMet: an argument is neither a vector nor a matrix with one column.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     label = fluid.layers.assign(np.array([[1.0]], "float32"))
        ...     x = fluid.layers.assign(np.array([[0.2]], "float32"))
        ...     y = fluid.layers.assign(np.array([[0.2]], "float32"))
        ...     out = fluid.layers.rank_loss(label, x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([[0.6931]], dtype=float32)
    """
    inputs = {"Label": label, "Left": left, "Right": right}
    for slot, var in inputs.items():
        check_variable_and_dtype(var, slot.lower(), ("float32",), "rank_loss")
    return add_op("rank_loss", inputs, "float32", name=name)


def margin_rank_loss(
    label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None
) -> Variable:
    """``max(0, -label * (left - right) + margin)``.

    Args:
        label: float32 ``(N, 1)``: 1 if left ranks above right, -1 if below.
        left: scores, float32 ``(N, 1)``.
        right: scores, float32 ``(N, 1)``.
        margin: least wanted difference of the scores.
        name: prefix of names.

    Returns:
        Losses ``(N, 1)``. Source: Paddle op ``margin_rank_loss``.

    Raises:
        TypeError: ``label``, ``left`` or ``right`` is no variable of type float32.
        EnforceNotMet: the three shapes are not the same.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     label = fluid.layers.assign(np.array([[1.0]], "float32"))
        ...     x = fluid.layers.assign(np.array([[0.2]], "float32"))
        ...     y = fluid.layers.assign(np.array([[0.5]], "float32"))
        ...     out = fluid.layers.margin_rank_loss(label, x, y, margin=0.1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[0.4]], dtype=float32)]
    """
    for argument, var in (("label", label), ("left", left), ("right", right)):
        check_variable_and_dtype(var, argument, ("float32",), "margin_rank_loss")
    helper = LayerHelper("margin_rank_loss", name=name)
    inputs = {"Label": label, "X1": left, "X2": right}
    dtypes = {"Out": left.dtype, "Activated": left.dtype}
    return add_outputs(helper, inputs, dtypes, {"margin": margin})["Out"]
