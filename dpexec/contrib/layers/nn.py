"""Layers that combine columns, shuffle rows or hash words, and fused operators."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from dpexec.checks import NO_HALF, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs, seed_variable

__all__ = [
    "fused_elemwise_activation",
    "fused_embedding_seq_pool",
    "partial_concat",
    "partial_sum",
    "rank_attention",
    "search_pyramid_hash",
    "shuffle_batch",
]


def fused_elemwise_activation(
    x: Variable,
    y: Variable,
    functor_list: str | Sequence[str],
    axis: int = -1,
    scale: float = 0.0,
    save_intermediate_out: bool = True,
) -> Variable:
    """An addition or a product, and a function of its result or of ``y``, in one operator.

    Args:
        x: float32 or float64.
        y: a tensor with the dimensions of ``x`` from ``axis`` on.
        functor_list: one of ``elementwise_add`` and ``elementwise_mul``, and one of ``relu``,
            ``sigmoid``, ``tanh`` and ``scale``; the first one is the outer function. A list, or a
            string with a comma.
        axis: see ``y``; -1: the last dimensions.
        scale: factor of ``scale``.
        save_intermediate_out: whether to store the inner function's result.

    Returns:
        Like ``x``. Source: Paddle op ``fused_elemwise_activation``.

    Raises:
        ValueError: ``functor_list`` does not have two names.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, -3.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[1.0, 1.0]], "float32"))
        ...     outer_first = ["relu", "elementwise_add"]  # relu(x + y)
        ...     out = fluid.contrib.layers.fused_elemwise_activation(x, y, outer_first)
        ...     (found,) = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        >>> found.tolist()
        [[2.0, 0.0]]
    """
    names = functor_list.split(",") if isinstance(functor_list, str) else functor_list
    if not isinstance(names, list) or len(names) != 2:
        raise ValueError(f"functor_list must be a list of two names, but is {functor_list!r}")
    dtypes = {"Out": x.dtype, "IntermediateOut": x.dtype}
    attrs = {
        "axis": axis,
        "scale": scale,
        "save_intermediate_out": save_intermediate_out,
        "functor_list": names,
    }
    helper = LayerHelper("fused_elemwise_activation")
    return add_outputs(helper, {"X": x, "Y": y}, dtypes, attrs)["Out"]


def fused_embedding_seq_pool(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    padding_idx: int | None = None,
    combiner: str = "sum",
    param_attr: Any = None,
    dtype: str = "float32",
) -> Variable:
    """Sums of embeddings over sequences of ids.

    Args:
        input: ids, int64 ``(rows, 1)`` with sequences.
        size: rows and width of the table.
        is_sparse: whether the gradient of the table holds only rows that were read.
        padding_idx: the row that counts as 0; negative ones count from the end.
        combiner: only ``sum``.
        param_attr: attributes of the table.
        dtype: element type of the table.

    Returns:
        ``(sequences, width)``. Source: Paddle op ``fused_embedding_seq_pool``.

    Raises:
        TypeError: ``input`` is no variable, or ``size`` is not two integers.
        EnforceNotMet: ``input`` does not hold int64, or ``combiner`` is unknown.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> table = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5))
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
        ...     out = fluid.contrib.layers.fused_embedding_seq_pool(ids, [10, 2], param_attr=table)
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     words = np.array([[1], [2], [3]], "int64")
        ...     feed = {"ids": fluid.create_lod_tensor(words, [[1, 2]], fluid.CPUPlace())}
        ...     (found,) = exe.run(main, feed=feed, fetch_list=[out])
        >>> found.tolist()  # sums over sequences of one and of two words
        [[0.5, 0.5], [1.0, 1.0]]
    """
    helper = LayerHelper("fused_embedding_seq_pool", param_attr=param_attr)
    table = helper.create_parameter(helper.param_attr, list(size), dtype)
    row = -1 if padding_idx is None else padding_idx
    if padding_idx is not None and padding_idx < 0:
        row = size[0] + padding_idx
    attrs = {"is_sparse": is_sparse, "combiner": combiner, "padding_idx": row}
    return add_outputs(helper, {"Ids": input, "W": table}, {"Out": dtype}, attrs)["Out"]


def partial_concat(
    input: Variable | list[Variable], start_index: int = 0, length: int = -1
) -> Variable:
    """Some columns of matrices, side by side.

    Args:
        input: matrices of one shape.
        start_index: the first column; negative ones count from the end.
        length: number of columns; -1 for all following ones.

    Returns:
        ``(rows, length * matrices)``. Source: Paddle op ``partial_concat``.

    Raises:
        TypeError: an input is no variable of numbers.
        EnforceNotMet: the inputs are no matrices of one shape, or lack these columns.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1, 2, 3]], "float32"))
        ...     y = fluid.layers.assign(np.array([[10, 20, 30]], "float32"))
        ...     out = fluid.contrib.layers.partial_concat([x, y], start_index=1, length=2)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[ 2.,  3., 20., 30.]], dtype=float32)]
    """
    types = ("float16", "float32", "float64", "int32", "int64")
    return _partial("partial_concat", input, start_index, length, types)


def partial_sum(
    input: Variable | list[Variable], start_index: int = 0, length: int = -1
) -> Variable:
    """Sums of some columns of matrices.

    Args:
        input: matrices of one shape.
        start_index: the first column.
        length: number of columns; -1 for all following ones.

    Returns:
        ``(rows, length)``. Source: Paddle op ``partial_sum``.

    Raises:
        TypeError: an input is no variable of numbers.
        EnforceNotMet: the inputs are no matrices of one shape, or lack these columns.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1, 2, 3]], "float32"))
        ...     y = fluid.layers.assign(np.array([[10, 20, 30]], "float32"))
        ...     out = fluid.contrib.layers.partial_sum([x, y], start_index=1, length=2)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[22., 33.]], dtype=float32)]
    """
    return _partial("partial_sum", input, start_index, length, NO_HALF)


def _partial(
    op_type: str,
    input: Variable | list[Variable],
    start_index: int,
    length: int,
    types: tuple[str, ...],
) -> Variable:
    parts = input if isinstance(input, list) else [input]
    for i, part in enumerate(parts):
        check_variable_and_dtype(part, f"input[{i}]", types, op_type)
    check_type(start_index, "start_index", int, op_type)
    check_type(length, "length", int, op_type)
    attrs = {"start_index": start_index, "length": length}
    return add_op(op_type, {"X": parts}, parts[0].dtype, attrs)


def shuffle_batch(x: Variable, seed: int | Variable | None = None) -> Variable:
    """Shuffle rows, differently in every run.

    The seed advances from run to run in a persistable variable, which the startup program sets.

    Args:
        x: all dimensions but the last are rows.
        seed: where random numbers start; or an int64 variable to use instead. None: the program's
            ``random_seed``, or any if that is 0.

    Returns:
        Like ``x``. Devices shuffle their own rows. Source: Paddle op ``shuffle_batch``.

    Raises:
        TypeError: the seed is neither a number nor a variable.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     x = fluid.layers.assign(np.array([[1], [2], [3]], "float32"))
        ...     out = fluid.contrib.layers.shuffle_batch(x, seed=7)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     (found,) = exe.run(main, fetch_list=[out])
        >>> sorted(found.tolist())  # all rows, in another order
        [[1.0], [2.0], [3.0]]
    """
    helper = LayerHelper("shuffle_batch")
    out = helper.create_variable_for_type_inference(x.dtype)
    order = helper.create_variable_for_type_inference("int64")
    if seed is None:
        seed = helper.main_program.random_seed or random.randrange(-65536, 65535)
    check_type(seed, "seed", (int, Variable), "shuffle_batch")
    attrs = {}
    if isinstance(seed, int):
        attrs["startup_seed"] = seed
        seed = seed_variable(helper, seed)
    helper.append_op(
        type="shuffle_batch",
        inputs={"X": x, "Seed": seed},
        outputs={"Out": out, "ShuffleIdx": order, "SeedOut": seed},
        attrs=attrs,
    )
    return out


def search_pyramid_hash(
    input: Variable,
    num_emb: int,
    space_len: int,
    pyramid_layer: int,
    rand_len: int,
    drop_out_percent: float,
    is_training: bool,
    use_filter: bool,
    white_list_len: int,
    black_list_len: int,
    seed: int,
    lr: float,
    param_attr: Any = None,
    param_attr_wl: Any = None,
    param_attr_bl: Any = None,
    name: str | None = None,
    distribute_update_vars: Sequence[str] | None = None,
    dtype: str = "float32",
) -> Variable:
    """Embeddings of all n-grams of a text, from one table that is indexed by hashes.

    Optimizers do not update the table: its gradient operator does, with the rate ``lr``, unless
    ``input.stop_gradient`` is True.

    Args:
        input: words, int32 ``(rows, 1)`` with sequences.
        num_emb: width of an embedding, a multiple of ``rand_len``.
        space_len: number of positions in the table at which pieces may start.
        pyramid_layer: largest number of words per n-gram, 2 or more.
        rand_len: length of a piece.
        drop_out_percent: share of n-grams dropped in training; otherwise a factor of all.
        is_training: selects the meaning of ``drop_out_percent``.
        use_filter: whether the white list and the black list select the n-grams.
        white_list_len: size of the white list's Bloom filter, in float32 numbers.
        black_list_len: size of the black list's Bloom filter, in float32 numbers.
        seed: determines the dropped n-grams, the same ones in every step.
        lr: learning rate of the table.
        param_attr: attributes of the table, ``(space_len + rand_len, 1)``.
        param_attr_wl: attributes of the white list.
        param_attr_bl: attributes of the black list.
        name: prefix of names.
        distribute_update_vars: names of these parameters that servers would update.
        dtype: element type of the table.

    Returns:
        ``(runs, num_emb)``, as many sequences as ``input`` has. Source: Paddle op
        ``pyramid_hash``.

    Raises:
        ValueError: ``distribute_update_vars`` names another parameter.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     words = fluid.data("words", [None, 1], "int32", lod_level=1)
        ...     out = fluid.contrib.search_pyramid_hash(
        ...         words, 8, 36, 3, 4, 0.0, True, False, 24, 24, seed=1, lr=0.1
        ...     )
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     text = fluid.create_lod_tensor(np.array([[3], [7], [1]], "int32"), [[3]], exe.place)
        ...     (found,) = exe.run(main, {"words": text}, [out], return_numpy=False)
        >>> found.shape()  # 3-7, 7-1 and 3-7-1
        [3, 8]
    """
    helper = LayerHelper("search_pyramid_hash", name=name)
    shapes = {"W": (param_attr, space_len + rand_len)}
    if white_list_len > 0:
        shapes["WhiteList"] = param_attr_wl, white_list_len
    if black_list_len >= 0:
        shapes["BlackList"] = param_attr_bl, black_list_len
    inputs = {"X": input}
    for slot, (attr, rows) in shapes.items():
        inputs[slot] = helper.create_parameter(attr, [rows, 1], dtype)
        inputs[slot].stop_gradient = True
    known = [attr.name for attr in (param_attr, param_attr_wl, param_attr_bl) if attr]
    for parameter in distribute_update_vars or ():
        if parameter not in known:
            raise ValueError(f"Pyramid Hash layer didn't have parameter {parameter}")
    attrs = {
        "num_emb": num_emb,
        "space_len": space_len,
        "pyramid_layer": pyramid_layer,
        "rand_len": rand_len,
        "drop_out_percent": drop_out_percent,
        "is_training": int(is_training),
        "use_filter": use_filter,
        "white_list_len": white_list_len,
        "black_list_len": black_list_len,
        "seed": seed,
        "lr": lr,
        "distribute_update_vars": ",".join(distribute_update_vars or ()),
    }
    dtypes = dict.fromkeys(("Out", "DropPos", "X_Temp_Out"), dtype)
    return add_outputs(helper, inputs, dtypes, attrs, op_type="pyramid_hash")["Out"]


def rank_attention(
    input: Variable,
    rank_offset: Variable,
    rank_param_shape: Sequence[int],
    rank_param_attr: Any,
    max_rank: int = 3,
) -> Variable:
    """Sums over other rows of their features times parameters selected by the ranks of both rows.

    Args:
        input: float32 or float64 ``(rows, width)``; no gradient flows into it.
        rank_offset: int32 ``(rows, 1 + 2 * max_rank)``: the rank of the row, then rank and index of
            each row that it uses. Ranks are counted from 1; 0 means none.
        rank_param_shape: ``(max_rank * max_rank * width, columns)``.
        rank_param_attr: attributes of the parameter.
        max_rank: the highest rank.

    Returns:
        ``(rows, columns)``. Source: Paddle op ``rank_attention``, which Paddle has only on GPUs.

    Raises:
        ValueError: the parameter has another number of rows.

    Example:
        >>> import dpexec as fluid
        >>> weights = fluid.ParamAttr(name="ranks")
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 2])
        ...     ranks = fluid.data("ranks_of_rows", [None, 7], "int32")  # 1 + 2 * max_rank
        ...     out = fluid.contrib.layers.rank_attention(x, ranks, [18, 5], weights, max_rank=3)
        ...     print(out.shape)
        (-1, 5)
    """
    rows = input.shape[1] * max_rank * max_rank
    if rows != rank_param_shape[0]:
        raise ValueError(f"rank_param_shape {rank_param_shape} must have {rows} rows")
    helper = LayerHelper("rank_attention")
    parameter = helper.create_parameter(rank_param_attr, list(rank_param_shape), input.dtype)
    inputs = {"X": input, "RankOffset": rank_offset, "RankParam": parameter}
    return add_op("rank_attention", inputs, input.dtype, {"MaxRank": max_rank})
