"""Cost formulas shared by several operators, for ``macs``, ``flops`` and ``bytes``."""

from __future__ import annotations

import math
from collections.abc import Callable

from dpexec.engine.ir.cost import Call

NORM = 8
"""Operations of a norm per element: one for the mean, three for the variance (a difference, its
square, the sum), two to normalize (a difference, a product), two for scale and bias."""

SOFTMAX = 5
"""Operations of a softmax per element: maximum, difference, exponential, sum, quotient."""

LSTM_CELL = 13
"""Operations of an LSTM per element of its state: 4 biases, 5 functions, 4 products and sums."""

GRU_CELL = 11
"""Operations of a GRU per element of its state: three biases, three functions, a product for the
reset gate, four products and sums for the state."""


def with_filter(call: Call) -> int:
    """Per element of the result, a window of the filter ``[filters, channels, ...]``."""
    return call.size("Output") * math.prod(call.shape("Filter")[1:])


def with_spread_filter(call: Call) -> int:
    """Per element of the input, the filter ``[channels, filters, ...]``."""
    return call.size("Input") * math.prod(call.shape("Filter")[1:])


def in_windows(call: Call) -> int:
    """Per element of the result a window of ``ksize``; with global pooling the whole input."""
    if call.attrs.get("global_pooling") or call.attrs.get("adaptive"):
        return call.size("X")
    return call.size("Out") * math.prod(call.attrs["ksize"])


def of_batch_norm(call: Call) -> int:
    """The operations of a norm; half of them if the statistics are given."""
    known = call.attrs.get("use_global_stats") or call.attrs.get("is_test")
    return (NORM // 2 if known else NORM) * call.size("X")


def from_gates(gates: str) -> Callable[[Call], int]:
    """For each row, the product of its state and ``Weight`` ``[state, gates]``.

    Args:
        gates: the slot with the gates of each row.
    """
    return lambda call: call.size(gates) * call.shape("Weight")[0]


def from_rows(rows: str, *weights: str) -> Callable[[Call], int]:
    """The products of the rows of a slot with matrices.

    Args:
        rows: the slot whose first dimension counts rows.
        weights: the slots of the matrices.
    """
    return lambda call: call.shape(rows)[0] * sum(map(call.size, weights))


def taken_rows(ids: str) -> Callable[[Call], int]:
    """Bytes of a lookup: the picked rows are read, and written to ``Out``."""
    return lambda call: 2 * call.nbytes("Out") + call.nbytes(ids)
