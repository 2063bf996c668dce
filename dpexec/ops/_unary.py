"""Operators that apply a function to every element of one tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpexec.ir.opdef import Kernel, OpDef, Sample, SampleRng, Spec, op
from dpexec.ops._shapes import require_float

LIBRARIES = {"use_mkldnn": False, "use_cudnn": False}
"""Attributes that Paddle writes and nobody computes with."""


def _infer_float(x: Spec) -> Spec:
    require_float(x)
    return x


def _infer_any(x: Spec) -> Spec:
    return x


def unary(
    type: str,
    make: Callable[[SampleRng], Any],
    known: tuple[Any, Any] | None = None,
    *,
    settings: tuple[Mapping[str, Any], ...] = ({},),
    attrs: Mapping[str, Any] | None = None,
    integers: bool = False,
) -> Callable[[Kernel], OpDef]:
    """Declare an operator from X to Out, element by element; decorates its kernel.

    Args:
        type: operator type.
        make: makes a sample X, away from where the derivative jumps.
        known: values of X and of Out that are known independently, for the default attributes.
        settings: attributes to sample.
        attrs: attributes that the kernel does not compute with.
        integers: whether X may hold integers.
    """

    def samples(r: SampleRng) -> list[Sample]:
        found = [Sample({"X": make(r)}, setting) for setting in settings]
        if known is not None:
            found.append(Sample({"X": known[0]}, grad=(), expected={"Out": known[1]}))
        return found

    infer = _infer_any if integers else _infer_float
    return op(type, inputs="X", outputs="Out", infer=infer, attrs=attrs, samples=samples)
