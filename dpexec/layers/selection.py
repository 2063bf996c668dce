"""Layers that select and count elements by value or index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import INTEGERS, NO_HALF, check_type, check_variable_and_dtype, convert_dtype
from dpexec.engine.core.dtypes import as_var_type
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs
from dpexec.layers.indexing import slice, where

__all__ = [
    "filter_by_instag",
    "hash",
    "index_sample",
    "index_select",
    "multiplex",
    "nonzero",
    "shard_index",
    "unique",
    "unique_with_counts",
]


def filter_by_instag(
    ins: Variable,
    ins_tag: Variable,
    filter_tag: Variable,
    is_lod: bool,
    out_val_if_empty: int = 0,
) -> list[Variable]:
    """The samples that have at least one of the given tags.

    Args:
        ins: samples: rows, or sequences of rows.
        ins_tag: tags of the samples, int64, one sequence per sample.
        filter_tag: the tags to select, int64.
        is_lod: whether samples are sequences.
        out_val_if_empty: value of the single row that is returned if no sample has such a tag.

    Returns:
        The selected samples, and a weight of 1 for each, ``(samples, 1)``, or one 0 if there are
        none. Source: Paddle op ``filter_by_instag``.

    Raises:
        EnforceNotMet: ``ins_tag`` or ``filter_tag`` does not hold int64, or ``ins`` no floats.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1], [2], [3]], "float32"))
        ...     tags = fluid.data("tags", [None, 1], "int64", lod_level=1)
        ...     wanted = fluid.layers.assign(np.array([7], "int64"))
        ...     out, weights = fluid.layers.filter_by_instag(x, tags, wanted, is_lod=False)
        ...     numbers = np.array([[7], [5], [6], [7]], "int64")  # the tags 7; 5 and 6; 7
        ...     feed = {"tags": fluid.create_lod_tensor(numbers, [[1, 2, 1]], fluid.CPUPlace())}
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     found = exe.run(feed=feed, fetch_list=[out, weights], return_numpy=False)
        >>> [np.array(value).tolist() for value in found]
        [[[1.0], [3.0]], [[1.0], [1.0]]]
    """
    inputs = {"Ins": ins, "Ins_tag": ins_tag, "Filter_tag": filter_tag}
    dtypes = {"Out": ins.dtype, "LossWeight": "float64", "IndexMap": ins_tag.dtype}
    attrs = {"is_lod": is_lod, "out_val_if_empty": out_val_if_empty}
    made = add_outputs(LayerHelper("filter_by_instag"), inputs, dtypes, attrs)
    return [made["Out"], made["LossWeight"]]


def index_sample(x: Variable, index: Variable) -> Variable:
    """Elements of every row by index: ``out[i, j] = x[i, index[i, j]]``.

    Args:
        x: ``(N, M)``.
        index: int32 or int64 ``(N, K)``.

    Returns:
        ``(N, K)``. Source: Paddle op ``index_sample``.

    Raises:
        TypeError: ``x`` is no variable of type float32, float64, int32 or int64; ``index`` is no
            variable of type int32 or int64.
        EnforceNotMet: the arguments are no matrices with equally many rows.

    See Also:
        :func:`gather`: whole rows by number.
        :func:`gather_nd`: by several indices.
        :func:`index_select`: along any axis.
        :func:`slice`: a range.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
        ...     index = fluid.layers.assign(np.array([[1], [0]], "int32"))
        ...     out = fluid.layers.index_sample(x, index)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[2.],
               [3.]], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", NO_HALF, "index_sample")
    check_variable_and_dtype(index, "index", INTEGERS, "index_sample")
    return add_op("index_sample", {"X": x, "Index": index}, x.dtype)


def index_select(input: Variable, index: Variable, dim: int = 0) -> Variable:
    """Slices along a dimension by index.

    Args:
        input: any shape.
        index: int32 or int64 vector.
        dim: dimension to select along.

    Returns:
        The input's shape, with the length of ``index`` in ``dim``. Source: Paddle op
        ``index_select``.

    Raises:
        TypeError: ``index`` is no variable of type int32 or int64.
        EnforceNotMet: ``dim`` is no axis of ``input``, or ``index`` no vector.

    See Also:
        :func:`gather`: whole rows by number.
        :func:`gather_nd`: by several indices.
        :func:`index_sample`: other columns in every row.
        :func:`slice`: a range.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0, 3.0]], "float32"))
        ...     index = fluid.layers.assign(np.array([2, 0], "int32"))
        ...     out = fluid.layers.index_select(x, index, dim=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[3., 1.]], dtype=float32)]
    """
    check_variable_and_dtype(input, "x", NO_HALF, "index_select")
    check_variable_and_dtype(index, "index", INTEGERS, "index_select")
    return add_op("index_select", {"X": input, "Index": index}, input.dtype, {"dim": dim})


def multiplex(inputs: list[Variable], index: Variable) -> Variable:
    """Row ``i`` is taken from the input with the number ``index[i]``.

    Args:
        inputs: at least two variables of one shape ``(N, ...)``.
        index: int32 ``(N, 1)``.

    Returns:
        The same shape. Source: Paddle op ``multiplex``.

    Raises:
        ValueError: there are fewer than two inputs.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0], [2.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[3.0], [4.0]], "float32"))
        ...     index = fluid.layers.assign(np.array([[1], [0]], "int32"))
        ...     out = fluid.layers.multiplex([x, y], index)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[3.],
               [2.]], dtype=float32)]
    """
    check_type(inputs, "inputs", list, "multiplex")
    if len(inputs) < 2:
        raise ValueError(f"multiplex chooses among at least 2 inputs, not {len(inputs)}")
    for number, var in enumerate(inputs):
        check_variable_and_dtype(var, f"input[{number}]", NO_HALF, "multiplex")
    check_variable_and_dtype(index, "index", INTEGERS, "multiplex")
    return add_op("multiplex", {"X": inputs, "Ids": index}, inputs[0].dtype)


