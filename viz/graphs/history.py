"""The graph after every pass, with one number per operator through all of them."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpexec.engine.compile.plans.compilation import Compilation
from dpexec.engine.core.memory import no_cycles_sought
from dpexec.engine.core.places import cpu_places
from dpexec.engine.graph.build import build_ssa_graph
from dpexec.engine.graph.operators import Operators
from dpexec.engine.graph.ssa import OpNode, SSAGraph
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.roles import role_name
from dpexec.engine.ir.spec import Spec
from dpexec.engine.passes.changes import label
from dpexec.engine.strategy.strategies import BuildStrategy

__all__ = ["REPLICATION", "Member", "Stage", "batch_of", "compilation_of", "history"]

_SAID = 3

REPLICATION = "replication"
"""Name of the stage that is not a pass."""


@dataclass(frozen=True, slots=True)
class Member:
    """An operator of any stage.

    Args:
        id: Its number, the same in all stages.
        name: Its type.
        detail: The variables that it writes.
        role: A key of `style.ROLE_NAMES`.
        device: Its device; None for a collective.
        label: All of this in one line.
        op: The operator of the program; None if a pass or the replication added it.
    """

    id: int
    name: str
    detail: str
    role: str
    device: int | None
    label: str
    op: Operator | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Stage:
    """The operators after a pass; the first stage is the program itself.

    Args:
        name: Name of the pass, which is also its field of BuildStrategy.
        sentence: A description of the pass.
        nodes: ids of the operators, in order.
        links: Pairs of ids: the second reads values of the first, or waits for it in a new order.
        added: ids that the previous stage does not have.
        removed: ids that only the previous stage has.
        changed: ids whose operators read, write or wait for something else than before.
    """

    name: str
    sentence: str
    nodes: tuple[int, ...]
    links: tuple[tuple[int, int], ...]
    added: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    changed: tuple[int, ...] = ()


def compilation_of(
    source: Any, strategy: BuildStrategy | None = None, devices: int | None = None
) -> Compilation:
    """How a program is compiled.

    Args:
        source: A Program, or a ParallelExecutor or CompiledProgram that ran.
        strategy: For a program: how to build; None for the defaults.
        devices: For a program: number of devices; None for CPU_NUM.

    Raises:
        TypeError: The source is of another kind.
        ValueError: The program has no operators.
        EnforceNotMet: The executor has not run yet.
    """
    if isinstance(source, Program):
        if not source.global_block().ops:
            raise ValueError("the program has no operators yet: there are no passes to show")
        places = cpu_places() if devices is None else cpu_places(devices)
        return Compilation.of(source, list(places), strategy or BuildStrategy(), True)
    engine = _engine(source)
    if engine is None:
        raise TypeError(
            f"an object of type {type(source).__name__} does not know its passes: this takes a "
            "Program, a ParallelExecutor or CompiledProgram that ran, or a trace or its file"
        )
    compilation: Compilation = engine.compilation
    return compilation


def _engine(source: Any) -> Any:
    """The engine of an executor that ran; None for anything else."""
    compiled = getattr(source, "_compiled_program", source)
    return getattr(compiled, "_compiled", None)


def batch_of(source: Any) -> Mapping[str, Spec]:
    """The specs of the latest batch on the first device, by name; empty if nothing ran.

    Args:
        source: A Program, or a ParallelExecutor or CompiledProgram.
    """
    engine = _engine(source)
    kept = [] if engine is None else engine.bindings.kept
    found: Mapping[str, Spec] = kept[-1].specs[0] if kept else {}
    return found


@no_cycles_sought()
def history(compilation: Compilation) -> tuple[list[Member], list[Stage]]:
    """Compile once more and look at the operators after every pass.

    Args:
        compilation: What to compile, and how.

    Returns:
        The operators of all stages, by number, and the stages.
    """
    recorder = _Recorder()
    operators = Operators(compilation.program)
    recorder.operators("program", "The operators as they were written.", operators)
    for rewrite in compilation.rewrites:
        operators.left.clear()
        modified = rewrite.rewrite(operators)
        sentence = " ".join([_sentence(rewrite), *_left(operators)])
        if modified:
            recorder.operators(rewrite.name, sentence, operators)
        else:
            recorder.same(rewrite.name, sentence)
    count = len(compilation.places)
    graph = build_ssa_graph(compilation.program, compilation.places, compilation.options, operators)
    where = "one device" if count == 1 else f"{count} devices"
    text = f"Every operator once per device, on {where}; collectives bring gradients together."
    recorder.graph(REPLICATION, text, graph)
    for step in compilation.passes:
        if step.apply(graph):
            recorder.graph(step.name, _sentence(step), graph)
        else:
            recorder.same(step.name, _sentence(step))
    return recorder.members, recorder.stages


def _left(operators: Operators) -> list[str]:
    """Sentences about pairs that a pass would have fused, and why it could not."""
    there = set(operators.ops)
    pairs = [pair for pair in operators.left if there.issuperset(pair)]  # not fused with another
    said = [
        f"Not fused: {first.type} and {second.type}, as {operators.left[first, second]}."
        for first, second in pairs[:_SAID]
    ]
    more = len(pairs) - _SAID
    return [*said, f"And {more} more."] if more > 0 else said


def _sentence(step: object) -> str:
    """The first paragraph of the pass's docstring."""
    text = inspect.getdoc(type(step)) or ""
    return " ".join(text.partition("\n\n")[0].replace("``", "").split())


