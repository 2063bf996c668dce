"""``sequence_mask``: masks from lengths: ones for the first elements of each row."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type, to_numpy
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import integer


def _infer(x: Spec, length: Spec | None, *, maxlen: int = -1, out_dtype: int) -> Spec:
    require(x.dtype != VarType.BOOL, f"X {x} must hold numbers")
    require(maxlen > 0 or maxlen == -1, f"maxlen must be positive or -1, but is {maxlen}")
    require(
        length is None or length.size in (1, -1), f"MaxLenTensor {length} must have one element"
    )
    width = maxlen if length is None else -1
    return Spec((*x.shape, width), as_var_type(out_dtype))


@op(
    "sequence_mask",
    inputs="X MaxLenTensor?",
    outputs="Y",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=lambda r: [
        Sample(
            {"X": np.array([3, 1, 0])},
            {"out_dtype": VarType.INT64},
            expected={"Y": np.array([[1, 1, 1], [1, 0, 0], [0, 0, 0]])},
        ),
        Sample({"X": np.array([[3, 1], [5, 2]])}, {"maxlen": 4, "out_dtype": VarType.FP32}),
        Sample(
            {"X": np.array([2, 4], np.int32), "MaxLenTensor": np.array([5], np.int32)},
            {"out_dtype": VarType.BOOL},
        ),
    ],
    host_inputs="MaxLenTensor",
)
def sequence_mask(xp: Any, x: Any, length: Any, *, maxlen: int = -1, out_dtype: int) -> Any:
    """``Y[..., j]`` is 1 where ``j`` is less than ``x``, else 0.

    The last dimension is ``maxlen``, or the number in ``MaxLenTensor``, or the greatest number of
    ``x``. Source: Paddle op ``sequence_mask``.

    Raises:
        ValueError: the length is not positive.
    """
    width = integer(maxlen, length)
    if width < 0 and length is None:
        width = int(x.max()) if x.size else 0
    if width < 0 or (length is not None and width == 0):
        raise ValueError(f"sequence_mask: the length of the mask must be positive, but is {width}")
    return (xp.arange(width) < x[..., None]).astype(to_numpy(out_dtype))
