"""``fluid.framework.IrGraph``: a program as a graph that user code can rewrite."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.graph.node_graph import Graph
from dpexec.engine.graph.nodes import IrNode, IrOpNode, IrVarNode
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.engine.ir.views import OperatorView, VariableView

__all__ = ["IrGraph"]

Node = TypeVar("Node", bound=IrNode)


class IrGraph:
    """A graph of operators and variables.

    Example:
        >>> import dpexec as fluid
        >>> program = fluid.Program()
        >>> with fluid.program_guard(program, fluid.Program()):
        ...     y = fluid.layers.relu(fluid.data("x", [None, 4]))
        >>> graph = IrGraph(fluid.core.Graph(program.desc))
        >>> [node.name() for node in graph.topology_sort()]
        ['relu']

    Args:
        graph: ``fluid.core.Graph(program.desc)``.
        for_test: whether the program is for prediction.

    Attributes:
        graph: the ``core.Graph``, which ``CompiledProgram`` takes.
    """

    def __init__(self, graph: Graph, for_test: bool = False) -> None:
        if not isinstance(graph, Graph):
            raise AssertionError("graph must be the instance of core.Graph.")
        self.graph = graph
        self._for_test = for_test

    def clone(self) -> IrGraph:
        """A graph of the same nodes that can be changed without changing this one."""
        return IrGraph(self.graph.clone(), self._for_test)

    def is_test(self) -> bool:
        """Whether the program is for prediction."""
        return self._for_test

    # ---- nodes

    def all_nodes(self) -> set[IrNode]:
        """All nodes."""
        return self.graph.nodes()

    def all_var_nodes(self) -> set[IrVarNode]:
        """All versions of variables."""
        return set(self.graph.vars)

    def all_persistable_nodes(self) -> set[IrVarNode]:
        """All versions of variables whose values outlive a run."""
        return {node for node in self.graph.vars if node.variable and node.persistable()}

    def all_op_nodes(self) -> set[IrOpNode]:
        """All operators."""
        return set(self.graph.ops)

    def _find_node_by_name(self, nodes: Iterable[Node], node_name: str) -> Node:
        found = [node for node in nodes if node.name() == node_name]
        if not found:
            raise AssertionError("Cannot find the target node in the giving set.")
        return found[-1]

    # ---- new nodes

    def create_persistable_node(
        self, name: str, var_type: VarType, shape: Sequence[int], var_dtype: VarType
    ) -> IrVarNode:
        """Add a variable whose value outlives a run.

        Args:
            name: the variable's name.
            var_type: kind of the variable, such as ``LOD_TENSOR``.
            shape: dimensions.
            var_dtype: element type.
        """
        return self._create_var_node(name, var_type, shape, var_dtype, True)

    def create_var_node(
        self, name: str, var_type: VarType, shape: Sequence[int], var_dtype: VarType
    ) -> IrVarNode:
        """Add a variable; arguments as for :meth:`create_persistable_node`."""
        return self._create_var_node(name, var_type, shape, var_dtype, False)

    def _create_var_node(
        self, name: str, kind: VarType, shape: Sequence[int], dtype: VarType, persistable: bool
    ) -> IrVarNode:
        made = Variable(self.graph.block, kind, name, shape, dtype, persistable=persistable)
        return self.graph.create_var_node(made.desc)

    def create_var_node_from_desc(self, var_desc: VariableView) -> IrVarNode:
        """Add a variable, or a version of one, like ``node.var()``."""
        return self.graph.create_var_node(var_desc)

    def create_control_dep_var(self) -> IrVarNode:
        """Add a variable that only says which operator comes first."""
        return self.graph.create_control_dep_var()

    def create_op_node(
        self,
        op_type: str,
        attrs: Mapping[str, Any],
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
    ) -> IrOpNode:
        """Add an operator; :meth:`link_to` links it.

        Args:
            op_type: its type.
            attrs: its attributes.
            inputs: a node, or a list of nodes, per slot.
            outputs: a node, or a list of nodes, per slot.
        """
        made = Operator(self.graph.block, op_type, _names(inputs), _names(outputs), {}, None, False)
        node = self.graph.create_op_node(made.desc)
        for name, value in attrs.items():
            node.set_attr(name, value)
        return node

    def create_op_node_from_desc(self, op_desc: OperatorView) -> IrOpNode:
        """Add an operator like ``node.op()``."""
        return self.graph.create_op_node(op_desc)

    # ---- links

    def _check(self, *nodes: IrNode) -> None:
        if not all(node in self.graph for node in nodes):
            raise AssertionError(f"the arguments {nodes} must be in the graph nodes.")

    def link_to(self, node_in: IrNode, node_out: IrNode) -> None:
        """Add an edge from one node to another."""
        self._check(node_in, node_out)
        self.graph.link(node_in, node_out)

    def update_input_link(
        self, old_input_node: IrNode, new_input_node: IrNode, op_node: IrOpNode
    ) -> None:
        """Replace an input of an operator.

        Args:
            old_input_node: the variable that it reads now.
            new_input_node: the variable to read instead.
            op_node: the operator.
        """
        self._check(old_input_node, new_input_node, op_node)
        old_input_node.remove_output(op_node)
        op_node.remove_input(old_input_node)
        self.graph.link(new_input_node, op_node)
        op_node.rename_input(old_input_node.name(), new_input_node.name())

    def update_output_link(
        self, old_output_node: IrNode, new_output_node: IrNode, op_node: IrOpNode
    ) -> None:
        """Replace an output of an operator; arguments as for :meth:`update_input_link`."""
        self._check(old_output_node, new_output_node, op_node)
        old_output_node.remove_input(op_node)
        op_node.remove_output(old_output_node)
        self.graph.link(op_node, new_output_node)
        op_node.rename_output(old_output_node.name(), new_output_node.name())

    def safe_remove_nodes(self, remove_nodes: IrNode | Iterable[IrNode]) -> None:
        """Remove one or several nodes and all links to them."""
        self.graph.remove([remove_nodes] if isinstance(remove_nodes, IrNode) else remove_nodes)

    def resolve_hazard(self) -> None:
        """Order all readers of a variable's version before the writer of the next version."""
        versions: dict[str, list[IrVarNode]] = {}
        for op in self.graph.sorted_ops():
            for node in op.inputs:
                if not node.is_ctrl_var():
                    versions.setdefault(node.name(), [node])
            for node in op.outputs:
                if not node.is_ctrl_var():
                    versions.setdefault(node.name(), []).append(node)
        self.graph.resolve_hazard(versions)

    # ---- the whole

    def has_circle(self) -> bool:
        """Whether the graph has a cycle."""
        try:
            self.graph.sorted_ops()
        except ValueError:
            return True
        return False

    def graph_num(self) -> int:
        """The number of connected components."""
        unseen, found = self.all_nodes(), 0
        while unseen:
            found += 1
            waiting = [unseen.pop()]
            while waiting:
                node = waiting.pop()
                near = unseen.intersection((*node.inputs, *node.outputs))
                unseen -= near
                waiting += near
        return found

    def topology_sort(self) -> list[IrOpNode]:
        """The operators in topological order.

        Raises:
            ValueError: the graph has a cycle.
        """
        return self.graph.sorted_ops()

    def build_adjacency_list(self) -> dict[IrOpNode, set[IrOpNode]]:
        """For every operator, its predecessors."""
        return {op: set(others) for op, others in self.graph.before().items()}

    def to_program(self) -> Program:
        """The program that the graph stands for.

        Parameters stay parameters; in fluid they become plain variables.

        Raises:
            ValueError: the graph has a cycle.
        """
        return self.graph.to_program()

    def draw(
        self,
        save_path: str,
        name: str,
        marked_nodes: IrNode | Iterable[IrNode] | None = None,
        remove_ctr_var: bool = True,
    ) -> None:
        """Write ``<save_path>/<name>.dot``, and a PDF of it if Graphviz is installed.

        Args:
            save_path: the directory; created if missing.
            name: file name without extension.
            marked_nodes: nodes to highlight.
            remove_ctr_var: leave out control variables, which only order operators.

        Raises:
            OSError: the file cannot be written.
        """
        marked = {marked_nodes} if isinstance(marked_nodes, IrNode) else set(marked_nodes or ())
        shown = [n for n in self.graph.nodes() if not (remove_ctr_var and n.is_ctrl_var())]
        print(f"Total ops num = {len(self.graph.ops)}.")
        os.makedirs(save_path, exist_ok=True)
        path = os.path.join(save_path, name) + ".dot"
        with open(path, "w", encoding="utf-8") as file:
            file.write(_dot(sorted(shown, key=IrNode.id), marked))
        if shutil.which("dot"):
            subprocess.run(
                ["dot", "-Tpdf", path, "-o", path.removesuffix("dot") + "pdf"], check=True
            )
        else:
            print(f"{path} is no PDF: the command dot of Graphviz makes it.")


def _names(slots: Mapping[str, Any]) -> dict[str, list[str]]:
    return {
        slot: [node.name() for node in (nodes if isinstance(nodes, list) else [nodes])]
        for slot, nodes in slots.items()
    }


def _dot(nodes: Sequence[IrNode], marked: set[IrNode]) -> str:
    import graphviz  # here, as it takes as long as a good part of dpexec

    dot = graphviz.Digraph("graph", node_attr={"fontname": "Helvetica", "fontsize": "11"})
    shown = set(nodes)
    for node in nodes:
        shape = "box" if node.is_op() else "ellipse"
        style = {"style": "filled", "fillcolor": "yellow"} if node in marked else {}
        dot.node(f"node_{node.id()}", graphviz.escape(node.name()), shape=shape, **style)
        for other in node.outputs:
            if other in shown:
                dot.edge(f"node_{node.id()}", f"node_{other.id()}")
    source: str = dot.source
    return source