class _Recorder:
    def __init__(self) -> None:
        self.members: list[Member] = []
        self.stages: list[Stage] = []
        self.number: dict[Hashable, int] = {}
        self.edges: dict[int, Hashable] = {}
        self.orders: set[tuple[int, int]] = set()

    def operators(self, name: str, sentence: str, operators: Operators) -> None:
        """Record the operators of the program, as if on device 0."""
        ops = operators.ops
        numbers = self._numbers([(op, op) for op in ops])
        writer: dict[str, int] = {}
        links: dict[tuple[int, int], None] = {}
        for op in ops:
            found = (writer[read] for read in op.reads if read in writer)
            links.update(dict.fromkeys((source, numbers[op]) for source in found))
            writer.update(dict.fromkeys(op.writes, numbers[op]))
        edges = {numbers[op]: _operator_edges(op) for op in ops}
        self._stage(name, sentence, edges, links)

    def same(self, name: str, sentence: str) -> None:
        """Record a pass that changed nothing."""
        before = self.stages[-1]
        self.stages.append(Stage(name, sentence, before.nodes, before.links))

    def graph(self, name: str, sentence: str, graph: SSAGraph) -> None:
        """Record the replicated graph; operators of the program keep their numbers on device 0."""
        numbers = self._numbers([(node, _origin(node)) for node in graph.ops])
        links: dict[tuple[int, int], None] = {}
        orders: dict[tuple[int, int], None] = {}
        for node in graph.ops:
            for var in node.inputs:
                if var.writer is not None:
                    kept = links if var.kind == "var" else orders
                    kept[numbers[var.writer], numbers[node]] = None
        before, self.orders = self.orders, set(orders)
        if before:
            links.update(dict.fromkeys(pair for pair in orders if pair not in before))
        edges = {numbers[node]: _node_edges(node) for node in graph.ops}
        self._stage(name, sentence, edges, links)

    def _numbers(self, items: list[tuple[Any, Any]]) -> dict[Any, int]:
        """A number for every item: its own, or that of a removed one with the same label."""
        last = self.stages[-1].nodes if self.stages else ()
        known = {self.number[origin] for _, origin in items if origin in self.number}
        gone = {self.members[k].label: k for k in last if k not in known}
        found: dict[Any, int] = {}
        for item, origin in items:
            if origin not in self.number:
                text = _label(item)
                number = gone.pop(text, len(self.members))
                if number == len(self.members):
                    self.members.append(_member(number, item, text))
                self.number[origin] = number
            found[item] = self.number[origin]
        return found

    def _stage(
        self,
        name: str,
        sentence: str,
        edges: dict[int, Hashable],
        links: Iterable[tuple[int, int]],
    ) -> None:
        nodes = tuple(edges)
        if not self.stages:
            self.stages.append(Stage(name, sentence, nodes, tuple(links)))
        else:
            before, same = self.stages[-1].nodes, name == REPLICATION
            old, new = set(before), set(nodes)
            changed = (k for k in nodes if k in old and edges[k] != self.edges[k])
            self.stages.append(
                Stage(
                    name,
                    sentence,
                    nodes,
                    tuple(links),
                    tuple(k for k in nodes if k not in old),
                    tuple(k for k in before if k not in new),
                    () if same else tuple(changed),
                )
            )
        self.edges = edges


def _origin(node: OpNode) -> Any:
    """The operator of the program that a node of device 0 replicates."""
    return node.op if node.op is not None and node.device == 0 and _plain(node) else node


def _plain(node: OpNode) -> bool:
    return node.does.computes and node.op is not None and node.name == node.op.type


def _operator_edges(op: Operator) -> Hashable:
    return tuple(op.input_arg_names), tuple(op.output_arg_names), id(op)


def _node_edges(node: OpNode) -> Hashable:
    return len(node.inputs), len(node.outputs)


def _label(item: Operator | OpNode) -> str:
    return f"{label(item)} on device 0" if isinstance(item, Operator) else label(item)


def _member(number: int, item: Operator | OpNode, text: str) -> Member:
    if isinstance(item, Operator):
        names = [name for name in item.output_arg_names if name]
        return Member(number, item.type, _names(names), role_name(item.role), 0, text, item)
    names = [var.name for var in item.outputs if var.kind == "var"]
    device = None if item.is_collective else item.device
    return Member(number, item.name, _names(names), item.role, device, text, item.op)


def _names(names: list[str]) -> str:
    unique = list(dict.fromkeys(names))
    if not unique:
        return ""
    return unique[0] if len(unique) == 1 else f"{unique[0]} +{len(unique) - 1}"
