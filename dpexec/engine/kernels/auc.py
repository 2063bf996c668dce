"""``auc``: counts of scores in buckets, and the area under the ROC curve."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.machine import Count, Doubles, Floats, Integers, kernel


@inline
def _recent(buckets: int, steps: int, before: Any, now: Any) -> int:
    """Copy counts, without those of the oldest batch; returns where those of this batch begin."""
    oldest, total = before[(steps + 1) * buckets] % steps * buckets, steps * buckets
    for i in range(total + buckets + 1):
        now[i] = before[i]
    for i in range(buckets):
        now[total + i] -= now[oldest + i]
        now[oldest + i] = 0
    now[total + buckets] += 1
    return oldest


@kernel
def _auc(
    rows: Count, classes: Count, thresholds: Count, steps: Count, x: Floats, label: Integers,
    positive: Integers, negative: Integers, area: Doubles, new_positive: Integers,
    new_negative: Integers,
) -> int:  # fmt: skip
    """Add a batch to the counts, of all batches or of some latest ones, and compute the area."""
    for i in range(rows):
        score = x[i * classes + classes - 1]
        if not (0 <= score <= 1):
            return 1
    buckets, total = thresholds + 1, steps * (thresholds + 1)
    at_positive = at_negative = 0
    if steps:
        at_positive = _recent(buckets, steps, positive, new_positive)
        at_negative = _recent(buckets, steps, negative, new_negative)
    else:
        for i in range(buckets):
            new_positive[i], new_negative[i] = positive[i], negative[i]
    for i in range(rows):
        bucket = np.int64(x[i * classes + classes - 1] * np.float32(thresholds))
        counts, at = (new_positive, at_positive) if label[i] > 0 else (new_negative, at_negative)
        counts[at + bucket] += 1
        if steps:
            counts[total + bucket] += 1
    high, low, twice = 0, 0, 0
    for i in range(total + buckets - 1, total - 1, -1):
        high += new_positive[i]
        low += new_negative[i]
        twice += new_negative[i] * (2 * high - new_positive[i])
    area[0] = np.float64(twice) / 2 / max(np.float64(high) * np.float64(low), 1.0)
    return 0


@lowering("auc", renews=("StatPosOut", "StatNegOut"))
def auc(
    code: Code, x: Value, label: Value, positive: Value, negative: Value, area: Value,
    new_positive: Value, new_negative: Value, *, num_thresholds: int, slide_steps: int,
) -> Any:  # fmt: skip
    """Counts lie in new memory: the scores of another device may still be refused."""
    if not single(x) or label.dtype != "int64":
        return False
    sizes = x.shape[0], x.shape[1], num_thresholds, slide_steps
    code.emit(_auc, *sizes, x, label, positive, negative, area, new_positive, new_negative)
