"""``fake_dequantize_max_abs`` and similar operators: levels or bytes back to real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._optimizers import scalar
from dpexec.engine.ops._quantization import check_bits, largest_level
from dpexec.engine.ops._shapes import require_same_dtype


def _infer(x: Spec, scale: Spec, *, max_range: float) -> Spec:
    require(max_range, "max_range must be given")
    require_same_dtype(x, scale, "X and Scale")
    return x


@op(
    "fake_dequantize_max_abs",
    inputs="X Scale",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": np.rint(r.normal((3, 5)) * 50), "Scale": np.array([0.7])}, {"max_range": 127}),
        Sample({"X": r.normal((2, 3, 2)), "Scale": np.array([3.0])}, {"max_range": 32767.0}),
        Sample(
            {"X": np.array([-127.0, 0.0, 127.0]), "Scale": np.array([2.0])},
            {"max_range": 127.0},
            expected={"Out": np.array([-2.0, 0.0, 2.0])},
        ),
    ],
)
def fake_dequantize_max_abs(xp: Any, x: Any, scale: Any, *, max_range: float) -> Any:
    """``x * Scale / max_range``. Source: Paddle op ``fake_dequantize_max_abs``."""
    made = x * scalar(scale)
    made /= x.dtype.type(max_range)
    return made


Bits = Sequence[int]


def _infer_channels(x: Spec, scales: list[Spec], *, quant_bits: Bits = (8,)) -> Spec:
    for bits in quant_bits:
        check_bits(bits)
    require(len(scales) in (1, 2), f"there must be one or two Scales, but there are {len(scales)}")
    require(
        len(quant_bits) >= len(scales),
        f"quant_bits {list(quant_bits)} must have a number for each of {len(scales)} Scales",
    )
    axis = len(scales) - 1
    require(x.rank > axis, f"X {x} must have more than {axis} dimensions")
    require(
        scales[0].rank == 1 and dims_match(scales[0].shape[0], x.shape[axis]),
        f"Scales {scales[0]} must have one element per channel, dimension {axis} of X {x}",
    )
    return x


@op(
    "fake_channel_wise_dequantize_max_abs",
    inputs="X Scales[]",
    infer=_infer_channels,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": r.normal((4, 3, 2)) * 50, "Scales": [r.uniform(0.5, 2.0, (4,))]}),
        Sample({"X": r.normal((3, 2)), "Scales": [r.normal((3,))]}, {"quant_bits": [4]}),
        Sample(
            {"X": r.normal((4, 3, 2)), "Scales": [r.uniform(0.5, 2.0, (3,)), np.array([0.7])]},
            {"quant_bits": [8, 5]},
        ),
    ],
)
def fake_channel_wise_dequantize_max_abs(
    xp: Any, x: Any, scales: list[Any], *, quant_bits: Bits = (8,)
) -> Any:
    """``x * s / n`` with a scale s for each channel, for the largest level n.

    With one input in ``Scales``, ``x`` is weights, with channels in the first dimension. With two,
    those of weights and of the other factor, ``x`` is a product with channels in the second
    dimension, and is multiplied by both. Source: Paddle op
    ``fake_channel_wise_dequantize_max_abs``.
    """
    axis = len(scales) - 1
    scale = scales[0].reshape(-1, *(1,) * (x.ndim - 1 - axis))
    largest = 1
    for other, bits in zip((1, *scales[1:]), quant_bits, strict=False):
        scale = scale * other
        largest *= largest_level(bits)
    made = x * scale
    made /= x.dtype.type(largest)
    return made


def _infer_bytes(x: Spec, scale: Spec, *, max_range: float) -> Spec:
    require(max_range, "max_range must be given")
    require(x.dtype == VarType.INT8, f"X {x} must be int8")
    return x.replace(dtype=scale.dtype)


@op(
    "dequantize_abs_max",
    inputs="X Scale",
    infer=_infer_bytes,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": _bytes(r, (3, 4)), "Scale": np.array([0.7])}, {"max_range": 127.0}),
        Sample({"X": _bytes(r, (2, 2, 3)), "Scale": np.array([5.0])}, {"max_range": 100.0}),
        Sample({"X": _bytes(r, (4,)), "Scale": np.array([0.01])}, {"max_range": 1.0}),
    ],
)
def dequantize_abs_max(xp: Any, x: Any, scale: Any, *, max_range: float) -> Any:
    """``x * Scale / max_range`` of bytes. Source: Paddle op ``dequantize_abs_max``."""
    made = x.astype(scale.dtype) * scalar(scale)
    made /= scale.dtype.type(max_range)
    return made


def _bytes(r: Any, shape: tuple[int, ...]) -> Any:
    return r.integers(-128, 128, shape).astype(np.int8)


def _infer_log(x: Spec, table: Spec) -> Spec:
    require(x.dtype == VarType.INT8, f"X {x} must be int8")
    require(dims_match(table.size, 128), f"Dict {table} must have a number for each of 128 levels")
    return x.replace(dtype=table.dtype)


@op(
    "dequantize_log",
    inputs="X Dict",
    infer=_infer_log,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": _bytes(r, (3, 4)), "Dict": r.normal((128,))}),
        Sample({"X": _bytes(r, (2, 2, 3)), "Dict": r.uniform(0.0, 1.0, (128,))}),
        Sample({"X": np.array([0, 127, -1, -128], np.int8), "Dict": r.normal((128,))}),
    ],
)
def dequantize_log(xp: Any, x: Any, table: Any) -> Any:
    """``Dict[x]``, for a negative byte ``-Dict[x + 128]``. Source: Paddle op ``dequantize_log``."""
    found = table.reshape(-1)[x.astype(np.int64) & 127]
    return xp.where(x < 0, -found, found)
