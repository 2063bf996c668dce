"""Nodes of an ``IrGraph``: operators, and versions of variables."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.views import BlockView

if TYPE_CHECKING:
    from dpexec.engine.ir.operator import Operator
    from dpexec.engine.ir.variable import Variable
    from dpexec.engine.ir.views import OperatorView, VariableView

__all__ = ["CONTROL_PREFIX", "IrNode", "IrOpNode", "IrVarNode"]

CONTROL_PREFIX = "__control_var"
"""Prefix of the names of control variables, which only order operators."""


class IrNode:
    """An operator or a version of a variable, with links to its neighbours.

    Graphs make nodes, and each node is one object. So nodes can be compared and put into sets,
    whose order is the same in every process.

    Args:
        number: its place among the nodes of its graph, in the order in which they were made.
        name: of the variable, or the operator's type.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.unique_name.guard(), fluid.program_guard(main):
        ...     out = fluid.layers.relu(fluid.data("x", [None, 4]))
        >>> graph = fluid.framework.IrGraph(fluid.core.Graph(main.desc), for_test=True)
        >>> sorted((node.name(), node.is_op()) for node in graph.all_nodes())
        [('relu', True), ('relu_0.tmp_0', False), ('x', False)]
    """

    class Type(enum.Enum):
        """The type of a node."""

        Operation = 0
        Variable = 1

    def __init__(self, number: int, name: str) -> None:
        self._number = number
        self._name = name
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def __hash__(self) -> int:
        return self._number

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name()} ({self._number})>"

    @property
    def node(self) -> Self:
        """The node itself; fluid returns its C++ counterpart."""
        return self

    def id(self) -> int:
        """Its number in the graph."""
        return self._number

    def name(self) -> str:
        """Name of the variable, or type of the operator."""
        return self._name

    def node_type(self) -> Type:
        """Whether it is an operator or a variable."""
        return IrNode.Type.Operation if self.is_op() else IrNode.Type.Variable

    def is_op(self) -> bool:
        """Whether it is an operator."""
        return isinstance(self, IrOpNode)

    def is_var(self) -> bool:
        """Whether it is a variable."""
        return isinstance(self, IrVarNode)

    def is_ctrl_var(self) -> bool:
        """Whether it is a control variable, which only orders operators."""
        return self.is_var() and self.name().startswith(CONTROL_PREFIX)

    def var(self) -> VariableView | None:
        """The description of the variable, None for an operator or if there is none."""
        return None

    def op(self) -> OperatorView | None:
        """The description of the operator, None for a variable."""
        return None

    @property
    def inputs(self) -> list[Any]:
        """Predecessors: the writer of a variable, or the variables that an operator reads."""
        return list(self._inputs)

    @property
    def outputs(self) -> list[Any]:
        """Successors: the readers of a variable, or the variables that an operator writes."""
        return list(self._outputs)

    def append_input(self, node: IrNode) -> None:
        """Add a predecessor at this end only; ``IrGraph.link_to`` links both ends."""
        self._inputs.append(node)

    def append_output(self, node: IrNode) -> None:
        """Add a successor at this end only; ``IrGraph.link_to`` links both ends."""
        self._outputs.append(node)

    def remove_input(self, node: IrNode) -> None:
        """Remove a predecessor."""
        self._inputs = [other for other in self._inputs if other is not node]

    def remove_output(self, node: IrNode) -> None:
        """Remove a successor."""
        self._outputs = [other for other in self._outputs if other is not node]

    def remove_input_by_id(self, node_id: int) -> None:
        """Remove the predecessor with a number."""
        self._inputs = [other for other in self._inputs if other.id() != node_id]

    def remove_output_by_id(self, node_id: int) -> None:
        """Remove the successor with a number."""
        self._outputs = [other for other in self._outputs if other.id() != node_id]

    def clear_inputs(self) -> None:
        """Remove all predecessors."""
        self._inputs = []

    def clear_outputs(self) -> None:
        """Remove all successors."""
        self._outputs = []


class IrVarNode(IrNode):
    """A version of a variable: its initial value, or the value that one operator writes.

    Args:
        number: as for :class:`IrNode`.
        name: the variable's name.
        variable: its declaration; None if the program does not declare it.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.unique_name.guard(), fluid.program_guard(main):
        ...     out = fluid.layers.relu(fluid.data("x", [None, 4]))
        >>> graph = fluid.framework.IrGraph(fluid.core.Graph(main.desc), for_test=True)
        >>> node = next(node for node in graph.all_var_nodes() if node.name() == "x")
        >>> node.shape(), [reader.name() for reader in node.outputs]
        ([-1, 4], ['relu'])
    """

    def __init__(self, number: int, name: str, variable: Variable | None) -> None:
        super().__init__(number, name)
        self.variable = variable

    @property
    def _declared(self) -> Variable:
        if self.variable is None:
            raise AssertionError(f"the program does not declare variable {self.name()}")
        return self.variable

    def var(self) -> VariableView | None:
        """The description of the variable, None if there is none."""
        return None if self.variable is None else self.variable.desc

    def set_shape(self, shape: Sequence[int]) -> None:
        """Set the dimensions."""
        self._declared.desc.set_shape(shape)

    def persistable(self) -> bool:
        """Whether the value outlives a run."""
        return self._declared.persistable

    def type(self) -> VarType:
        """What the variable holds."""
        return self._declared.type

    def dtype(self) -> VarType:
        """Element type."""
        return self._declared.dtype

    def shape(self) -> list[int]:
        """Dimensions, -1 where unknown."""
        return list(self._declared.shape)


class IrOpNode(IrNode):
    """An operator.

    Args:
        number: as for :class:`IrNode`.
        operator: the operator, which refers to variables by name.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.unique_name.guard(), fluid.program_guard(main):
        ...     out = fluid.layers.relu(fluid.data("x", [None, 4]))
        >>> graph = fluid.framework.IrGraph(fluid.core.Graph(main.desc), for_test=True)
        >>> (node,) = graph.all_op_nodes()
        >>> node.name(), node.input("X"), [written.name() for written in node.outputs]
        ('relu', ['x'], ['relu_0.tmp_0'])
    """

    def __init__(self, number: int, operator: Operator) -> None:
        super().__init__(number, operator.type)
        self.operator = operator

    def op(self) -> OperatorView:
        """The description of the operator."""
        return self.operator.desc

    def input(self, name: str) -> list[str]:
        """Variables in an input slot."""
        return self.operator.input(name)

    def output(self, name: str) -> list[str]:
        """Variables in an output slot."""
        return self.operator.output(name)

    def input_arg_names(self) -> list[str]:
        """All variables read."""
        return self.operator.input_arg_names

    def output_arg_names(self) -> list[str]:
        """All variables written."""
        return self.operator.output_arg_names

    def rename_input(self, old_input_name: str, new_input_name: str) -> None:
        """Rename an input of the operator; links stay as they are."""
        self.operator._rename_input(old_input_name, new_input_name)

    def rename_output(self, old_output_name: str, new_output_name: str) -> None:
        """Rename an output of the operator; links stay as they are."""
        self.operator._rename_output(old_output_name, new_output_name)

    def set_type(self, new_type: str) -> None:
        """Change the operator's type; the node keeps its name, as in Paddle."""
        self.operator.type = new_type

    def set_attr(self, name: str, val: Any) -> None:
        """Set an attribute: a number, a string, a block, or a list of them."""
        self.operator._set_attr(name, _attribute(val))


def _attribute(value: Any) -> Any:
    """An attribute as operators store it: a view of a block becomes the block itself."""
    if isinstance(value, (list, tuple)):
        return [_attribute(item) for item in value]
    return value.block if isinstance(value, BlockView) else value
