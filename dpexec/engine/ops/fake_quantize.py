"""``fake_quantize_abs_max`` and similar operators: numbers rounded to a few levels, kept as floats.

They have no gradients in Paddle. The passes of ``contrib.slim`` insert them after the gradient
operators were made; these then read the quantized numbers, so gradients pass straight through the
rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._optimizers import scalar
from dpexec.engine.ops._quantization import abs_max, check_bits, largest_level, levels_of
from dpexec.engine.ops._shapes import require_same_dtype

if TYPE_CHECKING:
    from dpexec.engine.ir.operator import Operator

_LEFT = {
    "OutScale": (
        "writes no scale in tests; dpexec writes InScale, which is the same variable in programs"
    )
}


def _infer(x: Spec, *, bit_length: int = 8) -> tuple[Spec, Spec]:
    check_bits(bit_length)
    return x, x.replace(shape=(1,), lod_level=0)


@op(
    "fake_quantize_abs_max",
    inputs="X",
    outputs="Out OutScale",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": r.normal((3, 5))}),
        Sample({"X": r.normal((2, 3, 4)) * 1e-3}, {"bit_length": 4}),
        Sample({"X": np.array([-2.0, 0.9, 0.5])}, {"bit_length": 2}),
        Sample(
            {"X": np.zeros((2, 3))},
            expected={"Out": np.zeros((2, 3)), "OutScale": np.array([0.0])},
        ),
    ],
)
def fake_quantize_abs_max(xp: Any, x: Any, *, bit_length: int = 8) -> tuple[Any, Any]:
    """``round(x / s * n)`` for the largest magnitude s in ``x`` and the largest level n.

    n is 127 for 8 bits. s is returned, too. Source: Paddle op ``fake_quantize_abs_max``.
    """
    scale = abs_max(xp, x)
    return levels_of(xp, x, scale, bit_length), scale.reshape(1)


def _infer_channels(x: Spec, *, bit_length: int = 8) -> tuple[Spec, Spec]:
    check_bits(bit_length)
    require(x.rank, f"X {x} must have channels")
    return x, x.replace(shape=x.shape[:1], lod_level=0)


@op(
    "fake_channel_wise_quantize_abs_max",
    inputs="X",
    outputs="Out OutScale",
    infer=_infer_channels,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": r.normal((4, 3, 2, 2))}),
        Sample({"X": r.normal((3, 5)) * 10}, {"bit_length": 5}),
        Sample({"X": np.array([[0.5, -2.0], [0.0, 0.0]])}, {"bit_length": 3}),
    ],
)
def fake_channel_wise_quantize_abs_max(xp: Any, x: Any, *, bit_length: int = 8) -> tuple[Any, Any]:
    """Like ``fake_quantize_abs_max``, with a scale for every row of the first dimension.

    Source: Paddle op ``fake_channel_wise_quantize_abs_max``.
    """
    scale = abs_max(xp, x, tuple(range(1, x.ndim)))
    return levels_of(xp, x, scale.reshape(-1, *(1,) * (x.ndim - 1)), bit_length), scale


# ---- scales that come from several batches


def _tests(op: Operator) -> bool:
    return bool(op.attrs.get("is_test"))


def _moving(xp: Any, x: Any, accum: Any, state: Any, rate: float) -> tuple[Any, Any, Any]:
    """Scale, state and sum after a batch, for a mean of the largest magnitudes that decays."""
    kind = x.dtype.type
    state = kind(rate) * state + kind(1)
    accum = kind(rate) * accum + abs_max(xp, x)
    return accum / state, state, accum


def _need_means(accum: Spec | None, state: Spec | None, is_test: bool) -> None:
    require(
        is_test or (accum is not None and state is not None),
        "InAccum and InState must be given unless is_test: they hold the mean that goes on",
    )


def _infer_moving(
    x: Spec,
    scale: Spec,
    accum: Spec | None,
    state: Spec | None,
    *,
    bit_length: int = 8,
    is_test: bool = False,
) -> tuple[Spec | None, ...]:
    check_bits(bit_length)
    require_same_dtype(x, scale, "X and InScale")
    _need_means(accum, state, is_test)
    one = x.replace(shape=(1,), lod_level=0)
    return x, one, *(None if is_test else one,) * 2


def _sums(r: SampleRng) -> dict[str, Any]:
    return {slot: r.uniform(0.5, 2.0, (1,)) for slot in ("InAccum", "InState")}


def _moving_samples(r: SampleRng) -> list[Sample]:
    def inputs(shape: tuple[int, ...]) -> dict[str, Any]:
        return {"X": r.normal(shape), "InScale": np.array([0.001]), **_sums(r)}

    tested = {"X": r.normal((2, 5)), "InScale": np.array([0.75])}
    return [
        Sample(inputs((3, 5))),
        Sample(inputs((2, 3, 2)), {"bit_length": 4, "moving_rate": 0.5}),
        Sample(tested, {"is_test": True}, deviates=_LEFT),
    ]


def _moved(
    xp: Any, x: Any, scale: Any, accum: Any, state: Any, rate: float, is_test: bool
) -> tuple[Any, Any, Any]:
    """The scale to quantize with, and the new state and sum."""
    return (scale.copy(), None, None) if is_test else _moving(xp, x, accum, state, rate)


_MOVING: dict[str, Any] = {
    "inputs": "X InScale InAccum? InState?",
    "outputs": "Out OutScale OutState? OutAccum?",
    "infer": _infer_moving,
    "no_grad": True,
    "keeps": _tests,
    "samples": _moving_samples,
}


@op("fake_quantize_moving_average_abs_max", **_MOVING)
def fake_quantize_moving_average_abs_max(
    xp: Any,
    x: Any,
    scale: Any,
    accum: Any = None,
    state: Any = None,
    *,
    bit_length: int = 8,
    moving_rate: float = 0.9,
    is_test: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """``round(clip(x, -s, s) / s * n)`` for a scale s that moves from batch to batch.

    It is ``OutAccum / OutState``: the mean of the largest magnitudes of the batches, each weighted
    ``moving_rate`` times the one after it. With ``is_test`` it is ``InScale``.
    Source: Paddle op ``fake_quantize_moving_average_abs_max``.
    """
    scale, state, accum = _moved(xp, x, scale, accum, state, moving_rate, is_test)
    return levels_of(xp, xp.clip(x, -scale, scale), scale, bit_length), scale, state, accum


@op("fake_quantize_dequantize_moving_average_abs_max", **_MOVING)
def fake_quantize_dequantize_moving_average_abs_max(
    xp: Any,
    x: Any,
    scale: Any,
    accum: Any = None,
    state: Any = None,
    *,
    bit_length: int = 8,
    moving_rate: float = 0.9,
    is_test: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """Like ``fake_quantize_moving_average_abs_max``, then multiplied by s / n again.

    Source: Paddle op ``fake_quantize_dequantize_moving_average_abs_max``.
    """
    scale, state, accum = _moved(xp, x, scale, accum, state, moving_rate, is_test)
    levels = levels_of(xp, xp.clip(x, -scale, scale), scale, bit_length)
    levels *= scale / x.dtype.type(largest_level(bit_length))
    return levels, scale, state, accum


def _infer_scale(
    x: Spec, accum: Spec | None, state: Spec | None, *, is_test: bool = False
) -> tuple[Spec | None, ...]:
    _need_means(accum, state, is_test)
    return x, *(None if is_test else x.replace(shape=(1,), lod_level=0),) * 3


@op(
    "moving_average_abs_max_scale",
    inputs="X InAccum? InState?",
    outputs="Out OutScale OutState? OutAccum?",
    infer=_infer_scale,
    no_grad=True,
    keeps=_tests,
    samples=lambda r: [
        Sample({"X": r.normal((3, 5)), **_sums(r)}),
        Sample({"X": r.normal((2, 3, 2)), **_sums(r)}, {"moving_rate": 0.5}),
        Sample({"X": r.normal((2, 5))}, {"is_test": True}),
    ],
)
def moving_average_abs_max_scale(
    xp: Any,
    x: Any,
    accum: Any = None,
    state: Any = None,
    *,
    moving_rate: float = 0.9,
    is_test: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """``x`` unchanged, and the scale of ``fake_quantize_moving_average_abs_max``.

    With ``is_test`` the scale does not change. Source: Paddle op ``moving_average_abs_max_scale``.
    """
    if is_test:
        return x.copy(), None, None, None
    return x.copy(), *_moving(xp, x, accum, state, moving_rate)


# ---- scales of a window of batches


def _infer_range(
    x: Spec,
    scale: Spec,
    step: Spec | None,
    *,
    bit_length: int = 8,
    window_size: int = 10000,
    is_test: bool = False,
) -> tuple[Spec | None, Spec, Spec]:
    check_bits(bit_length)
    require_same_dtype(x, scale, "X and InScale")
    require(is_test or step is not None, "Iter must be given unless is_test: it counts the batches")
    window = None if is_test else x.replace(shape=(window_size,), lod_level=0)
    return window, x, x.replace(shape=(1,), lod_level=0)


def _range_samples(r: SampleRng) -> list[Sample]:
    def inputs(scale: float, step: int) -> dict[str, Any]:
        return {"X": r.normal((3, 5)), "InScale": np.array([scale]), "Iter": np.array([step])}

    return [
        Sample(inputs(0.001, 0), {"window_size": 1}),
        Sample(inputs(5.0, 6), {"window_size": 1, "bit_length": 4}),
        Sample(
            {"X": r.normal((2, 5)), "InScale": np.array([0.75])}, {"is_test": True}, deviates=_LEFT
        ),
    ]


@op(
    "fake_quantize_range_abs_max",
    inputs="X InScale Iter?",
    outputs="OutScales? Out OutScale",
    infer=_infer_range,
    no_grad=True,
    keeps=_tests,
    samples=_range_samples,
)
def fake_quantize_range_abs_max(
    xp: Any,
    x: Any,
    scale: Any,
    step: Any = None,
    *,
    bit_length: int = 8,
    window_size: int = 10000,
    is_test: bool = False,
    before: Any = None,
) -> tuple[Any, Any, Any]:
    """``round(clip(x, -s, s) / s * n)`` for the largest magnitude s in the last batches.

    ``OutScales`` holds the magnitudes of the last ``window_size`` batches, including batch
    ``Iter``. With ``is_test`` s is ``InScale``. Source: Paddle op ``fake_quantize_range_abs_max``.
    """
    window, scale = (
        (None, scale.copy())
        if is_test
        else _in_window(xp, abs_max(xp, x), scale, scalar(step), before, window_size)
    )
    return window, levels_of(xp, xp.clip(x, -scale, scale), scale, bit_length), scale


def _in_window(
    xp: Any, here: Any, scale: Any, step: Any, before: Any, size: int
) -> tuple[Any, Any]:
    """The window with the scale of this batch, and the largest one in it.

    A smaller scale does not change the largest one, unless it replaces that one in the window.
    """
    places = xp.arange(size)
    window = xp.zeros(size, scale.dtype) if before is None else before
    removed = window[step % size]
    window = xp.where(places == step % size, here, window)
    largest = xp.where(places < step, window, 0).max()
    gone = xp.abs(removed - scale) < scale.dtype.type(1e-6)
    return window, xp.where(scale < here, here, xp.where(gone, largest, scale))
