"""The protocol of passes, and the manager that runs them and records their changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.graph.operators import Operators
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.passes.changes import changes, state

__all__ = ["OperatorPass", "Pass", "PassManager", "PassRecord"]

Subject = TypeVar("Subject", Operators, SSAGraph)


class OperatorPass(Protocol):
    """A rewriting step before replication, which must not change a bit of the results.

    A protocol: any class with a ``name`` and ``rewrite`` will do.

    Example:
        >>> import dpexec as fluid
        >>> class Nothing:
        ...     name = "nothing"
        ...     def rewrite(self, operators):
        ...         return False
        >>> build = fluid.BuildStrategy()
        >>> _ = build.append_pass(Nothing())  # before the program runs for the first time
    """

    name: str

    def rewrite(self, operators: Operators) -> bool:
        """Rewrite ``operators``; tell whether anything changed."""
        ...


class Pass(Protocol):
    """A rewriting step after replication, which must not change a bit of the graph's results.

    A protocol: any class with a ``name`` and ``apply`` will do.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> class Counts:
        ...     name = "counts"
        ...     def apply(self, graph):
        ...         print(sum(node.name == "scale" for node in graph.ops))
        ...         return False
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     y = fluid.layers.scale(fluid.data("x", [None, 1]), 2.0)
        >>> build = fluid.BuildStrategy()
        >>> _ = build.append_pass(Counts())
        >>> compiled = fluid.CompiledProgram(main).with_data_parallel(
        ...     build_strategy=build, places=fluid.cpu_places(2)
        ... )
        >>> exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.ones([2, 1], "float32")}
        >>> _ = exe.run(compiled, feed=feed, fetch_list=[y])
        2
    """

    name: str

    def apply(self, graph: SSAGraph) -> bool:
        """Rewrite ``graph`` and renumber its nodes; tell whether anything changed."""
        ...


@dataclass(frozen=True)
class PassRecord:
    """What a pass did to the operators of the program, or of the replicated graph.

    Args:
        name: name of the pass, or of its field in BuildStrategy if it has one.
        modified: whether it changed anything.
        ops_before: number of operators before the pass.
        ops_after: number of operators after the pass.
        added: new operators, such as ``"relu -> fc_0.tmp_2"``; in the replicated graph with the
            device: ``"adam -> fc_0.w_0, ... on device 1"``.
        removed: removed operators.
        changed: kept operators with other inputs, outputs or control dependencies.
    """

    name: str
    modified: bool
    ops_before: int
    ops_after: int
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The record in the format of graph files (:mod:`dpexec.engine.graph.describe`)."""
        return {
            "name": self.name,
            "modified": self.modified,
            "before": self.ops_before,
            "after": self.ops_after,
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": list(self.changed),
        }


class PassManager:
    """Runs passes in order and records them.

    Args:
        passes: passes over the replicated graph.
        before: passes over the operators before replication.

    Raises:
        RuntimeError: a pass failed; the message lists the passes that had run before it.
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
        before = state(subject)
        try:
            modified = apply(subject)
            if not isinstance(modified, bool):
                raise TypeError(f"it has to return whether anything changed, not {modified!r}")
        except Exception as error:
            done = ", ".join(record.name for record in self.records) or "none"
            raise RuntimeError(f"pass {name} failed; passes before it: {done}") from error
        found = changes(before, subject) if modified else ((), (), ())
        self.records.append(PassRecord(name, modified, len(before), len(subject.ops), *found))
