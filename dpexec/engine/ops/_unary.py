"""Declaration of elementwise operators on one tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import (
    GradContext,
    GradOp,
    Kernel,
    OpDef,
    Sample,
    SampleRng,
    Spec,
    op,
    passes_on,
)
from dpexec.engine.ops._edges import edge
from dpexec.engine.ops._shapes import require_float

LIBRARIES = {"use_mkldnn": False, "use_cudnn": False}
"""Attributes that Paddle's programs contain and that have no effect."""


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
    deviates: Mapping[str, str] | None = None,
    attrs: Mapping[str, Any] | None = None,
    integers: bool = False,
    sparse: bool = False,
    edges: tuple[tuple[Any, str, str], ...] = (),
    grad_lod: str | None = "flow",
    **facts: Any,
) -> Callable[[Kernel], OpDef]:
    """Declare an elementwise operator from X to Out; decorates its kernel.

    Args:
        type: operator type.
        make: makes a sample X, away from where the derivative jumps.
        known: values of X and of Out that are known independently, for the default attributes.
        settings: attributes to sample.
        deviates: by slot, why the last setting (``known`` if there is only one setting) differs
            from the real Paddle.
        attrs: attributes that the kernel does not use.
        integers: whether X may hold integers.
        sparse: whether X may be SelectedRows, whose values are taken row by row.
        edges: values of X for the last setting, slots that differ from Paddle there, and how.
        grad_lod: sequences of the gradients, as for :func:`~dpexec.engine.ir.opdef.op`.
        facts: as for :func:`~dpexec.engine.ir.opdef.op`.
    """

    def samples(r: SampleRng) -> list[Sample]:
        last = {} if len(settings) == 1 else dict(deviates or {})
        found = [Sample({"X": make(r)}, setting) for setting in settings[:-1]]
        for x in (make(r), make(r).reshape(2, -1, 2)):
            found.append(Sample({"X": x}, settings[-1], deviates=last))
        if known is not None:
            here = dict(deviates or {}) if len(settings) == 1 else {}
            x, out = known
            found.append(Sample({"X": x}, expected={"Out": out}, deviates=here, smooth=False))
        if integers:
            found.append(Sample({"X": make(r).reshape(-1)}))
        if sparse:
            rows = SelectedRows(np.array([4, 1, 4]), 6, make(r).reshape(3, -1))
            found.append(Sample({"X": rows}, grad=()))
        found += [edge({"X": x}, slots, note, settings[-1]) for x, slots, note in edges]
        return found

    infer, slots = _infer_any if integers else _infer_float, ("X",) if sparse else ()
    declare = op(
        type,
        inputs="X",
        infer=infer,
        attrs=attrs,
        samples=samples,
        sparse=slots,
        flops=per_element("Out", 1),
        grad_lod=grad_lod,
        **facts,
    )
    return (lambda kernel: declare(_of_rows(kernel))) if sparse else declare


def _of_rows(kernel: Kernel) -> Kernel:
    """A kernel that accepts SelectedRows, too, and works on their values."""

    @passes_on(kernel)
    def of_rows(xp: Any, x: Any, **attrs: Any) -> Any:
        if isinstance(x, SelectedRows):
            return SelectedRows(x.row_array, x.height_, kernel(xp, x.value, **attrs))
        return kernel(xp, x, **attrs)

    of_rows.__doc__ = kernel.__doc__
    return of_rows


def bends_nowhere(gradient: OpDef) -> None:
    """Make a gradient operator its own gradient: ``d_out`` times a piecewise constant slope.

    Args:
        gradient: operator that makes ``X@GRAD`` of ``Out@GRAD``.
    """

    def maker(context: GradContext) -> list[GradOp]:
        inputs = context.op.inputs | {"Out@GRAD": context.output_grads["X@GRAD"]}
        outputs = {"X@GRAD": context.input_grads["Out@GRAD"]}
        return [GradOp(gradient.type, inputs, outputs, context.op.plain_attrs())]

    gradient.grad_maker(maker)


def bends(gradient: OpDef, source: str = "X") -> Callable[[Kernel], OpDef]:
    """Declare the gradient of a gradient ``d_out * slope(x)``; decorates the slope's derivative.

    Args:
        gradient: operator of X (or Out) and the gradient of Out, element by element.
        source: which of these two the slope is computed from.
    """

    def decorate(bend: Kernel) -> OpDef:
        @passes_on(bend)
        def kernel(xp: Any, x: Any, d_out: Any, ddx: Any, **attrs: Any) -> tuple[Any, Any]:
            return d_out * ddx * bend(xp, x, **attrs), gradient(xp, x, ddx, **attrs)

        kernel.__doc__ = bend.__doc__
        slots, outputs = (source, "DOut", "DDX"), f"{source}@GRAD DDOut"
        return gradient.double_grad(
            *slots, outputs=outputs, infer=lambda x, d_out, ddx: (x, d_out)
        )(kernel)

    return decorate
