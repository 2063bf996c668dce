"""Padded sequences: masks, and results of a beam search."""

from __future__ import annotations

from typing import Any

from dpexec.checks import INTEGERS, check_type, check_variable_and_dtype
from dpexec.engine.core.dtypes import as_var_type
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import add_op

__all__ = ["gather_tree", "sequence_mask"]


def sequence_mask(
    x: Variable, maxlen: int | Variable | None = None, dtype: Any = "int64", name: str | None = None
) -> Variable:
    """Masks of sequences: ones up to each length, then zeros.

    Args:
        x: lengths, of any shape.
        maxlen: size of the masks, a number or a one-element int32 variable; by default the largest
            length.
        dtype: element type of the result.
        name: prefix of names.

    Returns:
        The shape of ``x`` with one more dimension; gradients stop here. Source: Paddle op
        ``sequence_mask``.

    Raises:
        EnforceNotMet: ``maxlen`` is neither positive nor -1.

    See Also:
        :func:`sequence_pad`: to rows of equal length.
        :func:`sequence_unpad`: back to sequences.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1, 3], "int32"))
        ...     out = fluid.layers.sequence_mask(x, maxlen=3, dtype="float32")
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[1., 0., 0.],
               [1., 1., 1.]], dtype=float32)]
    """
    check_type(x, "x", (Variable, str), "sequence_mask")
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {"out_dtype": as_var_type(dtype)}
    if isinstance(maxlen, Variable):
        inputs["MaxLenTensor"] = maxlen
    elif maxlen is not None:
        attrs["maxlen"] = maxlen
    return add_op("sequence_mask", inputs, dtype, attrs, slot="Y", name=name, stop_gradient=True)


def gather_tree(ids: Variable, parents: Variable) -> Variable:
    """Whole sequences from the steps of a beam search.

    Args:
        ids: tokens, int32 or int64 ``(steps, N, beams)``.
        parents: the beam of the previous step that each token continues, in the shape of ``ids``.

    Returns:
        All tokens of every beam of the last step, in the shape of ``ids``. Source: Paddle op
        ``gather_tree``.

    Raises:
        TypeError: ``ids`` or ``parents`` is no variable of type int32 or int64.
        EnforceNotMet: ``ids`` and ``parents`` are not both ``(steps, samples, beams)``.

    See Also:
        :func:`beam_search`: one step of a search.
        :func:`beam_search_decode`: its sentences.
        :func:`dynamic_decode`: a whole search, with a decoder.
        :class:`BeamSearchDecoder`: the decoder that searches.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     ids = fluid.layers.assign(np.array([[[2, 2]], [[3, 9]]], "int64"))
        ...     parents = fluid.layers.assign(np.array([[[0, 0]], [[1, 0]]], "int64"))
        ...     out = fluid.layers.gather_tree(ids, parents)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[[2, 2]],
        <BLANKLINE>
               [[3, 9]]])]
    """
    check_variable_and_dtype(ids, "ids", INTEGERS, "gather_tree")
    check_variable_and_dtype(parents, "parents", INTEGERS, "gather_tree")
    return add_op("gather_tree", {"Ids": ids, "Parents": parents}, ids.dtype)
