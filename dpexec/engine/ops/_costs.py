"""How many operations several operators make: counts for ``macs``, ``flops`` and ``bytes``."""

from __future__ import annotations

import math
from collections.abc import Callable

from dpexec.engine.ir.cost import Call

NORM = 8
"""Operations of a norm for an element: one for the mean, three for the variance (a difference, its
square, the sum), two to normalize (a difference, a product), two for scale and bias."""

SOFTMAX = 5
"""Of a softmax for an element: maximum, difference, exponential, sum, quotient."""

LSTM_CELL = 13
"""Of an LSTM for an element of its state: four biases, five functions, four products and sums."""

GRU_CELL = 11
"""Of a GRU for an element of its state: three biases, three functions, a product for the reset
gate, four products and sums for the state."""


def with_filter(call: Call) -> int:
    """Each element of the result takes a window of the filter ``[filters, channels, ...]``."""
    return call.size("Output") * math.prod(call.shape("Filter")[1:])


def with_spread_filter(call: Call) -> int:
    """Each element of the input is spread by the filter ``[channels, filters, ...]``."""
    return call.size("Input") * math.prod(call.shape("Filter")[1:])


def in_windows(call: Call) -> int:
    """Each element of the result looks at a window of ``ksize``, or all at the whole input."""
    if call.attrs.get("global_pooling") or call.attrs.get("adaptive"):
        return call.size("X")
    return call.size("Out") * math.prod(call.attrs["ksize"])


def of_batch_norm(call: Call) -> int:
    """A norm; by statistics that are known, half of that."""
    known = call.attrs.get("use_global_stats") or call.attrs.get("is_test")
    return (NORM // 2 if known else NORM) * call.size("X")


def from_gates(gates: str) -> Callable[[Call], int]:
    """The state of each row times the weights of its gates, ``Weight`` ``[state, gates]``.

    Args:
        gates: the slot that has the gates of each row.
    """
    return lambda call: call.size(gates) * call.shape("Weight")[0]


def from_rows(rows: str, *weights: str) -> Callable[[Call], int]:
    """Each row of a slot times the matrices of others.

    Args:
        rows: the slot whose first dimension counts rows.
        weights: the slots of the matrices.
    """
    return lambda call: call.shape(rows)[0] * sum(map(call.size, weights))


def taken_rows(ids: str) -> Callable[[Call], int]:
    """Bytes where ids pick rows of a table: these are read, and written to ``Out``."""
    return lambda call: 2 * call.nbytes("Out") + call.nbytes(ids)
