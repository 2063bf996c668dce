"""``DFT`` and ``STFT``: products with matrices of cosines and sines."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dims import OpenDim
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node

Array = np.ndarray[Any, Any]


def _turns(rows: int, columns: int, length: int) -> tuple[Array, Array]:
    """Cosines and sines of ``-2 pi i j / length``, ``(rows, columns)``."""
    product = np.outer(np.arange(rows), np.arange(columns)) % length
    angles = -2 * np.pi * product / length
    return np.cos(angles), np.sin(angles)


@operator("DFT")
def dft(node: Node) -> Any:
    """The length must be known."""
    rank = node.value(0).rank
    axis = node.axis(1)
    if node.version >= 20:
        given = node.constant(2, "the axis")
        axis = (-2 if given is None else int(given.reshape(-1)[0])) % rank
    inverse, one_sided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    size, given = node.dims(0)[axis], node.constant(1, "the length")
    if given is None and isinstance(size, OpenDim):
        node.fail("the length of its axis must be known when the model is loaded")
    whole = inverse and one_sided  # half a spectrum becomes real numbers
    length = int(given.reshape(-1)[0]) if given is not None else 2 * (size - 1) if whole else size
    order = [a for a in range(rank - 1) if a != axis] + [axis, rank - 1]
    x = node.transpose(_fitted(node, axis, length // 2 + 1 if whole else length), order)
    table = _real_table(length) if whole else _table(node, length, inverse, one_sided)
    return node.transpose(_product(node, x, table), [order.index(a) for a in range(rank)])


def _fitted(node: Node, axis: int, count: int) -> Variable:
    """The input with ``count`` elements along an axis: cut, or followed by zeros."""
    x, size = node.var(0), node.dims(0)[axis]
    if isinstance(size, OpenDim):
        node.fail("the length of its axis must be known when the model is loaded")
    if size > count:
        return node.slice(x, axis, 0, count)
    if size == count:
        return x
    sides = [0] * 2 * node.value(0).rank
    sides[2 * axis + 1] = count - size
    return node.add("pad", {"X": x}, paddings=sides, pad_value=0.0)


def _table(node: Node, length: int, inverse: bool, one_sided: bool) -> Array:
    """From elements and parts (real, imaginary) to bins and parts, ``(length, parts, bins, 2)``."""
    bins = length // 2 + 1 if one_sided else length
    cosines, sines = _turns(length, bins, length)
    if inverse:
        cosines, sines = cosines / length, -sines / length
    table = np.stack([np.stack([cosines, sines], -1), np.stack([-sines, cosines], -1)], 1)
    return table[:, : node.dims(0)[-1]]


def _real_table(length: int) -> Array:
    """From half a spectrum to real numbers, ``(bins, 2, length, 1)``."""
    bins = length // 2 + 1
    cosines, sines = _turns(bins, length, length)
    times = np.full((bins, 1), 2.0 / length)  # every bin but these stands for its mirror, too
    times[0] = 1.0 / length
    if length % 2 == 0:
        times[-1] = 1.0 / length
    return np.stack([cosines * times, sines * times], 1)[..., None]


def _product(node: Node, x: Variable, table: Array) -> Variable:
    """The product over the last two axes."""
    rank, (count, parts, bins, out) = len(x.shape), table.shape
    matrix = node.builder.constant(
        table.reshape(count * parts, bins * out).astype(to_numpy(x.dtype)), node.prefix
    )
    made = node.add("mul", {"X": x, "Y": matrix}, x_num_col_dims=rank - 2)
    return node.add("reshape2", {"X": made}, shape=[*[0] * (rank - 2), bins, out])


@operator("STFT")
def stft(node: Node) -> Any:
    """A convolution with cosines and sines times the window; the length of frames must be known."""
    step, length = (node.constant(i, what) for i, what in ((1, "the step"), (3, "the length")))
    window, dims, x = node.constant(2, "the window"), node.dims(0), node.var(0)
    assert step is not None
    if length is None and window is None:
        node.fail("neither a window nor the length of frames is given")
    size = int(length.reshape(-1)[0]) if length is not None else len(window)  # type: ignore[arg-type]
    bins = size // 2 + 1 if node.attr("onesided", 1) else size
    weights = np.ones(size) if window is None else window.astype(np.float64)
    if len(weights) != size:
        node.fail(f"its window has {len(weights)} numbers, but frames have {size}")
    cosines, sines = (turn.T * weights for turn in _turns(size, bins, size))
    parts = dims[2] if len(dims) == 3 else 1
    filters = np.stack([np.stack([cosines, sines], 1), np.stack([-sines, cosines], 1)], 2)
    filters = filters.reshape(2 * bins, 2, 1, size)[:, :parts]
    rows = node.transpose(x, [0, 2, 1]) if len(dims) == 3 else node.unsqueeze(x, [1])
    given = {
        "Input": node.unsqueeze(rows, [2]),
        "Filter": node.builder.constant(filters.astype(to_numpy(x.dtype)), node.prefix),
    }
    made = node.add(
        "conv2d", given, "Output", strides=[1, int(step.reshape(-1)[0])], paddings=[0, 0],
        dilations=[1, 1], groups=1,
    )  # fmt: skip
    made = node.transpose(node.squeeze(made, [2]), [0, 2, 1])
    return node.add("reshape2", {"X": made}, shape=[0, 0, bins, 2])
