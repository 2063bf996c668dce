"""``fc``: a matrix product, a bias and optionally ``relu``, in one operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._eight_bits import (
    back_scales,
    has_eight_bits,
    per_channel,
    quantized,
    require_float_or_small,
    require_scales,
    result_type,
    stored,
)
from dpexec.engine.ops._shapes import product, require_same_dtype
from dpexec.engine.ops.mul import mul
from dpexec.engine.ops.relu import relu

_ACTIVATIONS = ("", "relu")
_PADDING = 4
"""The number of additional rows and columns at the end of W with ``padding_weights``."""


def _infer(
    x: Spec,
    w: Spec,
    bias: Spec | None,
    *,
    in_num_col_dims: int = 1,
    activation_type: str = "",
    padding_weights: bool = False,
    use_mkldnn: bool = False,
    force_fp32_output: bool = False,
    Scale_in: float = 1.0,
    Scale_out: float = 1.0,
    Scale_weights: Sequence[float] = (1.0,),
) -> Spec:
    require_float_or_small(x, "Input", use_mkldnn)
    small = has_eight_bits(x)
    require(w.rank == 2, f"W {w} must be a matrix")
    require(
        0 < in_num_col_dims < x.rank,
        f"in_num_col_dims={in_num_col_dims} must leave Input {x} a dimension on each side",
    )
    require(
        activation_type in _ACTIVATIONS,
        f"activation_type must be empty or relu, but is {activation_type!r}",
    )
    if not small:
        require_same_dtype(x, w, "Input and W")
        scales = (Scale_in, Scale_out, *Scale_weights)
        require(not use_mkldnn or set(scales) == {1.0}, "scales are for Inputs of int8 or uint8")
    rows, columns = (_without_padding(dim) if padding_weights else dim for dim in w.shape)
    width = product(x.shape[in_num_col_dims:])
    require(
        dims_match(width, rows),
        f"as a matrix, Input {x} has {width} columns (in_num_col_dims={in_num_col_dims}), but W "
        f"{w} has {rows} rows",
    )
    if bias is not None:
        require_same_dtype(w, bias, "W and Bias")
        require(
            bias.rank in (1, 2)
            and dims_match(bias.shape[-1], columns)
            and (bias.rank == 1 or bias.shape[0] == 1),
            f"Bias {bias} must be [{columns}] or [1, {columns}], a number for a column of W {w}",
        )
    made = x.replace(shape=(*x.shape[:in_num_col_dims], columns))
    if not small:
        return made
    require_scales("Scale_weights", Scale_weights, w, columns)
    unsigned = activation_type == "relu"
    kind = result_type(unsigned=unsigned, force_fp32_output=force_fp32_output, residual=None)
    return made.replace(dtype=kind)


def _without_padding(dim: int) -> int:
    require(dim < 0 or dim > _PADDING, f"W has {dim} rows or columns, of these {_PADDING} padding")
    return dim - _PADDING if dim > 0 else dim


_SMALL: list[dict[str, Any]] = [
    {"Scale_out": 4.0},
    {"Scale_out": 8.0, "activation_type": "relu", "Scale_weights": [30.0, 20.0, 45.5, 10.0, 12.0]},
    {"force_fp32_output": True, "Scale_weights": [30.0, 20.0, 45.5, 10.0, 12.0]},
]


def _small(r: SampleRng, kind: type[np.integer[Any]], **attrs: Any) -> Sample:
    """A call as in a quantized model."""
    ends = np.iinfo(kind)
    x = r.integers(ends.min, ends.max + 1, (3, 12)).astype(kind)
    given = {"use_mkldnn": True, "Scale_in": 40.0, "Scale_weights": [30.0], **attrs}
    return Sample({"Input": x, "W": r.normal((12, 5)), "Bias": r.normal((5,))}, given, grad=())


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
        *(_small(r, kind, **attrs) for kind in (np.int8, np.uint8) for attrs in _SMALL),
        Sample(
            inputs((3, 4), (4, 5)),
            {"activation_type": "relu"},
            deviates={"*": "refuses relu without a bias; dpexec computes it"},
        ),
    ]


@op(
    "fc",
    inputs="Input W Bias?",
    infer=_infer,
    attrs={"Scale_weights": [1.0], "use_quantizer": False},
    no_grad=True,
    samples=_samples,
    operand_ulps=2,
    macs=lambda call: call.size("Out") * call.shape("W")[0],
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
    force_fp32_output: bool = False,
    Scale_in: float = 1.0,
    Scale_out: float = 1.0,
    Scale_weights: Sequence[float] = (1.0,),
) -> Any:
    """``activation(x @ w + bias)``, the layers ``mul``, ``elementwise_add`` and ``relu`` in one.

    It occurs in programs that were optimized for prediction, and has no gradient. The first
    ``in_num_col_dims`` dimensions of ``x`` are rows, the others columns. With ``padding_weights``
    the last four rows and columns of ``w`` are ignored.

    Quantized models have inputs of int8 or uint8: ``w`` is converted to int8 by ``Scale_weights``.
    The result is multiplied by ``Scale_out`` and converted to int8, or to uint8 after ``relu``; it
    is float32 with ``force_fp32_output``. Source: Paddle op ``fc``.
    """
    w = w[:-_PADDING, :-_PADDING] if padding_weights else w
    small, kind, back = x.dtype.kind != "f", x.dtype, [1.0]
    if small:
        scales = per_channel(Scale_weights, 2, 1)
        back = back_scales(Scale_in, Scale_weights, 1.0 if force_fp32_output else Scale_out)
        kind = np.uint8 if activation_type == "relu" else np.int8
        x, w = x.astype(np.float64), quantized(xp, w, scales)
        bias = None if bias is None else bias * xp.asarray(np.float32(Scale_in) * scales[0])
    out = mul(xp, x, w, x_num_col_dims=in_num_col_dims)
    out = out.astype(np.float32) if small else out
    if bias is not None:
        out += bias.reshape(-1)
    if small:
        out *= xp.asarray(per_channel(back, 1, 0))
    out = relu(xp, out) if activation_type == "relu" else out
    return stored(xp, out, np.float32 if force_fp32_output else kind) if small else out
