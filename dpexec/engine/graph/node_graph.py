"""``fluid.core.Graph``: the operators of a program and the versions of its variables, linked."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from dpexec.engine.graph.nodes import CONTROL_PREFIX, IrNode, IrOpNode, IrVarNode
from dpexec.engine.ir.desc import ProgramDesc
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.roles import present

if TYPE_CHECKING:
    from dpexec.engine.ir.block import Block
    from dpexec.engine.ir.variable import Variable
    from dpexec.engine.ir.views import OperatorView, VariableView

__all__ = ["Graph"]

Made = TypeVar("Made", bound=IrNode)
Versions = Mapping[str, Sequence[IrVarNode]]


class Graph:
    """The outermost block of a program as nodes; every write makes a new version of a variable.

    Other blocks stay as they are, and belong to their operators.

    Args:
        program: ``program.desc``; the graph has a copy.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.unique_name.guard(), fluid.program_guard(main):
        ...     out = fluid.layers.relu(fluid.data("x", [None, 4]))
        >>> graph = fluid.core.Graph(main.desc)
        >>> sorted(node.name() for node in graph.nodes())
        ['relu', 'relu_0.tmp_0', 'x']
    """

    def __init__(self, program: ProgramDesc) -> None:
        if not isinstance(program, ProgramDesc):
            raise TypeError(f"Graph takes program.desc, but received {type(program)}")
        self._program = program._program.clone()
        self._nodes: dict[IrNode, None] = {}
        self._made = 0
        self.resolve_hazard(self._link())

    def _link(self) -> Versions:
        versions: dict[str, list[IrVarNode]] = {}
        for op in self.block.ops:
            node = self._add(IrOpNode(self._made, op))
            for name in _arguments(op.inputs):
                if name not in versions:
                    versions[name] = [self._version(name)]
                self.link(versions[name][-1], node)
            for name in _arguments(op.outputs):
                versions.setdefault(name, []).append(self._version(name))
                self.link(node, versions[name][-1])
        return versions

    def _version(self, name: str) -> IrVarNode:
        variable = self.block.vars.get(name)
        return self._add(IrVarNode(self._made, name, variable))

    def _add(self, node: Made) -> Made:
        self._nodes[node] = None
        self._made += 1
        return node

    @property
    def block(self) -> Block:
        """The block that new operators and variables belong to."""
        return self._program.global_block()

    def __contains__(self, node: object) -> bool:
        return node in self._nodes

    def nodes(self) -> set[IrNode]:
        """All nodes."""
        return set(self._nodes)

    @property
    def ops(self) -> list[IrOpNode]:
        """The operators in the order in which they were made."""
        return [node for node in self._nodes if isinstance(node, IrOpNode)]

    @property
    def vars(self) -> list[IrVarNode]:
        """The versions of variables in the order in which they were made."""
        return [node for node in self._nodes if isinstance(node, IrVarNode)]

    # ---- changes

    def create_var_node(self, var_desc: VariableView) -> IrVarNode:
        """Add a variable, or a version of one.

        Args:
            var_desc: the declaration to copy, from any program.
        """
        variable = copy.copy(var_desc.variable)
        variable.block = self.block
        return self._add(IrVarNode(self._made, variable.name, variable))

    def create_control_dep_var(self) -> IrVarNode:
        """Add a variable that only says which operator comes first."""
        return self._add(IrVarNode(self._made, f"{CONTROL_PREFIX}@{self._made}", None))

    def create_op_node(self, op_desc: OperatorView) -> IrOpNode:
        """Add an operator, without links.

        Args:
            op_desc: the operator to copy, from any program.
        """
        return self._add(IrOpNode(self._made, op_desc.operator.twin(self.block)))

    def link(self, first: IrNode, then: IrNode) -> None:
        """Add an edge from one node to another."""
        first.append_output(then)
        then.append_input(first)

    def remove(self, nodes: Iterable[IrNode]) -> None:
        """Remove nodes and all links to them."""
        for node in list(nodes):
            for other in node.inputs:
                other.remove_output(node)
            for other in node.outputs:
                other.remove_input(node)
            self._nodes.pop(node, None)

    def resolve_hazard(self, var_nodes: Versions) -> None:
        """Order the readers and the writer of each version before the writer of the next one.

        Args:
            var_nodes: the versions of each variable, in order.
        """
        for versions in var_nodes.values():
            for old, new in pairwise(versions):
                for writer in new.inputs:
                    for before in (*old.inputs, *old.outputs):
                        if before is not writer and not set(before.outputs) & set(writer.inputs):
                            order = self.create_control_dep_var()
                            self.link(before, order)
                            self.link(order, writer)

    # ---- views

    def before(self) -> dict[IrOpNode, list[IrOpNode]]:
        """For every operator, its predecessors; both in the order in which they were made."""
        found = {}
        for op in self.ops:
            makers = {maker for variable in op.inputs for maker in variable.inputs}
            found[op] = sorted(makers, key=IrNode.id)
        return found

    def sorted_ops(self) -> list[IrOpNode]:
        """The operators in topological order; ties are in the order in which they were made.

        Raises:
            ValueError: the graph has a cycle.
        """
        before = self.before()
        state: dict[IrOpNode, bool] = {}  # False while those before it are visited
        found: list[IrOpNode] = []
        for first in before:
            waiting = [first]
            while waiting:
                op = waiting[-1]
                if state.setdefault(op, False):
                    waiting.pop()
                    continue
                missing = next((other for other in before[op] if not state.get(other)), None)
                if missing is None:
                    found.append(waiting.pop())
                    state[op] = True
                elif missing in state:
                    raise ValueError(f"the graph has a circle through {missing} and {op}")
                else:
                    waiting.append(missing)
        return found

    def to_program(self) -> Program:
        """The program that the graph stands for."""
        block = self.block
        block.ops = [node.operator for node in self.sorted_ops()]
        used: dict[str, Variable] = {}
        for node in self.vars:
            if node.variable is not None:
                used.setdefault(node.name(), node.variable)
        names = dict.fromkeys((*block.vars, *used))  # in the order of the original
        block.vars = OrderedDict((name, used[name]) for name in names if name in used)
        return self._program.clone()

    def clone(self) -> Graph:
        """A graph of the same nodes that can be changed without changing this one."""
        made = copy.copy(self)
        made._program = self._program.clone()
        block = made.block
        twin: dict[IrNode, IrNode] = {}
        for node in self._nodes:
            twin[node] = copied = copy.copy(node)
            if isinstance(copied, IrVarNode) and copied.variable is not None:
                copied.variable = copy.copy(copied.variable)
                copied.variable.block = block
            if isinstance(copied, IrOpNode):
                copied.operator = copied.operator.twin(block)
        for copied in twin.values():
            copied._inputs = [twin[other] for other in copied._inputs]
            copied._outputs = [twin[other] for other in copied._outputs]
        made._nodes = dict.fromkeys(twin.values())
        return made


def _arguments(slots: Mapping[str, list[str]]) -> list[str]:
    """The distinct variables of an operator, by slot."""
    return list(dict.fromkeys(present([name for slot in sorted(slots) for name in slots[slot]])))
