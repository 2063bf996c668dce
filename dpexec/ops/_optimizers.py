"""What the optimizer operators share: checks of their inputs and sparse gradients."""

from __future__ import annotations

from typing import Any

from dpexec.core.tensors import SelectedRows
from dpexec.ir.opdef import Infer, Spec, dims_match, require


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
                require(
                    spec.rank == param.rank and all(map(dims_match, spec.shape, param.shape)),
                    f"{name} {spec} must have the shape of Param {param}",
                )
        made = tuple(found[name] for name in outputs.split())
        return made if len(made) > 1 else param

    return infer


def scalar(array: Any) -> Any:
    """The one element of an array, without leaving the device."""
    return array.reshape(())


def dense(xp: Any, grad: Any) -> Any:
    """A gradient as an array: for optimizers that move every row anyway."""
    return grad.to_dense(xp) if isinstance(grad, SelectedRows) else grad
