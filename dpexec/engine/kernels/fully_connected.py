"""``fc``: products with weights, with bias and activation, by oneDNN."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from dpexec.engine.core.cache import limit_of
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.sizes import Counts, NeedsNumber, Rows, at
from dpexec.engine.kernels import onednn, onednn_calls, onednn_rows
from dpexec.engine.kernels.eight_bits import Scaling, is_small
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.onednn import BIAS, DST, SRC, WEIGHTS, Primitive
from dpexec.engine.kernels.onednn_epilogues import Epilogue
from dpexec.engine.kernels.onednn_threads import with_threads
from dpexec.engine.kernels.packing import GAP, collide, is_packed, packed
from dpexec.engine.kernels.products import layer_product

__all__: list[str] = []

_FEW = 32
"""Rows up to which sgemm, with weights as they lie, is as fast as a primitive with packed weights,
which would need a second copy. Called alone, one row of 800 numbers times 800 x 500 takes 19 us by
sgemm, 49 by the primitive, 8 rows 43 and 68, 32 rows 162 and 194, 64 rows 326 and 339, 256 rows
1263 and 1247 (minima, one core with AVX-512). A whole request takes the same time by both."""
_FEWEST = 48
"""Rows of a part from which on threads divide rows and not columns: each copies all weights."""
_BY_COLUMN = 2
"""The library's mask for numbers of each column of a matrix."""


@dataclass(frozen=True)
class _Layer:
    """A product with weights.

    Args:
        columns: of the result.
        depth: columns of the input, rows of the weights.
        relu: whether relu is applied.
        bias: whether a number is added for every column.
        packed: whether the library chooses the layout of the weights.
        source: type of the input, as the library numbers types.
        result: type of the result.
        scales: factors of the columns that make weights int8; empty: they stay float32.
    """

    columns: int
    depth: int
    relu: bool
    bias: bool
    packed: bool
    source: int = onednn.FLOAT32
    result: int = onednn.FLOAT32
    scales: tuple[float, ...] = ()

    @property
    def weights(self) -> onednn.Handle:
        """How the weights lie before the product is made; the library may choose it."""
        small, spread = bool(self.scales), collide(self.columns)
        return onednn.described(
            [self.depth, self.columns],
            [0, 1] if not small and (spread or not self.packed) else None,
            onednn.INT8 if small else onednn.FLOAT32,
            GAP if spread and not small else 0,
        )

    def primitive(self, rows: int, threads: int = 1) -> Primitive:
        """The library's product for a number of rows."""
        small = bool(self.scales)
        return onednn.product(
            onednn.described([rows, self.depth], [0, 1], self.source),
            self.weights,
            onednn.described([rows, self.columns], [0, 1], self.result),
            onednn.described([1, self.columns], [0, 1]) if self.bias else None,
            Epilogue(
                scaled=((WEIGHTS, _BY_COLUMN),) if small else (),
                activation="relu" if self.relu else "",
            ),
            threads,
        )


@functools.lru_cache(limit_of("oneDNN primitives"))
def _turning(layer: _Layer, rows: int) -> Primitive | None:
    """The reorder of the weights; None: they may lie as they are."""
    wanted = layer.primitive(rows).layout(WEIGHTS)
    number = onednn.INT8 if layer.scales else onednn.FLOAT32
    plain = onednn.described([layer.depth, layer.columns], [0, 1], number)
    return None if wanted.is_like(plain) and not layer.scales else onednn.reorder(plain, wanted)


@lowering("fc")
def fc(
    code: Code, x: Value, w: Value, bias: Value | None, out: Value, *, in_num_col_dims: int,
    activation_type: str, padding_weights: bool, force_fp32_output: bool, Scale_in: float,
    Scale_out: float, Scale_weights: Sequence[float],
) -> Any:  # fmt: skip
    """One product."""
    small = is_small(x)
    real = [value for value in (w, bias, None if small else x) if value is not None]
    taken = all(value.dtype == "float32" for value in real) and x.size and w.size
    if not onednn.available() or padding_weights or not taken:
        return False
    if small and not onednn.adds_bytes_exactly():
        return False
    scaling = None
    if small:
        scale_out = 1.0 if force_fp32_output else Scale_out
        scaling = Scaling(Scale_in, Scale_weights, scale_out, w.shape[1], rounds=False)
    rows, relu = math.prod(x.shape[:in_num_col_dims]), activation_type == "relu"
    if scaling is None and rows <= _FEW:
        layer_product(code, (x, w, out), (rows, w.shape[1], w.shape[0]), bias, relu)
        return None
    layer = _Layer(
        w.shape[1], w.shape[0], relu, bias is not None, is_packed(code, w),
        onednn.NUMBERS[x.dtype.name], onednn.NUMBERS[out.dtype.name],
        scaling.weights if scaling else (),
    )  # fmt: skip
    more = scaling.arguments(code, bias) if scaling else {BIAS: bias} if bias else {}
    _emit(code, layer, rows, (x, w, out), more)


def _emit(
    code: Code, layer: _Layer, rows: Any, values: tuple[Value, Value, Value], more: dict[int, Any]
) -> None:
    """Call the product of an input with weights; ``more`` has bias and scales."""
    x, w, out = values
    counts = Rows.of(rows)
    example = at(rows, counts.example if counts else ())
    turning, layout = _turning(layer, example), layer.primitive(example).layout(WEIGHTS)
    weights = w if turning is None else packed(code, w, turning, layout, layer.scales, axis=1)

    def primitive(count: Counts) -> Primitive:
        number = at(rows, count)
        one = layer.primitive(number)
        if not one.layout(WEIGHTS).is_like(layout):
            raise NeedsNumber("weights that lie in another way than for other numbers of rows")
        work = number * layer.columns * layer.depth
        exact = bool(layer.scales)
        return with_threads(
            one, code.threads, work, lambda: layer.primitive(number, code.threads), exact
        )

    arguments = {SRC: x, WEIGHTS: weights, **more, DST: out}
    if layer.source != onednn.FLOAT32:
        onednn_calls.emit(code, arguments, primitive, counts)
        return
    parts = onednn_rows.Parts(
        rows,
        (layer.depth, 0, layer.columns),
        rows * layer.columns * layer.depth,
        lambda count, number: layer.primitive(number),
        _FEWEST,
    )
    onednn_rows.emit(code, arguments, primitive, parts, counts)
