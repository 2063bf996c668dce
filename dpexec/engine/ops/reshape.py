"""``reshape`` and ``transpose``: the first versions of ``reshape2`` and ``transpose2``.

Old programs and weight normalisation use them. Their gradients read X itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op
from dpexec.engine.ops import reshape2 as reshaping
from dpexec.engine.ops import transpose2 as transposing
from dpexec.engine.ops._shapes import integers


def _infer_reshape(
    x: Spec, tensor: Spec | None, parts: list[Spec], *, shape: Sequence[int] = ()
) -> Spec:
    return reshaping._infer(x, tensor, parts, shape=shape)[0]


@op(
    "reshape",
    inputs="X Shape? ShapeTensor?[]",
    infer=_infer_reshape,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3, 4))}, {"shape": [0, -1]}),
        Sample({"X": r.normal((2, 6))}, {"shape": [3, 4]}),
        Sample({"X": r.normal((2, 6)), "Shape": np.array([4, 3], np.int32)}, {"shape": [-1, 3]}),
    ],
    capturable=True,
    host_inputs="Shape ShapeTensor",
    makes_numbers=True,
    quantized="inputs",
    rows_stay=reshaping.rows_stay,
    flops=0,
)
def reshape(xp: Any, x: Any, tensor: Any, parts: list[Any], *, shape: Sequence[int] = ()) -> Any:
    """The elements of ``x`` in another shape; a view. Source: Paddle op ``reshape``."""
    wanted = integers(shape, tensor, parts)
    return x.reshape(tuple(x.shape[i] if dim == 0 else dim for i, dim in enumerate(wanted)))


@reshape.grad("X", "Shape?", "ShapeTensor?[]", "Out", "Out@GRAD", dense=True)
def reshape_grad(xp: Any, x: Any, tensor: Any, parts: list[Any], out: Any, d_out: Any) -> Any:
    """The gradient in the shape of X; a view."""
    return d_out.reshape(x.shape), None, [None] * len(parts)


def _infer_transpose(x: Spec, *, axis: Sequence[int]) -> Spec:
    return transposing._infer(x, axis=axis)[0]


@op(
    "transpose",
    inputs="X",
    infer=_infer_transpose,
    attrs={"data_format": "AnyLayout", "use_mkldnn": False, "use_quantizer": False},
    fixed={"data_format": ""},
    samples=transposing.transpose2.samples,
    capturable=True,
    quantized="inputs",
    flops=0,
)
def transpose(xp: Any, x: Any, *, axis: Sequence[int]) -> Any:
    """Dimension ``i`` of the result is dimension ``axis[i]`` of ``x``; a view.

    Source: Paddle op ``transpose``.
    """
    return x.transpose(axis)


@transpose.grad("X", "Out", "Out@GRAD", dense=True)
def transpose_grad(xp: Any, x: Any, out: Any, d_out: Any, *, axis: Sequence[int] = ()) -> Any:
    """The dimensions in their old order; a view."""
    return d_out.transpose(np.argsort(axis).tolist())
