"""What a pass is, and the manager that runs passes and records what each did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dpexec.graph.operators import Operators
from dpexec.graph.ssa import SSAGraph

__all__ = ["OperatorPass", "Pass", "PassManager", "PassRecord"]

Subject = TypeVar("Subject", Operators, SSAGraph)


class OperatorPass(Protocol):
    """A rewriting step before replication. It keeps all results bit by bit."""

    name: str

    def rewrite(self, operators: Operators) -> bool:
        """Rewrite ``operators``; tell whether anything changed."""
        ...


class Pass(Protocol):
    """A rewriting step after replication. It keeps the results of the graph bit by bit."""

    name: str

    def apply(self, graph: SSAGraph) -> bool:
        """Rewrite ``graph``, leave its nodes numbered; tell whether anything changed."""
        ...


@dataclass(frozen=True)
class PassRecord:
    """What a pass did: sizes before and after, of the program or of the replicated graph."""

    name: str
    modified: bool
    ops_before: int
    ops_after: int


class PassManager:
    """Runs passes in order and records them.

    Args:
        passes: those that run on the replicated graph.
        before: those that run on the operators before they are replicated.

    Raises:
        RuntimeError: a pass failed; tells which passes had run before it.
    """

    def __init__(self, passes: Sequence[Pass], before: Sequence[OperatorPass] = ()) -> None:
        self.passes = passes
        self.before = before
        self.records: list[PassRecord] = []

    def rewrite(self, operators: Operators) -> Operators:
        """Apply the passes for operators and return these."""
        for step in self.before:
            self._run(step.name, step.rewrite, operators)
        return operators

    def run(self, graph: SSAGraph) -> SSAGraph:
        """Apply the passes for the replicated graph and return it."""
        for step in self.passes:
            self._run(step.name, step.apply, graph)
        return graph

    def _run(self, name: str, apply: Callable[[Subject], bool], subject: Subject) -> None:
        before = len(subject.ops)
        try:
            modified = apply(subject)
        except Exception as error:
            done = ", ".join(record.name for record in self.records) or "none"
            raise RuntimeError(f"pass {name} failed; passes before it: {done}") from error
        self.records.append(PassRecord(name, modified, before, len(subject.ops)))
