"""Thresholds for quantization, which clip outliers."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["kl_threshold", "rate_threshold"]

_BINS = 2048
_LEVELS = 255


def kl_threshold(magnitudes: np.ndarray[Any, Any]) -> float:
    """The threshold with the least Kullback-Leibler divergence between values and levels.

    Its histogram is cut off at one bin after another, what lies beyond is added to the last one,
    and the rest is spread over as many bins as there are levels. The one whose Kullback-Leibler
    divergence from that is least is taken. One that nothing lies below would cut off everything:
    then it is counted from the least number. Source: 8-bit inference with TensorRT, Migacz 2017.

    Args:
        magnitudes: at least 0.
    """
    span = (magnitudes.min(), magnitudes.max())
    counts, edges = np.histogram(magnitudes, bins=_BINS, range=span)
    width = edges[1] - edges[0]
    first = int((_BINS - 1) * 0.7)
    found = [
        (_divergence(counts, end, magnitudes.size), end)
        for end in range(first, _BINS)
        if counts[end - 1]
    ]
    if found:
        best = min(found)[1]
    else:
        filled = np.flatnonzero(counts[: first + 1])
        best = int(filled[-1]) if filled.size else 0
    threshold = (best + 0.5) * width  # as in the original, which forgets where the bins begin
    return float(threshold if threshold >= edges[0] else edges[0] + threshold)


def _divergence(counts: np.ndarray[Any, Any], end: int, total: int) -> float:
    """How much is lost by cutting off at a bin."""
    reference = counts[:end].astype(np.float64)
    reference[-1] += counts[end:].sum()
    size = end // _LEVELS
    starts = np.arange(_LEVELS) * size
    sizes = np.diff(np.append(starts, end))
    filled = reference > 0
    level = np.add.reduceat(counts[:end], starts) / np.maximum(np.add.reduceat(filled, starts), 1)
    spread = np.repeat(level, sizes)[filled]
    kept = reference[filled]
    sum_spread = spread.sum()
    return float((kept * (np.log(sum_spread * kept) - np.log(total * spread))).sum() / total)


def rate_threshold(values: np.ndarray[Any, Any], rate: float, bins: int = 5000) -> float:
    """The threshold that a given share of the magnitudes exceeds.

    Args:
        values: of both signs.
        rate: the share of magnitudes above the threshold.
        bins: number of bins of the histogram.
    """
    magnitudes = np.abs(values)
    counts, edges = np.histogram(magnitudes, bins=bins, range=(0, magnitudes.max()))
    below = np.cumsum(counts / counts.sum())
    end = int(np.searchsorted(below, 1.0 - rate)) + 1
    return float(min(end, bins) * (edges[1] - edges[0]))
