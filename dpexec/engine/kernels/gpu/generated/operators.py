"""Single operators, and groups that a pass made, as launches of generated kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dpexec.engine.graph.group_ops import GroupOp, group_ops
from dpexec.engine.ir import opdef
from dpexec.engine.kernels.gpu.generated.groups import Launches, launches
from dpexec.engine.kernels.implementations import implementation

__all__ = ["ELEMENTWISE"]

_ACTIVATIONS = [
    "brelu",
    "elu",
    "gelu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "logsigmoid",
    "relu6",
    "selu",
    "sigmoid",
    "softplus",
    "softsign",
    "stanh",
    "swish",
    "tanh_shrink",
    "thresholded_relu",
]
ELEMENTWISE = frozenset(
    [*_ACTIVATIONS, *(f"{type}_grad" for type in (*_ACTIVATIONS, "relu", "tanh"))]
)
"""Operators that CuPy computes in several launches, and one kernel does in one."""


@implementation("fusion_group", backend="gpu", per_operator=True)
class _Group:
    """A ``fusion_group``; what was made for the shapes of its inputs is kept."""

    def __init__(self, type: str) -> None:
        self._type = type
        self._known: dict[Any, Launches | None] = {}

    def __call__(
        self, xp: Any, inputs: list[Any], *, parts: Sequence[str], results: Sequence[int]
    ) -> list[Any] | None:
        found = self._for(inputs, lambda: group_ops(parts, results), results)
        return None if found is None else found(xp, inputs)

    def _for(
        self,
        inputs: Sequence[Any],
        parts: Callable[[], Sequence[GroupOp]],
        results: Sequence[int],
    ) -> Launches | None:
        key = tuple((getattr(x, "dtype", None), getattr(x, "shape", None)) for x in inputs)
        if key not in self._known:
            self._known[key] = launches(parts(), inputs, results)
        return self._known[key]


@implementation(*ELEMENTWISE, backend="gpu", per_operator=True)
class _Single(_Group):
    """An operator of one output."""

    def __call__(self, xp: Any, *values: Any, **attrs: Any) -> Any:
        definition = opdef.get(self._type)
        slots = [slot.name for slot in definition.inputs]
        numbers = {slot: [n] for n, slot in enumerate(slots[: len(values)])}
        out = {definition.outputs[0].name: [len(values)]}
        if any(value is None for value in values):
            return None
        found = self._for(values, lambda: [GroupOp(self._type, numbers, out, attrs)], [len(values)])
        return None if found is None else found(xp, values)[0]
