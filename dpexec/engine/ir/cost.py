"""What a call of an operator costs: shapes by slot, from which declarations count."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpexec.engine.ir.roles import GRAD_SUFFIX
from dpexec.engine.ir.spec import Spec

__all__ = ["Call", "Count", "counted", "per_element"]

_BIAS = "Bias" + GRAD_SUFFIX


class Call:
    """One call, as ``macs``, ``flops`` and ``bytes`` of an operator see it.

    A slot that a gradient operator lacks has the shape of its gradient, so the formulas of forward
    operators count there, too.

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
        """How many inputs of the forward operator get a gradient; that of a bias costs nothing."""
        made = (slot for slot, specs in self.outputs.items() if specs)
        return sum(GRAD_SUFFIX in slot and slot != _BIAS for slot in made)


Count = Callable[[Call], int] | int
"""Counts something in a call; a number is the same for all."""


def per_element(slot: str, operations: int) -> Callable[[Call], int]:
    """So many operations for every element of a slot."""
    return lambda call: operations * call.size(slot)


def counted(count: Count | None, call: Call) -> int:
    """What a declaration counts in a call; 0 if it has nothing to count."""
    return count(call) if callable(count) else count or 0
