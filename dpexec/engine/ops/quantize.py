"""``quantize``, ``requantize`` and ``dequantize``: numbers as small integers times a scale.

8-bit models for prediction contain them. Paddle leaves them to MKL-DNN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._edges import spoiled

_SMALL = (VarType.INT8, VarType.UINT8)
_LAYOUT = (
    "stores the result in the order NHWC, which a fetch reads as NCHW; dpexec fetches the "
    "elements in their places"
)


def in_range(xp: Any, values: Any, kind: Any) -> Any:
    """The nearest integers of a type; ties go to even ones, and out-of-range numbers to the ends.

    Args:
        xp: ``numpy`` or ``cupy``.
        values: float32.
        kind: ``int8`` or ``uint8``.
    """
    ends = np.iinfo(kind)
    return xp.clip(xp.rint(values), ends.min, ends.max).astype(kind)


def _infer_quantize(x: Spec, *, is_negative_input: bool = False) -> Spec:
    require(x.dtype in (VarType.FP32, VarType.FP16), f"Input {x} must hold float32")
    return x.replace(dtype=VarType.INT8 if is_negative_input else VarType.UINT8)


@op(
    "quantize",
    inputs="Input",
    outputs="Output",
    infer=_infer_quantize,
    attrs={"output_format": "NHWC"},
    no_grad=True,
    samples=lambda r: [
        Sample(
            {"Input": np.array([[0.25, 0.75, -0.25, 200.0], [-200.0, 1.0, 1.25, 0.0]])},
            {"Scale": 10.0, "is_negative_input": True},
            expected={"Output": np.array([[2, 8, -2, 127], [-128, 10, 12, 0]], np.int8)},
        ),
        Sample({"Input": r.uniform(-1.0, 30.0, (3, 4))}, {"Scale": 10.0}),
        Sample(
            {"Input": r.uniform(-1.5, 1.5, (2, 3, 4, 2))},
            {"Scale": 100.0, "is_negative_input": True, "output_format": "NCHW"},
        ),
        Sample(
            {"Input": r.uniform(0.0, 2.0, (2, 3, 4, 2))},
            {"Scale": 100.0},
            deviates={"Output": _LAYOUT},
        ),
        spoiled(
            Sample(
                {"Input": r.uniform(-1.0, 30.0, (3, 4))}, {"Scale": 10.0, "is_negative_input": True}
            ),
            "Input",
            1e10,
            "Output",
            "gives the smallest number beyond the range of int32; dpexec gives the largest",
        ),
    ],
)
def quantize(xp: Any, x: Any, *, Scale: float = 1.0, is_negative_input: bool = False) -> Any:
    """``x * Scale`` as int8, or as uint8 if no number is negative.

    ``output_format`` has no effect. Source: Paddle op ``quantize``.
    """
    return in_range(xp, x * x.dtype.type(Scale), np.int8 if is_negative_input else np.uint8)


def _infer_small(x: Spec) -> Spec:
    require(x.dtype in _SMALL, f"Input {x} must hold int8 or uint8")
    return x


@op(
    "requantize",
    inputs="Input",
    outputs="Output",
    infer=_infer_small,
    no_grad=True,
    samples=lambda r: [
        Sample(
            {"Input": np.arange(-8, 8).reshape(1, 2, 2, 4).astype(np.int8)},
            {"Scale_in": 2.0, "Scale_out": 3.0},
        ),
        Sample(
            {"Input": np.arange(-8, 8).reshape(2, 1, 2, 4).astype(np.int8)},
            {"Scale_in": 2.0, "Scale_out": 1.0},
        ),
        Sample(
            {"Input": np.array([[[[-8, 1, 2, 3]]]], np.int8)},
            {"Scale_in": 1.0, "Scale_out": 50.0},
            expected={"Output": np.array([[[[-128, 50, 100, 127]]]], np.int8)},
        ),
        Sample(
            {"Input": np.arange(240, 256).reshape(1, 2, 2, 4).astype(np.uint8)},
            {"Scale_in": 4.0, "Scale_out": 2.0},
        ),
    ],
)
def requantize(xp: Any, x: Any, *, Scale_in: float = 1.0, Scale_out: float = 1.0) -> Any:
    """Convert integers from one scale to another: ``x * (Scale_out / Scale_in)``.

    Source: Paddle op ``requantize``.
    """
    factor = np.float32(np.float32(Scale_out) / np.float32(Scale_in))
    return in_range(xp, x.astype(np.float32) * factor, x.dtype)


def _infer_dequantize(x: Spec) -> Spec:
    return _infer_small(x).replace(dtype=VarType.FP32)


@op(
    "dequantize",
    inputs="Input",
    outputs="Output",
    infer=_infer_dequantize,
    no_grad=True,
    samples=lambda r: [
        Sample({"Input": np.arange(-128, 128).reshape(8, 32).astype(np.int8)}, {"Scale": 10.0}),
        Sample({"Input": np.arange(256).reshape(16, 16).astype(np.uint8)}, {"Scale": 2.5}),
        Sample(
            {"Input": np.array([[-4, 0, 6]], np.int8)},
            {"Scale": 4.0},
            expected={"Output": np.array([[-1.0, 0.0, 1.5]], np.float32)},
        ),
    ],
)
def dequantize(xp: Any, x: Any, *, Scale: float = 1.0) -> Any:
    """``x / Scale`` as float32. Source: Paddle op ``dequantize``."""
    return x.astype(np.float32) * np.float32(1 / np.float32(Scale))
