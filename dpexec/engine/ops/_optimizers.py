"""Shared code of optimizer operators: checks of inputs, and sparse gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.opdef import Infer, Kernel, OpDef, Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._shapes import require_shape_of


def like_inputs(slots: str, outputs: str) -> Infer:
    """An ``infer`` for an optimizer: every output is like one input.

    Args:
        slots: input slots in order; all but the scalars must match ``Param``.
        outputs: the input slot that each output is like, in the order of the outputs.
    """
    names = slots.replace("?", "").split()
    scalars = ("LearningRate", "Beta1Pow", "Beta2Pow", "Beta1Tensor", "Beta2Tensor")

    def infer(*specs: Spec | None) -> Spec | tuple[Spec | None, ...]:
        found = dict(zip(names, specs, strict=True))
        param = found["Param"]
        assert param is not None
        for name, spec in found.items():
            if spec is None:
                continue
            if name in scalars:
                require(spec.size in (1, -1), f"{name} {spec} must have one element")
            else:
                require_shape_of(spec, param, name, "Param")
        made = tuple(found[name] for name in outputs.split())
        return made if len(made) > 1 else param

    return infer


def optimizer(type: str, inputs: str, renewed: str, **facts: Any) -> Callable[[Kernel], OpDef]:
    """Declare an optimizer, which updates some of its inputs in place; decorates its kernel.

    Args:
        type: operator type.
        inputs: slots in order, as for :func:`like_inputs`.
        renewed: inputs that it updates; the new value of ``Param`` is the output ``ParamOut``.
        facts: as for :func:`~dpexec.engine.ir.opdef.op`.
    """
    places = {f"{slot}Out": slot for slot in renewed.split()}
    outputs, infer = " ".join(places), like_inputs(inputs, renewed)
    return op(
        type, inputs=inputs, outputs=outputs, infer=infer, inplace=places, no_grad=True, **facts
    )


def scalar(array: Any) -> Any:
    """The only element of an array, without a copy to the host."""
    return array.reshape(())


def dense(xp: Any, grad: Any) -> Any:
    """A gradient as a dense array, for optimizers that change every row anyway."""
    return grad.to_dense(xp) if isinstance(grad, SelectedRows) else grad


_SCALARS = {"LearningRate": 0.1, "Beta1Pow": 0.729, "Beta2Pow": 0.997002999}
_SIGNED = {"Param", "Grad", "Velocity", "Moment1", "MeanGrad", "LinearAccumulator"}


MISSED = "misses rows of a sparse gradient that are not in ascending order; dpexec updates all"
"""A note on sparse gradients, for operators in which Paddle searches them for each row."""


def drawn(
    r: SampleRng, slots: str, attrs: Mapping[str, Any] | None = None, *, sparse: bool = False
) -> Sample:
    """A sample of an optimizer's call during training.

    Args:
        r: random numbers.
        slots: input slots; optional ones are left out.
        attrs: attributes that differ from their defaults.
        sparse: whether the gradient is sparse, with a row that occurs twice.
    """
    inputs: dict[str, Any] = {}
    for slot in slots.split():
        if slot in _SCALARS:
            inputs[slot] = np.array([_SCALARS[slot]])
        elif slot == "Grad" and sparse:
            inputs[slot] = SelectedRows(np.array([4, 1, 4, 2]), 6, r.normal((4, 3)))
        elif slot in _SIGNED:
            inputs[slot] = r.normal((6, 3)) * (1.0 if slot in ("Param", "Grad") else 0.3)
        elif not slot.endswith("?"):
            inputs[slot] = r.uniform(1.0, 2.0, (6, 3))
    return Sample(inputs, attrs or {})
