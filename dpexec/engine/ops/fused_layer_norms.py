"""``layer_norm`` fused with the sum before it, as Paddle's passes for GPUs make it.

Paddle has no CPU kernels of these operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._costs import NORM
from dpexec.engine.ops._rows import check_rows
from dpexec.engine.ops._shapes import require_same_shape
from dpexec.engine.ops.fc import fc
from dpexec.engine.ops.layer_norm import layer_norm


def _normed(x: Spec, scale: Spec | None, bias: Spec | None, **attrs: Any) -> tuple[Spec, ...]:
    assert layer_norm.infer is not None
    found: tuple[Spec, ...] = layer_norm.infer(x, scale, bias, **attrs)
    return found


def _infer_skip(
    x: Spec, y: Spec, scale: Spec, bias: Spec, *, epsilon: float = 1e-5, begin_norm_axis: int = 1
) -> Spec:
    require_same_shape(x, y)
    return _normed(x, scale, bias, epsilon=epsilon, begin_norm_axis=begin_norm_axis)[0]


def _skip_samples(r: SampleRng) -> list[Sample]:
    def call(shape: tuple[int, ...], width: int, **attrs: Any) -> Sample:
        rows = {"X": r.normal(shape), "Y": r.normal(shape)}
        return Sample({**rows, "Scale": r.normal((width,)), "Bias": r.normal((width,))}, attrs)

    return [
        call((2, 3, 4), 4, begin_norm_axis=2),
        call((3, 6), 6, epsilon=1e-4),
        call((2, 3, 2), 6),
    ]


@op(
    "skip_layernorm",
    inputs="X Y Scale Bias",
    infer=_infer_skip,
    no_grad=True,
    samples=_skip_samples,
    operand_ulps=2,
    flops=per_element("Out", NORM + 1),
)
def skip_layernorm(
    xp: Any,
    x: Any,
    y: Any,
    scale: Any,
    bias: Any,
    *,
    epsilon: float = 1e-5,
    begin_norm_axis: int = 1,
) -> Any:
    """``layer_norm(x + y)``. Source: Paddle op ``skip_layernorm``."""
    return layer_norm(xp, x + y, scale, bias, epsilon=epsilon, begin_norm_axis=begin_norm_axis)[0]


def _infer_fc(
    x: Spec,
    w: Spec,
    bias: Spec | None,
    y: Spec,
    scale: Spec | None,
    shift: Spec | None,
    *,
    x_num_col_dims: int = 1,
    activation_type: str = "",
    epsilon: float = 1e-5,
    begin_norm_axis: int = 1,
) -> tuple[Spec, ...]:
    assert fc.infer is not None
    made = fc.infer(x, w, bias, in_num_col_dims=x_num_col_dims, activation_type=activation_type)
    require_same_shape(made, y, "the product and Y")
    return _normed(made, scale, shift, epsilon=epsilon, begin_norm_axis=begin_norm_axis)


def _fc_samples(r: SampleRng) -> list[Sample]:
    rows = {"X": r.normal((3, 4)), "W": r.normal((4, 5)), "Y": r.normal((3, 5))}
    deep = {"X": r.normal((2, 3, 4)), "W": r.normal((4, 5)), "Y": r.normal((2, 3, 5))}
    norm = {"Scale": r.normal((5,)), "Bias1": r.normal((5,))}
    return [
        Sample(rows),
        Sample({**rows, "Bias0": r.normal((5,)), **norm}, {"activation_type": "relu"}),
        Sample(
            {**deep, "Bias0": r.normal((1, 5)), **norm},
            {"x_num_col_dims": 2, "begin_norm_axis": 2, "epsilon": 1e-4},
        ),
    ]


@op(
    "fused_fc_elementwise_layernorm",
    inputs="X W Bias0? Y Scale? Bias1?",
    outputs="Out Mean? Variance?",
    infer=_infer_fc,
    no_grad=True,
    samples=_fc_samples,
    operand_ulps=4,
    macs=lambda call: call.size("Out") * call.shape("W")[0],
    flops=per_element("Out", NORM + 2),
)
def fused_fc_elementwise_layernorm(
    xp: Any,
    x: Any,
    w: Any,
    bias: Any,
    y: Any,
    scale: Any,
    shift: Any,
    *,
    x_num_col_dims: int = 1,
    activation_type: str = "",
    epsilon: float = 1e-5,
    begin_norm_axis: int = 1,
) -> tuple[Any, Any, Any]:
    """``layer_norm(fc(x, w, bias) + y)``, with the scale and the bias of both.

    Source: Paddle op ``fused_fc_elementwise_layernorm``.
    """
    made = fc(xp, x, w, bias, in_num_col_dims=x_num_col_dims, activation_type=activation_type)
    made += y
    norm = {"epsilon": epsilon, "begin_norm_axis": begin_norm_axis}
    found: tuple[Any, Any, Any] = layer_norm(xp, made, scale, shift, **norm)
    return found


def _infer_embedding(
    ids: Sequence[Spec], tables: Sequence[Spec], bias: Spec, scale: Spec, *, epsilon: float = 1e-5
) -> Spec:
    require(
        len(ids) == len(tables), f"Ids are {len(ids)} and Embs {len(tables)}, but they go in pairs"
    )
    for spec in ids:
        require(
            spec.dtype == VarType.INT64 and spec.rank in (2, 3) and spec.shape[2:] in ((), (1,)),
            f"Ids {spec} must be int64 [batch, length, 1]",
        )
    for spec in tables:
        require(
            spec.rank == 2 and spec.shape[1] == tables[0].shape[1],
            f"Embs {spec} must be a table as wide as {tables[0]}",
        )
    shape = (*ids[0].shape[:2], tables[0].shape[1])
    made = Spec(shape, tables[0].dtype, lod_level=ids[0].lod_level)
    return _normed(made, scale, bias, epsilon=epsilon, begin_norm_axis=2)[0]


def _embedding_samples(r: SampleRng) -> list[Sample]:
    def call(width: int, *heights: int, ids: tuple[int, ...] = (2, 3, 1), **attrs: Any) -> Sample:
        inputs = {
            "Ids": [r.integers(0, height, ids) for height in heights],
            "Embs": [r.normal((height, width)) for height in heights],
            "Bias": r.normal((width,)),
            "Scale": r.normal((width,)),
        }
        return Sample(inputs, attrs)

    return [call(4, 5, 7, 3), call(6, 4, 4, epsilon=1e-4), call(3, 9, 2, ids=(1, 4))]


@op(
    "fused_embedding_eltwise_layernorm",
    inputs="Ids[] Embs[] Bias Scale",
    infer=_infer_embedding,
    no_grad=True,
    checks_values=True,
    samples=_embedding_samples,
    operand_ulps=4,
)
def fused_embedding_eltwise_layernorm(
    xp: Any, ids: list[Any], tables: list[Any], bias: Any, scale: Any, *, epsilon: float = 1e-5
) -> Any:
    """``layer_norm`` of the sum of several embeddings, ``(batch, length, width)``.

    Source: Paddle op ``fused_embedding_eltwise_layernorm``.

    Raises:
        ValueError: an id is no row of its table.
    """
    for numbers, table in zip(ids, tables, strict=True):
        check_rows(xp, numbers, len(table), "Ids")
    shape = ids[0].shape[:2]
    rows = (table[n.reshape(shape)] for n, table in zip(ids, tables, strict=True))
    return layer_norm(xp, reduce(xp.add, rows), scale, bias, epsilon=epsilon, begin_norm_axis=2)[0]
