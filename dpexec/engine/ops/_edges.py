"""Samples with infinite, very large or very small numbers and NaN, where results may differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dpexec.engine.ir.opfacts import Sample

NO_NUMBER = "gives a number for NaN where it uses vector instructions; dpexec gives NaN"
EXTREMA = "ignores NaN; dpexec gives NaN"
INFINITE = "gives NaN for large or infinite numbers; dpexec gives the limit of the function"
SMALL = "subtracts or adds 1, which loses digits of small numbers; dpexec keeps the digits"
STATES = (
    "computes tanh(x) as 2 * sigmoid(2 * x) - 1, which loses digits of small states; dpexec "
    "keeps the digits"
)
GROWN = "adds 1e-12 to the norm, or to a power of it, in the gradient; dpexec gives the derivative"
SQUARES = "gives NaN where squares are infinite; dpexec gives the limit"

NUMBERS = np.array([[-2.5, 1.0, 0.5, -0.25], [3.0, -1.5, 0.75, 2.0], [1.5, -0.5, 0.2, -3.0]])
"""More numbers than fit into one vector instruction."""


def among(value: float) -> Any:
    """``NUMBERS`` with one number replaced by ``value``."""
    found = NUMBERS.copy()
    found[1, 2] = value
    return found


def edge(
    inputs: Mapping[str, Any], slots: str, note: str, attrs: Mapping[str, Any] | None = None
) -> Sample:
    """A sample for which Paddle's results differ.

    Args:
        inputs: as for ``Sample``.
        slots: outputs and gradients that differ, separated by spaces.
        note: what Paddle does and what dpexec does.
        attrs: attributes that differ from their defaults.
    """
    deviates = dict.fromkeys(slots.split(), note)
    return Sample(inputs, attrs or {}, deviates=deviates, smooth=False)


def smaller(sample: Sample, factor: float, slots: str, note: str) -> Sample:
    """A sample with all its numbers multiplied by a factor, for which Paddle's results differ."""

    def times(values: Any) -> Any:
        return values * factor if getattr(values, "dtype", np.dtype(int)).kind == "f" else values

    return _with(
        {slot: times(values) for slot, values in sample.inputs.items()}, sample, slots, note
    )


def spoiled(sample: Sample, slot: str, value: float, slots: str, note: str) -> Sample:
    """A sample with one number of an input replaced, for which Paddle's results differ."""
    values = np.array(sample.inputs[slot])
    values.reshape(-1)[values.size // 2] = value
    return _with({**sample.inputs, slot: values}, sample, slots, note)


def _with(inputs: Mapping[str, Any], sample: Sample, slots: str, note: str) -> Sample:
    deviates = dict.fromkeys(slots.split(), note)
    return replace(sample, inputs=inputs, expected={}, deviates=deviates, smooth=False)
