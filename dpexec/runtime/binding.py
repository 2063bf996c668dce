"""A plan bound to the shapes of one batch."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpexec import kernels
from dpexec.ir.spec import Spec
from dpexec.runtime.plan import Plan
from dpexec.runtime.steps import Step

__all__ = ["Binding"]


@dataclass(eq=False)
class Binding:
    """What runs for batches of some shapes.

    Args:
        plan: the plan.
        specs: of every value of a run, per device.
        native: put operators together to machine code where that is possible.
    """

    plan: Plan
    specs: Sequence[Mapping[str, Spec]]
    native: bool

    @functools.cached_property
    def steps(self) -> list[list[Step]]:
        """The bound steps of every task.

        Raises:
            RuntimeError: this process cannot compile kernels (a worker without numba).
        """
        if not self.native or self.plan.checked:  # who looks at every result needs every result
            return self.plan.steps
        kernels.require()
        from dpexec.runtime.native import bind_native

        return bind_native(self.plan, self.specs)
