"""``fc``: a product of matrices, the bias behind it and perhaps ``relu``, in one operator."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._shapes import product, require_same_dtype
from dpexec.engine.ops.mul import mul
from dpexec.engine.ops.relu import relu

_ACTIVATIONS = ("", "relu")
_PADDING = 4
"""Rows and columns that ``padding_weights`` says to lie behind those of W."""


def _infer(
    x: Spec,
    w: Spec,
    bias: Spec | None,
    *,
    in_num_col_dims: int = 1,
    activation_type: str = "",
    padding_weights: bool = False,
) -> Spec:
    require(w.rank == 2, f"W {w} must be a matrix")
    require(
        0 < in_num_col_dims < x.rank,
        f"in_num_col_dims={in_num_col_dims} must leave Input {x} a dimension on each side",
    )
    require(
        activation_type in _ACTIVATIONS,
        f"activation_type must be empty or relu, but is {activation_type!r}",
    )
    require_same_dtype(x, w, "Input and W")
    rows, columns = (_without_padding(dim) if padding_weights else dim for dim in w.shape)
    width = product(x.shape[in_num_col_dims:])
    require(
        dims_match(width, rows),
        f"as a matrix, Input {x} has {width} columns (in_num_col_dims={in_num_col_dims}), but W "
        f"{w} has {rows} rows",
    )
    if bias is not None:
        require_same_dtype(x, bias, "Input and Bias")
        require(
            bias.rank in (1, 2)
            and dims_match(bias.shape[-1], columns)
            and (bias.rank == 1 or bias.shape[0] == 1),
            f"Bias {bias} must be [{columns}] or [1, {columns}], a number for a column of W {w}",
        )
    return x.replace(shape=(*x.shape[:in_num_col_dims], columns))


def _without_padding(dim: int) -> int:
    require(dim < 0 or dim > _PADDING, f"W has {dim} rows or columns, of these {_PADDING} padding")
    return dim - _PADDING if dim > 0 else dim


def _samples(r: SampleRng) -> list[Sample]:
    def inputs(x: tuple[int, ...], w: tuple[int, int], *bias: int) -> dict[str, Any]:
        found = {"Input": r.normal(x), "W": r.normal(w)}
        return found | ({"Bias": r.normal(bias)} if bias else {})

    return [
        Sample(inputs((3, 4), (4, 5), 5)),
        Sample(inputs((2, 3, 4), (12, 5), 1, 5), {"activation_type": "relu"}),
        Sample(inputs((2, 3, 4), (4, 5), 5), {"in_num_col_dims": 2, "activation_type": "relu"}),
        Sample(inputs((2, 3, 2, 2), (4, 6)), {"in_num_col_dims": 2}),
        Sample(inputs((3, 4), (8, 9), 5), {"padding_weights": True}),
        Sample(inputs((2, 4), (4, 3), 3), {"use_mkldnn": True, "activation_type": "relu"}),
        Sample(
            inputs((3, 4), (4, 5)),
            {"activation_type": "relu"},
            deviates={"*": "refuses relu without a bias; dpexec computes it"},
        ),
    ]


@op(
    "fc",
    inputs="Input W Bias?",
    outputs="Out",
    infer=_infer,
    attrs={
        "force_fp32_output": False,
        "Scale_in": 1.0,
        "Scale_out": 1.0,
        "Scale_weights": [1.0],
        "use_mkldnn": False,
        "use_quantizer": False,
    },
    fixed=dict.fromkeys(("Scale_in", "Scale_out", "Scale_weights"), "use_mkldnn"),
    no_grad=True,
    samples=_samples,
    operand_ulps=2,
)
def fc(
    xp: Any,
    x: Any,
    w: Any,
    bias: Any,
    *,
    in_num_col_dims: int = 1,
    activation_type: str = "",
    padding_weights: bool = False,
) -> Any:
    """``activation(x @ w + bias)``, the layers ``mul``, ``elementwise_add`` and ``relu`` in one.

    Programs that were optimized for prediction hold it; it has no gradient. The first
    ``in_num_col_dims`` dimensions of ``x`` are rows, the others columns. With ``padding_weights``
    the last four rows and columns of ``w`` are no part of it. Source: Paddle op ``fc``.
    """
    w = w[:-_PADDING, :-_PADDING] if padding_weights else w
    out = mul(xp, x, w, x_num_col_dims=in_num_col_dims)
    if bias is not None:
        out += bias.reshape(-1)
    return relu(xp, out) if activation_type == "relu" else out
