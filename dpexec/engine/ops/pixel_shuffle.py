"""Channels, positions and frames exchanged: ``pixel_shuffle``, ``shuffle_channel`` and others."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import product


def _divided(dim: int, by: int, what: str) -> int:
    require(dim < 0 or dim % by == 0, f"{what} {dim} must be a multiple of {by}")
    return -1 if dim < 0 else dim // by


def _infer_pixel_shuffle(x: Spec, *, upscale_factor: int = 1) -> Spec:
    require(x.rank == 4, f"X {x} must be images (N, C, H, W)")
    require(upscale_factor >= 1, f"upscale_factor is {upscale_factor}, but must be positive")
    batch, channels, height, width = x.shape
    channels = _divided(channels, upscale_factor**2, "the number of channels")
    size = (product((n, upscale_factor)) for n in (height, width))
    return x.replace(shape=(batch, channels, *size), lod_level=0)


@op(
    "pixel_shuffle",
    inputs="X",
    infer=_infer_pixel_shuffle,
    samples=lambda r: [
        Sample({"X": r.normal((2, 4, 2, 3))}, {"upscale_factor": 2}),
        Sample({"X": r.normal((1, 18, 1, 2))}, {"upscale_factor": 3}),
        Sample({"X": r.normal((2, 3, 2, 2))}, {"upscale_factor": 1}),
    ],
)
def pixel_shuffle(xp: Any, x: Any, *, upscale_factor: int = 1) -> Any:
    """Channels become pixels: ``(N, C * f * f, H, W)`` to ``(N, C, H * f, W * f)``.

    Source: Paddle op ``pixel_shuffle``; Shi and others, 2016.
    """
    f = upscale_factor
    batch, channels, height, width = x.shape
    parts = x.reshape(batch, channels // (f * f), f, f, height, width)
    return parts.transpose(0, 1, 4, 2, 5, 3).reshape(
        batch, channels // (f * f), height * f, width * f
    )


@pixel_shuffle.grad("Out@GRAD", outputs="X@GRAD", infer=lambda d_out, *, upscale_factor=1: (
    d_out.replace(shape=_unshuffled(d_out.shape, upscale_factor))
))  # fmt: skip
def pixel_shuffle_grad(xp: Any, d_out: Any, *, upscale_factor: int = 1) -> Any:
    """Pixels become channels again."""
    f = upscale_factor
    batch, channels, height, width = d_out.shape
    parts = d_out.reshape(batch, channels, height // f, f, width // f, f)
    return parts.transpose(0, 1, 3, 5, 2, 4).reshape(_unshuffled(d_out.shape, f))


def _unshuffled(shape: tuple[int, ...], f: int) -> tuple[int, ...]:
    batch, channels, height, width = shape
    size = (-1 if n < 0 else n // f for n in (height, width))
    return (batch, product((channels, f * f)), *size)


def _infer_shuffle_channel(x: Spec, *, group: int = 1) -> Spec:
    require(x.rank == 4, f"X {x} must be images (N, C, H, W)")
    require(group >= 1, f"group is {group}, but must be positive")
    _divided(x.shape[1], group, "the number of channels")
    return x.replace(lod_level=0)


def _shuffled(x: Any, group: int) -> Any:
    batch, channels, height, width = x.shape
    parts = x.reshape(batch, group, channels // group, height, width)
    return parts.swapaxes(1, 2).reshape(x.shape)


@op(
    "shuffle_channel",
    inputs="X",
    infer=_infer_shuffle_channel,
    samples=lambda r: [
        Sample({"X": r.normal((2, 4, 2, 3))}, {"group": 2}),
        Sample({"X": r.normal((1, 9, 1, 2))}, {"group": 3}),
        Sample(
            {"X": r.normal((1, 6, 1, 2))},
            {"group": 3},
            deviates={
                "X@GRAD": (
                    "permutes the channels of the gradient like the forward pass; dpexec "
                    "permutes them back"
                )
            },
        ),
        Sample({"X": r.normal((2, 4, 1, 1))}, {"group": 1}),
    ],
)
def shuffle_channel(xp: Any, x: Any, *, group: int = 1) -> Any:
    """The first channels of all groups, then the second ones, and so on.

    Source: Paddle op ``shuffle_channel``; Zhang and others, 2017 (ShuffleNet).
    """
    return _shuffled(x, group)


@shuffle_channel.grad("Out@GRAD", outputs="X@GRAD")
def shuffle_channel_grad(xp: Any, d_out: Any, *, group: int = 1) -> Any:
    """The gradient in the old order of the channels, for all groups (Paddle's is not)."""
    return _shuffled(d_out, d_out.shape[1] // group)


def _infer_space_to_depth(x: Spec, *, blocksize: int = 2) -> Spec:
    require(x.rank == 4, f"X {x} must be images (N, C, H, W)")
    require(blocksize > 1, f"blocksize is {blocksize}, but must be at least 2")
    batch, channels, height, width = x.shape
    _divided(channels, blocksize**2, "the number of channels")
    size = (_divided(n, blocksize, "height or width") for n in (height, width))
    return x.replace(shape=(batch, product((channels, blocksize**2)), *size))


@op(
    "space_to_depth",
    inputs="X",
    infer=_infer_space_to_depth,
    samples=lambda r: [
        Sample({"X": r.normal((2, 4, 2, 4))}, {"blocksize": 2}),
        Sample({"X": r.normal((1, 8, 4, 4))}, {"blocksize": 2}),
        Sample({"X": r.normal((1, 9, 3, 6))}, {"blocksize": 3}),
    ],
)
def space_to_depth(xp: Any, x: Any, *, blocksize: int = 2) -> Any:
    """``(N, C, H, W)`` to ``(N, C * b * b, H / b, W / b)``, in the order of Darknet.

    As in Darknet, the channels first become pixels of images ``(N, C / b**2, H * b, W * b)``; the
    result has their elements in the same order. Source: Paddle op ``space_to_depth``; Redmon, 2016
    (the layer "reorg" of Darknet).
    """
    b = blocksize
    batch, channels, height, width = x.shape
    parts = x.reshape(batch, b, b, channels // (b * b), height, width)
    finer = parts.transpose(0, 3, 4, 1, 5, 2)
    return finer.reshape(batch, channels * b * b, height // b, width // b)


@space_to_depth.grad("X", "Out@GRAD", dense=True)
def space_to_depth_grad(xp: Any, x: Any, d_out: Any, *, blocksize: int = 2) -> Any:
    """The gradient, with every element moved back."""
    b = blocksize
    batch, channels, height, width = x.shape
    finer = d_out.reshape(batch, channels // (b * b), height, b, width, b)
    return finer.transpose(0, 3, 5, 1, 2, 4).reshape(x.shape)


def _infer_temporal_shift(x: Spec, *, seg_num: int, shift_ratio: float = 0.25) -> Spec:
    require(x.rank == 4, f"X {x} must be frames (N * T, C, H, W)")
    require(seg_num >= 1, f"seg_num is {seg_num}, but must be positive")
    require(0 < shift_ratio < 0.5, f"shift_ratio is {shift_ratio}, but must lie within (0, 0.5)")
    _divided(x.shape[0], seg_num, "the number of frames")
    return x


def _shifted(xp: Any, x: Any, seg_num: int, shift_ratio: float, step: int) -> Any:
    """The first channels moved by ``step`` frames, the next ones back, the others left."""
    frames = x.reshape(-1, seg_num, *x.shape[1:])
    first = int(x.shape[1] * np.float32(shift_ratio))
    second = int(x.shape[1] * 2 * np.float32(shift_ratio))
    out = xp.zeros_like(frames)
    early, late = slice(None, -1), slice(1, None)
    to, of = (late, early) if step > 0 else (early, late)
    out[:, to, :first] = frames[:, of, :first]
    out[:, of, first:second] = frames[:, to, first:second]
    out[:, :, second:] = frames[:, :, second:]
    return out.reshape(x.shape)


@op(
    "temporal_shift",
    inputs="X",
    infer=_infer_temporal_shift,
    samples=lambda r: [
        Sample({"X": r.normal((4, 4, 2, 1))}, {"seg_num": 2}),
        Sample({"X": r.normal((6, 7, 1, 2))}, {"seg_num": 3, "shift_ratio": 0.4}),
        Sample({"X": r.normal((3, 8, 1, 1))}, {"seg_num": 1, "shift_ratio": 0.125}),
    ],
    operand_ulps=1,
)
def temporal_shift(xp: Any, x: Any, *, seg_num: int, shift_ratio: float = 0.25) -> Any:
    """Takes a share of the channels of each frame from the previous one, a share from the next.

    ``X`` holds ``seg_num`` frames per video, with zeros beyond both ends. Source: Paddle op
    ``temporal_shift``; Lin, Gan, Han, 2018.
    """
    return _shifted(xp, x, seg_num, shift_ratio, 1)


@temporal_shift.grad("Out@GRAD", outputs="X@GRAD", dense=True, operand_ulps=1)
def temporal_shift_grad(xp: Any, d_out: Any, *, seg_num: int = 1, shift_ratio: float = 0.25) -> Any:
    """The gradient shifted back."""
    return _shifted(xp, d_out, seg_num, shift_ratio, -1)
