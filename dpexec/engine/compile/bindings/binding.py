"""A plan bound to the shapes of one batch."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.memory import no_cycles_sought
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir.operator import op_error
from dpexec.engine.ir.sizes import Counts, Rows, at
from dpexec.engine.ir.spec import Spec
from dpexec.engine.trace.between import preparing

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.native import PlanCode, SizedArguments
    from dpexec.engine.kernels.values import Packed

__all__ = ["Binding"]


@dataclass(eq=False)
class Binding:
    """A plan's steps for batches of certain shapes.

    Args:
        plan: the tasks that run.
        given: the spec of every value of a run, per device. Sizes may be open.
        native: versions of the libraries that make machine code. Empty: Python runs every operator.
        memory: where machine code keeps its values.
        halves: whether matrix products in code round their operands to bfloat16.
        rows: the numbers of rows of every device's batch, if the specs leave them open.
        opened: the binding with open sizes that this one was made from; it serves other sizes, too.
        code: the machine code; None before it is made.
        runs: how many runs have begun.
        more_rows: the most rows that other processes add to sparse sums, by name.
        packed: variables that nobody changes, in other layouts; None: there may be none.
        calls: by number of the task, one call that does the work of all its nodes.
    """

    plan: Plan
    given: Sequence[Mapping[str, Spec]]
    native: Mapping[str, str]
    memory: Memory
    halves: bool = False
    packed: Packed | None = None
    rows: Sequence[Counts] = ()
    opened: Binding | None = None
    code: PlanCode | None = None
    runs: int = 0
    more_rows: Mapping[str, int] = field(default_factory=dict)
    calls: Mapping[int, CollectiveCall] = field(default_factory=dict)

    @functools.cached_property
    def specs(self) -> Sequence[Mapping[str, Spec]]:
        """The spec of every value of a run, per device, with the sizes of this batch."""
        if not self.rows:
            return self.given
        return [
            {name: _closed(spec, rows) for name, spec in specs.items()}
            for specs, rows in zip(self.given, self.rows, strict=True)
        ]

    @functools.cached_property
    def stored(self) -> Sequence[Mapping[str, Spec]]:
        """Per device, the specs of persistable variables that runs write; sizes may be open."""
        names = {name for _, name in (*self.plan.overwritten, *self.plan.commits)}
        return [{n: spec for n, spec in specs.items() if n in names} for specs in self.given]

    @functools.cached_property
    def steps(self) -> list[list[Step]]:
        """The bound steps of every task.

        Raises:
            RuntimeError: this process makes code with other libraries (a worker without numba), or
                cannot compute in bfloat16.
            EnforceNotMet: the values of a step do not fit into memory.
        """
        calls = self.calls
        with preparing():
            bound = self._own_steps()
        return [
            _one_call(task, calls[task.id]) if task.id in calls else own
            for task, own in zip(self.plan.tasks, bound, strict=True)
        ]

    def _own_steps(self) -> list[list[Step]]:
        if not self.native or self.plan.checked:  # code does not hand out every result to check
            return self.plan.steps
        if self.plan.initializes:  # it runs once, and code would hold a second copy in its memory
            return self.plan.steps
        with no_cycles_sought():
            code = self.code or self.make_code()
            try:
                return code.steps(self.memory, self._counts, self.sized)
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
    def sized(self) -> SizedArguments:
        """The parts of the code that are made for these numbers of rows.

        Raises:
            NeedsNumber: these numbers of rows need more memory than others.
        """
        assert self.code is not None
        return self.code.sized(self._counts)

    @functools.cached_property
    def open_rows(self) -> Rows | None:
        """The range of the numbers of rows that specs leave open; None if they leave none open."""
        shapes = (spec.shape for specs in self.given for spec in specs.values())
        return next((rows for rows in (Rows.of(*shape) for shape in shapes) if rows), None)

    def make_code(self) -> PlanCode:
        """Make machine code of the operators that have a lowering.

        Raises:
            NeedsNumber: it cannot be made for open numbers of rows.
        """
        kernels.require(self.native)
        if self.halves:
            kernels.require_halves()
        from dpexec.engine.compile.bindings.native import make_code

        self.code = make_code(
            self.plan, self.given, self.halves, self.open_rows, self.more_rows, self.packed
        )
        return self.code

    def closed(self, rows: Sequence[Counts]) -> Binding:
        """The binding with the open numbers of rows filled in; it shares the code.

        Args:
            rows: the numbers of rows of every device's batch.

        Raises:
            NeedsNumber: these numbers of rows need more memory than others.
        """
        made = Binding(
            self.plan,
            self.given,
            self.native,
            self.memory,
            self.halves,
            self.packed,
            rows=rows,
            opened=self,
            code=self.code,
            more_rows=self.more_rows,
        )
        _ = made.sized
        return made

    def alone(self, rows: Sequence[Counts]) -> Binding:
        """The binding with the open numbers of rows filled in, and code of its own for these.

        Args:
            rows: the numbers of rows of every device's batch.
        """
        specs = replace(self, rows=rows, code=None).specs
        return Binding(self.plan, specs, self.native, self.memory, self.halves, self.packed)

    def with_room(self, more_rows: Mapping[str, int]) -> Binding:
        """The binding with room for the rows that other processes add to sparse sums.

        Args:
            more_rows: the most rows that they add, by name of the sum.
        """
        made = replace(self, code=None, more_rows=more_rows)
        if self.open_rows is not None:
            made.make_code()
        return made

    def calling(self, calls: Mapping[int, CollectiveCall]) -> Binding:
        """The binding with some tasks replaced by one call that does the work of all their nodes.

        Args:
            calls: the calls, by number of the task.
        """
        made = replace(self, calls=calls)
        if "sized" in vars(self):
            vars(made)["sized"] = self.sized
        return made

    @functools.cached_property
    def sparse_reads(self) -> Mapping[OpNode, int]:
        """The most bytes of sparse values that each sum reads."""
        return sparse_reads(self.plan.nodes, self.plan.missing, self.specs)

    @functools.cached_property
    def recording(self) -> Recording:
        """A second list of the steps, which note when they ran."""
        with preparing():
            return Recording(self)


def _one_call(task: Task, call: CollectiveCall) -> list[Step]:
    """The steps of a task whose first node does the work of all."""
    return [Step(node, _nothing if index else call) for index, node in enumerate(task.nodes)]


def _nothing(envs: Sequence[Env]) -> None:
    """The call of the other nodes: the first one has done their work."""


def _closed(spec: Spec, rows: Counts) -> Spec:
    return spec.replace(shape=tuple(at(size, rows) for size in spec.shape))
