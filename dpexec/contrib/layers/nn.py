"""Layers of texts that are matched, and of columns that are put together."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from dpexec.checks import NO_HALF, check_type, check_variable_and_dtype
from dpexec.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs, seed_variable

__all__ = [
    "fused_elemwise_activation",
    "fused_embedding_seq_pool",
    "match_matrix_tensor",
    "partial_concat",
    "partial_sum",
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
    """An addition and the activation after it, in one operator.

    Args:
        x: float32 or float64.
        y: its dimensions are those of ``x`` from ``axis`` on.
        functor_list: the activation, ``relu``, ``sigmoid`` or ``tanh``, and ``elementwise_add``;
            a list, or text with a comma.
        axis: see ``y``; -1: the last dimensions.
        scale: not used by these activations.
        save_intermediate_out: whether the sum is kept.

    Returns:
        Like ``x``. Source: Paddle op ``fused_elemwise_activation``.

    Raises:
        ValueError: ``functor_list`` does not have two names.
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


def match_matrix_tensor(
    x: Variable,
    y: Variable,
    channel_num: int,
    act: str | None = None,
    param_attr: Any = None,
    dtype: str = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """How well every word of a text matches every word of another one, in several ways.

    Args:
        x: words, ``(rows, width)`` with sequences.
        y: words, ``(rows, width)`` with as many sequences.
        channel_num: how many ways.
        act: name of an activation.
        param_attr: attributes of the weight ``(width, channel_num, width)``.
        dtype: of the weight.
        name: prefix of names.

    Returns:
        A column whose sequences are ``channel_num`` matrices each, which
        ``sequence_topk_avg_pooling`` takes; and the products of ``x`` and the weight. Source:
        Paddle op ``match_matrix_tensor``.

    Raises:
        ValueError: ``x`` and ``y`` do not have the same width.
    """
    if len(x.shape) != 2 or len(y.shape) != 2 or x.shape[1] != y.shape[1]:
        raise ValueError(f"x {x.shape} and y {y.shape} must be (rows, width) of the same width")
    helper = LayerHelper("match_matrix_tensor", name=name, act=act, param_attr=param_attr)
    shape = [x.shape[1], channel_num, y.shape[1]]
    weight = helper.create_parameter(helper.param_attr, shape, dtype)
    inputs, dtypes = {"X": x, "Y": y, "W": weight}, {"Out": dtype, "Tmp": dtype}
    made = add_outputs(helper, inputs, dtypes, {"dim_t": channel_num})
    made["Tmp"].stop_gradient = True
    return helper.append_activation(made["Out"]), made["Tmp"]


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
        dtype: of the table.

    Returns:
        ``(sequences, width)``. Source: Paddle op ``fused_embedding_seq_pool``.
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
        length: how many columns; -1: all that follow.

    Returns:
        ``(rows, length * matrices)``. Source: Paddle op ``partial_concat``.
    """
    types = ("float16", "float32", "float64", "int32", "int64")
    return _partial("partial_concat", input, start_index, length, types)


def partial_sum(
    input: Variable | list[Variable], start_index: int = 0, length: int = -1
) -> Variable:
    """Some columns of matrices, added up.

    Args:
        input: matrices of one shape.
        start_index: the first column.
        length: how many columns; -1: all that follow.

    Returns:
        ``(rows, length)``. Source: Paddle op ``partial_sum``.
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
    """Rows in another order, in every run anew.

    The seed goes on from run to run in a persistable variable, which the startup program makes.

    Args:
        x: all dimensions but the last are rows.
        seed: where random numbers start; or an int64 variable to use instead. None: the program's
            ``random_seed``, or any if that is 0.

    Returns:
        Like ``x``. Devices shuffle their own rows. Source: Paddle op ``shuffle_batch``.

    Raises:
        TypeError: the seed is neither.
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
