"""``transpose2``: dimensions in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._xshape import infer_from_xshape, xshape_array, xshape_spec


def _infer(x: Spec, *, axis: Sequence[int]) -> tuple[Spec, Spec]:
    require(
        sorted(axis) == list(range(x.rank)),
        f"axis is {list(axis)}, but must name every dimension of X {x} once",
    )
    return x.replace(shape=tuple(x.shape[a] for a in axis), lod_level=0), xshape_spec(x)


@op(
    "transpose2",
    inputs="X",
    outputs="Out XShape",
    infer=_infer,
    attrs={"data_format": "AnyLayout", "use_mkldnn": False, "use_quantizer": False},
    fixed={"data_format": ""},
    samples=lambda r: [
        Sample({"X": r.normal((2, 3, 4))}, {"axis": [2, 0, 1]}),
        Sample({"X": r.normal((2, 1, 3, 2))}, {"axis": [0, 2, 3, 1]}),
        Sample(
            {"X": np.array([[1.0, 2.0], [3.0, 4.0]])},
            {"axis": [1, 0]},
            expected={"Out": np.array([[1.0, 3.0], [2.0, 4.0]])},
        ),
    ],
    capturable=True,
    grad_lod="own",
    precision="gray",
    quantized="outputs",
    flops=0,
)
def transpose2(xp: Any, x: Any, *, axis: Sequence[int]) -> Any:
    """Dimension ``i`` of the result is dimension ``axis[i]`` of ``x``; a view.

    Source: Paddle op ``transpose2``.
    """
    return x.transpose(axis), xshape_array(xp, x)


@transpose2.grad("XShape", "Out@GRAD", outputs="X@GRAD", infer=infer_from_xshape)
def transpose2_grad(xp: Any, xshape: Any, d_out: Any, *, axis: Sequence[int] = ()) -> Any:
    """The dimensions in their old order; a view."""
    return d_out.transpose(np.argsort(axis).tolist())


@transpose2_grad.double_grad("DOut", "DDX", outputs="DDOut", infer=lambda d_out, ddx: d_out)
def transpose2_grad_grad(xp: Any, d_out: Any, ddx: Any, *, axis: Sequence[int] = ()) -> Any:
    """What flows in, with the dimensions in their new order; a view."""
    return ddx.transpose(axis)
