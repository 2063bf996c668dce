"""The cost of an operator call, counted from the shapes in its slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpexec.engine.ir.roles import GRAD_SUFFIX
from dpexec.engine.ir.spec import Spec

__all__ = ["Call", "Count", "counted", "per_element"]

_BIAS = "Bias" + GRAD_SUFFIX


class Call:
    """One call of an operator: the argument of its ``macs``, ``flops`` and ``bytes`` formulas.

    If a gradient operator lacks a forward slot, the shape of that slot's gradient is used, so the
    forward operator's formulas apply to gradient operators as well.

    Args:
        inputs: specs per slot; all dimensions are known.
        outputs: specs per slot.
        attrs: attributes, with their defaults.
    """

    def __init__(
        self,
        inputs: Mapping[str, Sequence[Spec]],
        outputs: Mapping[str, Sequence[Spec]],
        attrs: Mapping[str, Any],
    ) -> None:
        self.inputs, self.outputs, self.attrs = inputs, outputs, attrs

    def specs(self, slot: str) -> Sequence[Spec]:
        """The variables of a slot, of an input or an output."""
        names = (slot, slot + GRAD_SUFFIX)
        found = (slots.get(name) for name in names for slots in (self.inputs, self.outputs))
        return next(filter(None, found), ())

    def shape(self, slot: str) -> tuple[int, ...]:
        """The shape of the first variable of a slot.

        Raises:
            LookupError: the call has none.
        """
        return self.specs(slot)[0].shape

    def size(self, slot: str) -> int:
        """How many elements the variables of a slot have."""
        return sum(math.prod(spec.shape) for spec in self.specs(slot))

    def nbytes(self, slot: str) -> int:
        """Bytes of the variables of a slot."""
        return sum(spec.nbytes or 0 for spec in self.specs(slot))

    @property
    def made(self) -> int:
        """How many elements all outputs have."""
        return sum(math.prod(s.shape) for specs in self.outputs.values() for s in specs)

    @property
    def gradients(self) -> int:
        """How many forward inputs get a gradient; a bias does not count, its gradient is cheap."""
        made = (slot for slot, specs in self.outputs.items() if specs)
        return sum(GRAD_SUFFIX in slot and slot != _BIAS for slot in made)


Count = Callable[[Call], int] | int
"""A function of a call that counts something, or a number that holds for every call."""


def per_element(slot: str, operations: int) -> Callable[[Call], int]:
    """A count of ``operations`` for every element of a slot."""
    return lambda call: operations * call.size(slot)


def counted(count: Count | None, call: Call) -> int:
    """Evaluate a declared count for a call; 0 if none is declared."""
    return count(call) if callable(count) else count or 0
