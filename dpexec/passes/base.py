"""What a pass is, and the manager that runs passes and records what each did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dpexec.graph.ssa import SSAGraph

__all__ = ["Pass", "PassManager", "PassRecord"]


class Pass(Protocol):
    """A rewriting step. It keeps the results of the graph bit by bit."""

    name: str

    def apply(self, graph: SSAGraph) -> bool:
        """Rewrite ``graph``, leave its nodes numbered; tell whether anything changed."""
        ...


@dataclass(frozen=True)
class PassRecord:
    """What a pass did: sizes before and after."""

    name: str
    modified: bool
    ops_before: int
    ops_after: int


class PassManager:
    """Runs passes in order and records them.

    Raises:
        RuntimeError: a pass failed; tells which passes had run before it.
    """

    def __init__(self, passes: list[Pass]) -> None:
        self.passes = passes
        self.records: list[PassRecord] = []

    def run(self, graph: SSAGraph) -> SSAGraph:
        """Apply all passes to ``graph`` and return it."""
        for step in self.passes:
            before = len(graph.ops)
            try:
                modified = step.apply(graph)
            except Exception as error:
                done = ", ".join(record.name for record in self.records) or "none"
                raise RuntimeError(f"pass {step.name} failed; passes before it: {done}") from error
            self.records.append(PassRecord(step.name, modified, before, len(graph.ops)))
        return graph
