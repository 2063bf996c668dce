"""A plan bound to the shapes of one batch."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dpexec.engine import kernels
from dpexec.engine.compile.bindings.recording import Recording
from dpexec.engine.compile.bindings.row_limits import sparse_reads
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.memory import Memory
from dpexec.engine.compile.regions.step import CollectiveCall, Step
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.memory import no_cycles_sought
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir.operator import op_error
from dpexec.engine.ir.sizes import Counts, Rows, at
from dpexec.engine.ir.spec import Spec

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.native import Lates, PlanCode

__all__ = ["Binding"]


@dataclass(eq=False)
class Binding:
    """What runs for batches of some shapes.

    Args:
        plan: the plan.
        given: specs of every value of a run, per device.
        native: the libraries to make machine code with where that is possible; nothing: none.
        memory: what such code works in.
        halves: matrix products in code round their operands to bfloat16.
        rows: the numbers of rows of every device's batch, if the specs leave them open.
        opened: the binding that left them open, which serves other numbers, too.
        code: if it was made.
        runs: how often it ran, or began to.
        more_rows: of sparse sums, how many other processes add at most, by name.
        calls: what does the work of all nodes of some tasks, by number of the task.
    """

    plan: Plan
    given: Sequence[Mapping[str, Spec]]
    native: Mapping[str, str]
    memory: Memory
    halves: bool = False
    rows: Sequence[Counts] = ()
    opened: Binding | None = None
    code: PlanCode | None = None
    runs: int = 0
    more_rows: Mapping[str, int] = field(default_factory=dict)
    calls: Mapping[int, CollectiveCall] = field(default_factory=dict)

    @functools.cached_property
    def specs(self) -> Sequence[Mapping[str, Spec]]:
        """Of every value of a run, per device."""
        if not self.rows:
            return self.given
        return [
            {name: _closed(spec, rows) for name, spec in specs.items()}
            for specs, rows in zip(self.given, self.rows, strict=True)
        ]

    @functools.cached_property
    def steps(self) -> list[list[Step]]:
        """The bound steps of every task.

        Raises:
            RuntimeError: this process makes code with other libraries (a worker without numba), or
                cannot compute in bfloat16.
            EnforceNotMet: the values of a step do not fit into memory.
        """
        calls = self.calls
        return [
            _one_call(task, calls[task.id]) if task.id in calls else own
            for task, own in zip(self.plan.tasks, self._own_steps(), strict=True)
        ]

    def _own_steps(self) -> list[list[Step]]:
        if not self.native or self.plan.checked:  # who looks at every result needs every result
            return self.plan.steps
        if self.plan.initializes:  # it runs once, and code would keep memory for a second copy
            return self.plan.steps
        with no_cycles_sought():
            code = self.code or self.make_code()
            try:
                return code.steps(self.memory, self._counts, self.lates)
            except MemoryError as error:
                raise self._too_large(error) from None

    def _too_large(self, error: MemoryError) -> EnforceNotMet:
        """An error that names the largest value of a step for which there is no memory."""
        sized = [
            (self.specs[var.device][var.name].nbytes or 0, var.device, node.op)
            for node in self.plan.nodes
            for var in node.outputs
            if node.op is not None and var.name in self.specs[var.device]
        ]
        nbytes, device, op = max(sized, key=lambda made: made[0])
        problem = (
            f"ResourceExhausted: a step does not fit into memory ({error}); its largest value, of "
            f"{nbytes:,} bytes, is an output of this operator"
        )
        section = "not-enough-memory"
        return op_error(op, problem, self.specs[device], f"device {device}", section)

    @property
    def _counts(self) -> Sequence[Counts]:
        return self.rows or [()] * len(self.given)

    @functools.cached_property
    def lates(self) -> Lates:
        """What code needs that is made for some rows.

        Raises:
            NeedsNumber: it needs more memory than for other numbers.
        """
        assert self.code is not None
        return self.code.late(self._counts)

    @functools.cached_property
    def open_rows(self) -> Rows | None:
        """The numbers of rows that specs leave open; None: they leave none open."""
        shapes = (spec.shape for specs in self.given for spec in specs.values())
        return next((rows for rows in (Rows.of(*shape) for shape in shapes) if rows), None)

    def make_code(self) -> PlanCode:
        """Make code for what can be code.

        Raises:
            NeedsNumber: it cannot be made for open numbers of rows.
        """
        kernels.require(self.native)
        if self.halves:
            kernels.require_halves()
        from dpexec.engine.compile.bindings.native import make_code

        self.code = make_code(self.plan, self.given, self.halves, self.open_rows, self.more_rows)
        return self.code

    def closed(self, rows: Sequence[Counts]) -> Binding:
        """The same for numbers of rows on every device, which were left open.

        Raises:
            NeedsNumber: that needs more memory than other numbers.
        """
        made = Binding(
            *(self.plan, self.given, self.native, self.memory, self.halves),
            rows=rows,
            opened=self,
            code=self.code,
            more_rows=self.more_rows,
        )
        _ = made.lates
        return made

    def alone(self, rows: Sequence[Counts]) -> Binding:
        """The same for numbers of rows that were left open, with code for these alone.

        Args:
            rows: on every device.
        """
        specs = replace(self, rows=rows, code=None).specs
        return Binding(self.plan, specs, self.native, self.memory, self.halves)

    def with_room(self, more_rows: Mapping[str, int]) -> Binding:
        """The same, with room for rows that other processes add to sparse sums.

        Args:
            more_rows: how many at most, by name.
        """
        made = replace(self, code=None, more_rows=more_rows)
        if self.open_rows is not None:
            made.make_code()
        return made

    def calling(self, calls: Mapping[int, CollectiveCall]) -> Binding:
        """The same, with calls for some tasks, which do the work of all their nodes.

        Args:
            calls: by number of the task.
        """
        made = replace(self, calls=calls)
        if "lates" in vars(self):
            vars(made)["lates"] = self.lates
        return made

    @functools.cached_property
    def sparse_reads(self) -> Mapping[OpNode, int]:
        """How many bytes of sparse values sums read at most."""
        return sparse_reads(self.plan.nodes, self.plan.missing, self.specs)

    @functools.cached_property
    def recording(self) -> Recording:
        """The steps, made to note when they run."""
        return Recording(self)


def _one_call(task: Task, call: CollectiveCall) -> list[Step]:
    """The first node does the work of all."""
    return [Step(node, _nothing if index else call) for index, node in enumerate(task.nodes)]


def _nothing(envs: Sequence[Env]) -> None:
    """What remains to do for the other nodes."""


def _closed(spec: Spec, rows: Counts) -> Spec:
    return spec.replace(shape=tuple(at(size, rows) for size in spec.shape))
