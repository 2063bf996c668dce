"""``bilinear_interp``, ``nearest_interp``, ``trilinear_interp``, ``bicubic_interp``.

They resize images. Every method combines some elements along one axis after another, with weights
that depend only on the position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.opdef import OpDef, Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._shapes import integers, require_float, require_numbers
from dpexec.engine.ops._windows import has_channels_last, image_shape, size_of

_INPUTS = ("X", "OutSize?", "SizeTensor?[]", "Scale?")

_Taps = list[tuple[Any, Any]]
"""Indices into an axis and weights, for each element of the result."""


@dataclass(frozen=True, slots=True)
class _Positions:
    """The positions of a resized axis's elements in the original.

    They are computed in single precision, as in Paddle, but cubic polynomials in the precision of
    the images.

    Args:
        old: length of the axis.
        new: length of the result.
        align_corners: whether the first and the last elements of both coincide.
        align_mode: 0: pixels are areas, 1: pixels are points (unless corners are aligned).
        dtype: data type of the images.
    """

    old: int
    new: int
    align_corners: bool
    align_mode: int
    dtype: np.dtype[Any]

    @property
    def _ratio(self) -> np.float32:
        if self.new <= 1:
            return np.float32(0)
        if self.align_corners:
            return np.float32(self.old - 1) / np.float32(self.new - 1)
        return np.float32(self.old) / np.float32(self.new)

    def _at(self, areas: bool, dtype: Any = np.float32) -> Any:
        """The positions in a data type; those of areas are rounded once, at the end."""
        if areas:
            steps = np.arange(self.new) + 0.5
            return (float(self._ratio) * steps - 0.5).astype(dtype)
        return (self._ratio * np.arange(self.new, dtype=np.float32)).astype(dtype)

    def nearest(self) -> _Taps:
        places = self._at(False, np.float64) + (0.5 if self.align_corners else 0)
        return [(places.astype(np.int64), None)]

    def linear(self) -> _Taps:
        areas = self.align_mode == 0 and not self.align_corners
        places = np.maximum(self._at(areas), 0)
        first = places.astype(np.int64)
        share = places - first.astype(np.float32)
        return [(first, 1 - share), (np.minimum(first + 1, self.old - 1), share)]

    def cubic(self) -> _Taps:
        places = self._at(not self.align_corners, np.float64)
        first = np.floor(places)
        share = places - first
        t, rest = share.astype(self.dtype), (1 - share).astype(self.dtype)
        weights = [_far(t, rest), _near(t, rest), _near(rest, t), _far(rest, t)]
        return [
            (np.clip(first.astype(np.int64) + i - 1, 0, self.old - 1), weight)
            for i, weight in enumerate(weights)
        ]


_BEND = -0.75


def _near(d: Any, rest: Any) -> Any:
    """The weight of an element at the distance ``d`` < 1; ``rest`` is ``1 - d``."""
    return rest * (1 + d - (_BEND + 2) * d * d)


def _far(d: Any, rest: Any) -> Any:
    """The weight of an element at the distance ``1 + d``; ``rest`` is ``1 - d``."""
    return _BEND * d * rest * rest


_METHODS: dict[str, Callable[[_Positions], _Taps]] = {
    "nearest": _Positions.nearest,
    "bilinear": _Positions.linear,
    "trilinear": _Positions.linear,
    "bicubic": _Positions.cubic,
}


def _sizes(out_d: int, out_h: int, out_w: int, axes: int) -> list[int]:
    return [out_d, out_h, out_w][3 - axes :]


def _infer(
    x: Spec,
    size: Spec | None,
    parts: list[Spec],
    factor: Spec | None,
    *,
    out_d: int = 0,
    out_h: int = 0,
    out_w: int = 0,
    scale: float = 0.0,
    data_layout: str = "NCHW",
    interp_method: str = "bilinear",
) -> Spec:
    if x.dtype != VarType.UINT8 or interp_method == "bicubic":
        require_float(x)
    axes = 3 if interp_method == "trilinear" else 2
    require(x.rank == axes + 2, f"X {x} must have {axes + 2} dimensions")
    require_numbers(parts, "SizeTensor")
    require(interp_method in _METHODS, f"interp_method must be one of {', '.join(_METHODS)}")
    made = _sizes(out_d, out_h, out_w, axes)
    if not parts and scale > 0 and factor is None:
        made = [-1 if n < 0 else int(n * scale) for n in size_of(x.shape, data_layout)]
    dynamic = bool(parts) or factor is not None or size is not None
    require(dynamic or min(made) > 0 or scale > 0, f"the size of the output is not known: {made}")
    made = [n if n > 0 else -1 for n in made]
    if not parts and (factor is not None or size is not None):
        made = [-1] * axes
    channels = x.shape[-1 if has_channels_last(data_layout) else 1]
    return x.replace(shape=image_shape(x.shape[0], channels, tuple(made), data_layout), lod_level=0)


def _wanted(
    x: Any, size: Any, parts: list[Any], factor: Any, made: list[int], scale: float, layout: str
) -> list[int]:
    """The size of the output: from variables if there are any."""
    if parts or size is not None:
        return list(integers((), size, parts))
    if factor is not None:
        scale = float(factor.reshape(-1)[0])
    if scale > 0:
        return [int(n * scale) for n in size_of(x.shape, layout)]
    return made


def _resized(xp: Any, x: Any, axis: int, taps: _Taps) -> Any:
    shape = [1] * x.ndim
    shape[axis] = -1
    out: Any = None
    for index, weight in taps:
        part = xp.take(x, xp.asarray(index), axis=axis)
        if weight is not None:
            part = part * xp.asarray(weight.reshape(shape), dtype=x.dtype)
        out = part if out is None else out + part
    return out


def _resized_grad(xp: Any, d_out: Any, axis: int, old: int, taps: _Taps) -> Any:
    """The product with the transposed matrix of weights."""
    new = d_out.shape[axis]
    matrix = np.zeros((old, new), dtype=d_out.dtype)
    for index, weight in taps:
        np.add.at(matrix, (index, np.arange(new)), 1 if weight is None else weight)
    made = xp.tensordot(d_out, xp.asarray(matrix), axes=([axis], [1]))
    return xp.moveaxis(made, -1, axis)


def axis_taps(
    old: Sequence[int], new: Sequence[int], dtype: Any, method: str, corners: bool, align_mode: int
) -> list[_Taps]:
    """For each axis, the elements that results combine, and their weights; None for weights of 1.

    Args:
        old: lengths of the axes.
        new: lengths of the axes of the result.
        dtype: data type of the images.
        method: ``nearest``, ``bilinear``, ``trilinear`` or ``bicubic``.
        corners: whether the outermost elements of old and new coincide.
        align_mode: see :class:`_Positions`.
    """
    make, pairs = _METHODS[method], zip(old, new, strict=True)
    precise = np.promote_types(dtype, np.float32)
    return [make(_Positions(a, b, corners, align_mode, precise)) for a, b in pairs]


def _declare(
    method: str, doc: str, samples: Callable[[SampleRng], list[Sample]], **facts: Any
) -> OpDef:
    axes = 3 if method == "trilinear" else 2

    def kernel(
        xp: Any,
        x: Any,
        size: Any,
        parts: list[Any],
        factor: Any,
        *,
        out_d: int = 0,
        out_h: int = 0,
        out_w: int = 0,
        scale: float = 0.0,
        data_layout: str = "NCHW",
        align_corners: bool = True,
        align_mode: int = 1,
    ) -> Any:
        made = _sizes(out_d, out_h, out_w, axes)
        new = _wanted(x, size, parts, factor, made, scale, data_layout)
        require(min(new) > 0, f"the size of the output must be above 0, but it is {new}")
        old, dtype = size_of(x.shape, data_layout), x.dtype
        first = 1 if has_channels_last(data_layout) else 2
        if dtype.kind != "f" and method != "nearest":
            x = x.astype(np.float32)
        for i, taps in enumerate(axis_taps(old, new, x.dtype, method, align_corners, align_mode)):
            x = _resized(xp, x, first + i, taps)
        return x.astype(dtype, copy=False)

    kernel.__doc__ = doc
    definition = op(
        method + "_interp",
        inputs=_INPUTS,
        infer=_infer,
        attrs={"interp_method": "bilinear"},
        operand_ulps=8,
        samples=samples,
        host_inputs="OutSize SizeTensor Scale",
        **facts,
    )(kernel)
    return _declare_gradient(definition, method)


def _declare_gradient(definition: OpDef, method: str) -> OpDef:
    @definition.grad(*_INPUTS, "Out@GRAD", outputs="X@GRAD", dense=True, operand_ulps=8)
    def kernel_grad(
        xp: Any,
        x: Any,
        size: Any,
        parts: list[Any],
        factor: Any,
        d_out: Any,
        *,
        data_layout: str = "NCHW",
        align_corners: bool = True,
        align_mode: int = 1,
    ) -> Any:
        """Every element gets the gradients of the results that it has a weight in."""
        old, new = size_of(x.shape, data_layout), size_of(d_out.shape, data_layout)
        first = 1 if has_channels_last(data_layout) else 2
        for i, taps in enumerate(axis_taps(old, new, x.dtype, method, align_corners, align_mode)):
            d_out = _resized_grad(xp, d_out, first + i, old[i], taps)
        return xp.ascontiguousarray(d_out)

    return definition


def _bytes(r: SampleRng, shape: tuple[int, ...], attrs: dict[str, Any]) -> Sample:
    return Sample({"X": r.integers(0, 256, shape).astype(np.uint8)}, attrs, grad=())


def _samples(method: str) -> Callable[[SampleRng], list[Sample]]:
    whole = method != "bicubic"  # its images are no whole numbers

    def call(r: SampleRng) -> list[Sample]:
        two = np.array([7], np.int32), np.array([3], np.int32)
        named = {"interp_method": method}
        return [
            Sample({"X": r.normal((2, 3, 4, 5))}, {"out_h": 7, "out_w": 3, **named}),
            Sample(
                {"X": r.normal((2, 4, 5, 3))},
                {"scale": 1.6, "align_corners": False, "data_layout": "NHWC", **named},
            ),
            Sample(
                {"X": r.normal((2, 3, 4, 5))},
                {"out_h": 6, "out_w": 9, "align_corners": False, "align_mode": 0, **named},
            ),
            Sample(
                {"X": r.normal((1, 2, 4, 5)), "OutSize": np.array([6, 1], np.int32)},
                {"out_h": 2, "out_w": 2, **named},
            ),
            Sample(
                {"X": r.normal((1, 2, 4, 5)), "SizeTensor": list(two)},
                {"out_h": -1, "out_w": 3, **named},
            ),
            Sample(
                {"X": r.normal((1, 2, 4, 5)), "Scale": np.array([2.0])},
                {"out_h": -1, "out_w": -1, **named},
                grad=("X",),
            ),
            *(_bytes(r, (1, 2, 4, 5), {"out_h": 7, "out_w": 3, **named}) for _ in range(whole)),
        ]

    return call


def _volume_samples(r: SampleRng) -> list[Sample]:
    named = {"interp_method": "trilinear"}
    return [
        Sample({"X": r.normal((2, 2, 3, 4, 2))}, {"out_d": 5, "out_h": 3, "out_w": 4, **named}),
        Sample(
            {"X": r.normal((1, 3, 4, 2, 2))},
            {"scale": 2.0, "align_corners": False, "data_layout": "NHWC", **named},
        ),
        Sample(
            {"X": r.normal((1, 2, 3, 4, 2))},
            {"out_d": 2, "out_h": 6, "out_w": 5, "align_corners": False, "align_mode": 0, **named},
        ),
        _bytes(r, (1, 1, 2, 4, 5), {"out_d": 2, "out_h": 7, "out_w": 3, **named}),
    ]


_SIZE = """The size is ``out_h`` and ``out_w``, or ``scale`` times the old one; variables replace
    both. ``align_corners`` makes the outermost elements of old and new coincide."""

nearest_interp = _declare(
    "nearest",
    f"""Images in another size, every element that of the nearest old one.

    {_SIZE} Source: Paddle op ``nearest_interp``.
    """,
    _samples("nearest"),
    quantized="inputs",
)

bilinear_interp = _declare(
    "bilinear",
    f"""Images in another size, every element the weighted mean of four old ones.

    {_SIZE} ``align_mode`` 0 takes elements for areas, not for points. Source: Paddle op
    ``bilinear_interp``.
    """,
    _samples("bilinear"),
    quantized="inputs",
)

trilinear_interp = _declare(
    "trilinear",
    f"""Volumes in another size, every element the weighted mean of eight old ones.

    {_SIZE} ``out_d`` is the depth. Source: Paddle op ``trilinear_interp``.
    """,
    _volume_samples,
    quantized="inputs",
)

bicubic_interp = _declare(
    "bicubic",
    f"""Images in another size, every element from sixteen old ones by cubic polynomials.

    {_SIZE} Source: Paddle op ``bicubic_interp``; Keys 1981.
    """,
    _samples("bicubic"),
)
