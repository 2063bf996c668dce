"""Sequences sorted by length, as recurrent nets process them: the building blocks of DynamicRNN."""

from __future__ import annotations

from dpexec.checks import check_type
from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op

__all__ = ["reorder_lod_tensor_by_rank"]


def lod_rank_table(x: Variable, level: int = 0) -> Variable:
    """The sequences of ``x`` sorted by length, the longest first.

    Args:
        x: a tensor with sequences.
        level: level of sequences to sort.

    Returns:
        A ``LoDRankTable`` variable. Source: Paddle op ``lod_rank_table``.

    Raises:
        TypeError: not a variable.
        EnforceNotMet: there is no such level.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec.layers import control_flow
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 1], lod_level=1)
        ...     table = control_flow.lod_rank_table(x)
        ...     steps = control_flow.lod_tensor_to_array(x, table)
        ...     first = fluid.layers.array_read(steps, fluid.layers.fill_constant([1], "int64", 0))
        ...     rows = np.array([[1], [2], [3], [4], [5]], "float32")  # sequences 1 2 and 3 4 5
        ...     feed = {"x": fluid.create_lod_tensor(rows, [[2, 3]], fluid.CPUPlace())}
        ...     (found,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[first])
        >>> found.tolist()
        [[3.0], [1.0]]
    """
    check_type(x, "x", (Variable, list), "lod_rank_table")
    helper = LayerHelper("lod_rank_table")
    table: Variable = helper.create_variable(
        type=VarType.LOD_RANK_TABLE, name=unique_name.generate("lod_rank_table")
    )
    helper.append_op("lod_rank_table", {"X": x}, {"Out": table}, {"level": level})
    return table


def max_sequence_len(rank_table: Variable) -> Variable:
    """The length of the longest sequence.

    Args:
        rank_table: a ``LoDRankTable``.

    Returns:
        int64 ``(1,)``. Source: Paddle op ``max_sequence_len``.

    Raises:
        EnforceNotMet: ``rank_table`` is not made by ``lod_rank_table``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec.layers.control_flow import lod_rank_table, max_sequence_len
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 1], lod_level=1)
        ...     longest = max_sequence_len(lod_rank_table(x))
        ...     rows = np.zeros([5, 1], "float32")
        ...     feed = {"x": fluid.create_lod_tensor(rows, [[2, 3]], fluid.CPUPlace())}
        ...     fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[longest])
        [array([3])]
    """
    options = {"RankTable": rank_table}
    return add_op("max_sequence_len", options, "int64", layer="max_seqence_len")


def lod_tensor_to_array(x: Variable, table: Variable) -> Variable:
    """An array with one entry per time step: that step of all sequences that have it.

    Args:
        x: a tensor with sequences.
        table: the ``LoDRankTable`` of the sequences; determines their order in the entries.

    Returns:
        A ``LoDTensorArray``. Source: Paddle op ``lod_tensor_to_array``.

    Raises:
        TypeError: an argument is no variable.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec.layers import control_flow
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 1], lod_level=1)
        ...     steps = control_flow.lod_tensor_to_array(x, control_flow.lod_rank_table(x))
        ...     second = fluid.layers.array_read(steps, fluid.layers.fill_constant([1], "int64", 1))
        ...     rows = np.array([[1], [2], [3], [4], [5]], "float32")  # sequences 1 2 and 3 4 5
        ...     feed = {"x": fluid.create_lod_tensor(rows, [[2, 3]], fluid.CPUPlace())}
        ...     (found,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[second])
        >>> found.tolist()  # the longest sequence first
        [[4.0], [2.0]]
    """
    check_type(x, "x", (Variable, list), "lod_tensor_to_array")
    check_type(table, "table", (Variable, list), "lod_tensor_to_array")
    helper = LayerHelper("lod_tensor_to_array")
    array: Variable = helper.create_variable(
        name=unique_name.generate("lod_tensor_to_array"),
        type=VarType.LOD_TENSOR_ARRAY,
        dtype=x.dtype,
    )
    helper.append_op("lod_tensor_to_array", {"X": x, "RankTable": table}, {"Out": array})
    return array