def nonzero(input: Variable, as_tuple: bool = False) -> Variable | tuple[Variable, ...]:
    """Coordinates of the elements that are not 0.

    Args:
        input: numbers or booleans.
        as_tuple: return one ``(count, 1)`` variable per dimension instead of one ``(count, rank)``.

    Returns:
        int64 coordinates in order. Source: Paddle op ``where_index``.

    Raises:
        TypeError: ``condition`` is no variable.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[0.0, 1.0], [2.0, 0.0]], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.nonzero(x)])
        [array([[0, 1],
               [1, 0]])]
    """
    found = where(input)
    rank = len(input.shape)
    if not as_tuple:
        return found
    if rank == 1:
        return (found,)
    return tuple(slice(found, axes=[1], starts=[i], ends=[i + 1]) for i in range(rank))


def unique(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable]:
    """The distinct values in the order of first occurrence, and each element's index among them.

    Args:
        x: a vector.
        dtype: type of the positions, int32 or int64.

    Returns:
        Values, and positions such that ``values[positions]`` is ``x``. Source: Paddle op
        ``unique``.

    Raises:
        TypeError: ``x`` is no variable of type float32, float64, int32 or int64.
        EnforceNotMet: ``x`` is no vector, or ``dtype`` neither int32 nor int64.

    See Also:
        :func:`unique_with_counts`: with counts.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([2, 3, 2], "int32"))
        ...     out = fluid.layers.unique(x)[0]
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([2, 3], dtype=int32)]
    """
    check_variable_and_dtype(x, "x", NO_HALF, "unique")
    values, index = _numbered("unique", x, dtype, ("Out", "Index"))
    return values, index


def unique_with_counts(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable, Variable]:
    """As :func:`unique`, with the number of occurrences of each value.

    Args:
        x: numbers, ``(n,)``.
        dtype: type of positions and counts, int32 or int64.

    Returns:
        The values ``(k,)``, for each number the position of its value ``(n,)``, and how often each
        value occurs ``(k,)``. Source: Paddle op ``unique_with_counts``.

    Raises:
        TypeError: ``dtype`` is another type.
        ValueError: ``x`` is not a vector.

    See Also:
        :func:`unique`: without counts.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([2, 3, 3, 1], "int64"))
        ...     out = fluid.layers.unique_with_counts(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=list(out))
        [array([2, 3, 1]), array([0, 1, 1, 2], dtype=int32), array([1, 2, 1], dtype=int32)]
    """
    op_type = "unique_with_counts"
    check_variable_and_dtype(x, "x", NO_HALF, op_type)
    if convert_dtype(dtype) not in INTEGERS:
        raise TypeError(f"dtype of {op_type} must be int32 or int64, but is {dtype}")
    if len(x.shape) != 1:
        raise ValueError(f"x of {op_type} must be a vector, but has the shape {x.shape}")
    values, index, count = _numbered(op_type, x, dtype, ("Out", "Index", "Count"))
    return values, index, count


def _numbered(op_type: str, x: Variable, dtype: Any, slots: Sequence[str]) -> list[Variable]:
    dtypes = {slot: x.dtype if slot == "Out" else dtype for slot in slots}
    attrs = {"dtype": as_var_type(dtype)}
    return list(add_outputs(LayerHelper(op_type), {"X": x}, dtypes, attrs).values())


def shard_index(
    input: Variable, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1
) -> Variable:
    """Convert ids of one shard to indices within the shard.

    Args:
        input: int64 ids ``(..., 1)``.
        index_num: number of ids.
        nshards: number of shards; each has ``ceil(index_num / nshards)`` consecutive ids.
        shard_id: index of the shard.
        ignore_value: result for ids of other shards.

    Returns:
        The same shape. Source: Paddle op ``shard_index``.

    Raises:
        ValueError: there is no such shard.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1], [3]], "int64"))
        ...     out = fluid.layers.shard_index(x, index_num=4, nshards=2, shard_id=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[-1],
               [ 1]])]
    """
    check_variable_and_dtype(input, "input", ("int64",), "shard_index")
    if not 0 <= shard_id < nshards:
        raise ValueError(f"shard_id of shard_index must lie in [0, {nshards}), but is {shard_id}")
    attrs = {
        "index_num": index_num,
        "nshards": nshards,
        "shard_id": shard_id,
        "ignore_value": ignore_value,
    }
    return add_op("shard_index", {"X": input}, input.dtype, attrs)


def hash(input: Variable, hash_size: int, num_hash: int = 1, name: str | None = None) -> Variable:
    """Hash every row to numbers below ``hash_size``.

    Args:
        input: int32 or int64 ``(N, D)``.
        hash_size: upper limit of the numbers, exclusive.
        num_hash: number of hash functions.
        name: prefix of names.

    Returns:
        ``(N, num_hash, 1)``. Source: Paddle op ``hash``.

    Raises:
        TypeError: ``input`` is no variable of type int32 or int64.
        EnforceNotMet: ``hash_size`` or ``num_hash`` is not positive.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
        ...     fluid.layers.hash(ids, hash_size=1000, num_hash=2).shape
        (-1, 2, 1)
    """
    check_variable_and_dtype(input, "input", INTEGERS, "hash")
    check_type(hash_size, "hash_size", int, "hash")
    check_type(num_hash, "num_hash", int, "hash")
    attrs = {"num_hash": num_hash, "mod_by": hash_size}
    return add_op("hash", {"X": input}, input.dtype, attrs, name=name, stop_gradient=True)
