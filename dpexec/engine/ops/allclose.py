"""``allclose``: whether two tensors are equal within a tolerance."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, Spec, op
from dpexec.engine.ops._shapes import require_float, require_same_dtype, require_same_shape

_LARGE, _NEAR = np.array([10000.0, 1e-7]), np.array([10000.1, 1e-8])
_NAN = np.array([1.0, np.nan])


def _infer(x: Spec, y: Spec) -> Spec:
    require_float(x, "Input")
    require_same_dtype(x, y, "Input and Other")
    require_same_shape(x, y, "Input and Other")
    return Spec((1,), VarType.BOOL)


@op(
    "allclose",
    inputs="Input Other",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample({"Input": _LARGE, "Other": _NEAR}, expected={"Out": np.array([False])}),
        Sample(
            {"Input": _LARGE, "Other": _NEAR},
            {"atol": 1e-6},
            expected={"Out": np.array([True])},
        ),
        Sample({"Input": _NAN, "Other": _NAN}, expected={"Out": np.array([False])}),
        Sample(
            {"Input": _NAN, "Other": _NAN}, {"equal_nan": True}, expected={"Out": np.array([True])}
        ),
    ],
)
def allclose(
    xp: Any,
    x: Any,
    y: Any,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Any:
    """Whether ``|Input - Other| <= atol + rtol * |Other|`` everywhere; bool ``(1,)``.

    Source: Paddle op ``allclose``.
    """
    return xp.asarray(xp.allclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)).reshape(1)