def array_to_lod_tensor(x: Variable, table: Variable) -> Variable:
    """The sequences whose time steps an array holds; inverts ``lod_tensor_to_array``.

    Args:
        x: a ``LoDTensorArray`` of time steps.
        table: the ``LoDRankTable`` of the sequences.

    Returns:
        A tensor with sequences. Source: Paddle op ``array_to_lod_tensor``.

    Raises:
        TypeError: an argument is no variable.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec.layers import control_flow
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 1], lod_level=1)
        ...     table = control_flow.lod_rank_table(x)
        ...     steps = control_flow.lod_tensor_to_array(x, table)
        ...     same = control_flow.array_to_lod_tensor(steps, table)
        ...     rows = np.array([[1], [2], [3]], "float32")
        ...     feed = {"x": fluid.create_lod_tensor(rows, [[1, 2]], fluid.CPUPlace())}
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(feed=feed, fetch_list=[same], return_numpy=False)
        >>> np.array(found).tolist(), found.recursive_sequence_lengths()
        ([[1.0], [2.0], [3.0]], [[1, 2]])
    """
    check_type(x, "x", (Variable, list), "array_to_lod_tensor")
    check_type(table, "table", (Variable, list), "array_to_lod_tensor")
    return add_op("array_to_lod_tensor", {"X": x, "RankTable": table}, x.dtype)


def shrink_memory(x: Variable, i: Variable, table: Variable) -> Variable:
    """The rows, or sequences, of ``x`` that belong to sequences longer than ``i``.

    Args:
        x: a tensor sorted in the order of the table.
        i: index of the time step, int64, one element.
        table: the ``LoDRankTable`` of the sequences.

    Returns:
        The first rows, or sequences. Source: Paddle op ``shrink_rnn_memory``.

    Raises:
        EnforceNotMet: ``table`` is not made by ``lod_rank_table``, or ``i`` is not one int64.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec.layers import control_flow
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 1], lod_level=1)
        ...     table = control_flow.lod_rank_table(x)
        ...     state = fluid.layers.assign(np.array([[10], [20]], "float32"))  # a row per sequence
        ...     step = fluid.layers.fill_constant([1], "int64", 2)  # one sequence has a third step
        ...     left = control_flow.shrink_memory(state, step, table)
        ...     rows = np.zeros([5, 1], "float32")
        ...     feed = {"x": fluid.create_lod_tensor(rows, [[2, 3]], fluid.CPUPlace())}
        ...     fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[left])
        [array([[10.]], dtype=float32)]
    """
    inputs = {"X": x, "I": i, "RankTable": table}
    return add_op("shrink_rnn_memory", inputs, x.dtype, layer="shrink_memory")


def reorder_lod_tensor_by_rank(x: Variable, rank_table: Variable) -> Variable:
    """The sequences of ``x``, or its rows if it has none, in the order of a table.

    Args:
        x: a tensor with as many sequences (or rows) as the table.
        rank_table: the ``LoDRankTable`` of another tensor.

    Returns:
        The same shape. Source: Paddle op ``reorder_lod_tensor_by_rank``.

    Raises:
        TypeError: an argument has the wrong type.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 1], lod_level=1)
        ...     table = fluid.layers.control_flow.lod_rank_table(x)  # the longest sequence first
        ...     out = fluid.layers.reorder_lod_tensor_by_rank(x, table)
        ...     rows = np.array([[1], [2], [3]], "float32")
        ...     feed = {"x": fluid.create_lod_tensor(rows, [[1, 2]], fluid.CPUPlace())}
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(feed=feed, fetch_list=[out], return_numpy=False)
        >>> np.array(found).tolist(), found.recursive_sequence_lengths()
        ([[2.0], [3.0], [1.0]], [[2, 1]])
    """
    check_type(x, "x", Variable, "reorder_lod_tensor_by_rank")
    check_type(rank_table, "rank_table", Variable, "reorder_lod_tensor_by_rank")
    if rank_table.type != VarType.LOD_RANK_TABLE:
        raise TypeError("The type of rank_table should be LOD_RANK_TABLE.")
    return add_op("reorder_lod_tensor_by_rank", {"X": x, "RankTable": rank_table}, x.dtype)
