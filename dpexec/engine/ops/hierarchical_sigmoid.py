"""``hierarchical_sigmoid``: a class as binary decisions along a path in a tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._edges import edge
from dpexec.engine.ops._rows import REMOTE, added_rows, check_rows, without
from dpexec.engine.ops._shapes import require_same_dtype, require_same_shape

LIMIT = 40.0
"""Scores of decisions are limited to this size, as in Paddle."""


def _infer(
    x: Spec,
    weight: Spec,
    label: Spec,
    table: Spec | None,
    code: Spec | None,
    bias: Spec | None,
    *,
    num_classes: int = 2,
    is_sparse: bool = False,
) -> tuple[Spec, Spec, Spec]:
    require_same_dtype(x, weight, "X and W")
    require(
        x.rank == weight.rank == 2 and dims_match(x.shape[1], weight.shape[1]),
        f"X {x} and W {weight} must be matrices of one width",
    )
    require(
        label.dtype == VarType.INT64 and dims_match(label.size, x.shape[0]),
        f"Label {label} must hold an int64 number for each row of X {x}",
    )
    require(num_classes >= 2, f"num_classes is {num_classes}, but must be at least 2")
    require(not is_sparse or table is not None, "is_sparse needs PathTable and PathCode")
    depth = (num_classes - 1).bit_length()
    if table is not None:
        require(code is not None, "PathTable needs PathCode")
        require(
            table.rank == 2 and dims_match(table.shape[0], x.shape[0]),
            f"PathTable {table} must have a path for each row of X {x}",
        )
        require_same_shape(table, code, "PathTable and PathCode")  # type: ignore[arg-type]
        depth = table.shape[1]
    else:
        require(
            weight.shape[0] < 0 or weight.shape[0] >= num_classes - 1,
            f"W {weight} must have a row for each of the {num_classes - 1} decisions",
        )
    require(
        bias is None or dims_match(bias.size, weight.shape[0]),
        f"Bias {bias} must have an element for each row of W {weight}",
    )
    decisions = x.replace(shape=(x.shape[0], depth), lod_level=0)
    return x.replace(shape=(x.shape[0], 1)), decisions, weight.replace(lod_level=0)


def _paths(
    xp: Any, label: Any, table: Any, code: Any, num_classes: int, height: int
) -> tuple[Any, Any, Any]:
    """For every step of every path: the row of W, the decision, and whether the step exists.

    Raises:
        ValueError: there is no such class or row.
    """
    if table is not None:
        asked = xp.cumprod(table >= 0, axis=1).astype(bool)
        rows = xp.where(asked, table, 0)
        check_rows(xp, rows, height, "PathTable")
        return rows, (code != 0) & asked, asked
    check_rows(xp, label, num_classes, "Label")
    place = label.reshape(-1, 1) + num_classes
    steps = xp.arange((num_classes - 1).bit_length())
    rows = (place >> (steps + 1)) - 1
    asked = rows >= 0
    return xp.where(asked, rows, 0), ((place >> steps) & 1).astype(bool) & asked, asked


def _samples(r: SampleRng) -> list[Sample]:
    def inputs(rows: int, labels: list[int]) -> dict[str, Any]:
        return {
            "X": r.normal((len(labels), 3)),
            "W": r.normal((rows, 3)),
            "Label": np.array(labels)[:, None],
            "Bias": r.normal((rows, 1)),
        }

    tree = {
        "PathTable": np.array([[0, 2, -1], [0, 1, 3], [0, 1, 4], [0, 2, -1]]),
        "PathCode": np.array([[0, 1, -1], [1, 0, 0], [1, 1, 0], [0, 0, -1]]),
    }
    no_bias = inputs(7, [0, 7, 5])
    del no_bias["Bias"]
    return [
        Sample(inputs(5, [0, 1, 3, 5]), {"num_classes": 6}),
        Sample(no_bias, {"num_classes": 8}),
        Sample({**inputs(5, [0, 1, 2, 3]), **tree}, {"num_classes": 5}),
        Sample({**inputs(5, [0, 1, 2, 3]), **tree}, {"num_classes": 5, "is_sparse": True}),
        Sample(inputs(1, [0, 1]), {"num_classes": 2}),
        edge(
            {"X": np.array([[10.0]]), "W": np.array([[4.0]]), "Label": np.array([[1]])},
            "Out X@GRAD W@GRAD",
            "rounds costs near 0 to 0; dpexec keeps them",
            {"num_classes": 2},
        ),
    ]


@op(
    "hierarchical_sigmoid",
    inputs="X W Label PathTable? PathCode? Bias?",
    outputs="Out PreOut W_Out",
    infer=_infer,
    attrs=REMOTE,
    inplace={"W_Out": "W"},
    keeps=lambda op: True,
    checks_values=True,
    samples=_samples,
    operand_ulps=4,
    grad_lod="own",
)
def hierarchical_sigmoid(
    xp: Any,
    x: Any,
    weight: Any,
    label: Any,
    table: Any,
    code: Any,
    bias: Any,
    *,
    num_classes: int = 2,
) -> tuple[Any, Any, Any]:
    """The negative log likelihood of the decisions that lead to a class, ``(N, 1)``.

    Row ``k`` of ``W`` decides at node ``k`` of a complete binary tree, or of the tree that
    ``PathTable`` (nodes, -1 after the end) and ``PathCode`` (decisions) describe per sample. As
    in Paddle, a path shorter than the longest costs ``log(2)`` for every step that it lacks. Also
    gives ``log(1 + exp(z))`` of every decision. Source: Paddle op ``hierarchical_sigmoid``;
    Morin, Bengio, 2005.

    Raises:
        ValueError: there is no such class or node.
    """
    rows, yes, asked = _paths(xp, label, table, code, num_classes, weight.shape[0])
    z = xp.matmul(weight[rows], x[:, :, None])[:, :, 0]
    if bias is not None:
        z += bias.reshape(-1)[rows]
    z = xp.clip(xp.where(asked, z, 0), -LIMIT, LIMIT).astype(x.dtype, copy=False)
    rest = xp.log1p(xp.exp(-xp.abs(z)))
    out = (rest + xp.maximum(xp.where(yes, -z, z), 0)).sum(axis=1, keepdims=True)
    return out, rest + xp.maximum(z, 0), weight


def _infer_grad(
    x: Spec,
    weight: Spec,
    label: Spec,
    table: Spec | None,
    code: Spec | None,
    bias: Spec | None,
    costs: Spec,
    d_out: Spec,
    *,
    is_sparse: bool = False,
) -> tuple[Spec, Spec, Spec]:
    made = weight.replace(kind=VarType.SELECTED_ROWS) if is_sparse else weight
    return x, made, weight if bias is None else bias


@hierarchical_sigmoid.grad(
    "X W Label PathTable? PathCode? Bias? PreOut Out@GRAD",
    outputs="X@GRAD W@GRAD Bias@GRAD",
    infer=_infer_grad,
    operand_ulps=2,
)
def hierarchical_sigmoid_grad(
    xp: Any,
    x: Any,
    weight: Any,
    label: Any,
    table: Any,
    code: Any,
    bias: Any,
    costs: Any,
    d_out: Any,
    *,
    num_classes: int = 2,
    is_sparse: bool = False,
    needs: tuple[bool, bool, bool],
) -> tuple[Any, Any, Any]:
    """Sigmoid minus decision at every node of a path; if sparse, only the nodes' rows of W."""
    rows, yes, asked = _paths(xp, label, table, code, num_classes, weight.shape[0])
    d_z = xp.where(yes, -xp.exp(-costs), -xp.expm1(-costs)) * asked * d_out
    d_x = d_weight = d_bias = None
    if needs[0]:
        d_x = xp.matmul(d_z[:, None], weight[rows])[:, 0]
    nodes = xp.where(asked, rows, -1).reshape(-1)
    if needs[1]:
        values = (d_z[:, :, None] * x[:, None]).reshape(nodes.size, -1)
        found, values = without(xp, nodes, values, -1)
        d_weight = SelectedRows(found, weight.shape[0], values)
        d_weight = d_weight.merged(xp) if is_sparse else d_weight.to_dense(xp)
    if needs[2]:
        found, values = without(xp, nodes, d_z.reshape(-1, 1), -1)
        d_bias = added_rows(xp, found, values, (bias.size, 1)).reshape(bias.shape)
    return d_x, d_weight, d_bias
