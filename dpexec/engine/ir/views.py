"""The ``desc`` objects of variables, operators and blocks, which in fluid are the C++ side.

dpexec has no second copy of a program: these views read and write the Python objects directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpexec.engine.core.dtypes import AttrType, VarType, as_var_type
from dpexec.engine.core.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpexec.engine.ir.block import Block
    from dpexec.engine.ir.operator import Operator
    from dpexec.engine.ir.spec import Spec
    from dpexec.engine.ir.variable import Variable

__all__ = ["BlockView", "OperatorView", "VariableView"]


@dataclass(frozen=True, eq=False)  # == of variables is an operator
class VariableView:
    """The view behind ``variable.desc``.

    Args:
        variable: the viewed variable.
    """

    variable: Variable

    def name(self) -> str:
        """The name."""
        return self.variable.name

    def type(self) -> VarType:
        """What the variable holds."""
        return self.variable.type

    def dtype(self) -> VarType:
        """Element type."""
        return self.variable.dtype

    def shape(self) -> list[int]:
        """Dimensions, -1 where unknown."""
        return list(self.variable.shape)

    def lod_level(self) -> int:
        """Nesting depth of sequences."""
        return self.variable.lod_level

    def persistable(self) -> bool:
        """Whether the value outlives a run."""
        return self.variable.persistable

    def need_check_feed(self) -> bool:
        """Whether feeds are checked in Python."""
        return self.variable.need_check_feed

    def set_type(self, type: VarType) -> None:
        """Set the kind of the variable, such as ``LOD_TENSOR``."""
        self._set(self.variable.spec.replace(kind=VarType(type)))

    def set_dtype(self, dtype: VarType) -> None:
        """Set the element type."""
        self._set(self.variable.spec.replace(dtype=as_var_type(dtype)))

    def set_shape(self, shape: Sequence[int]) -> None:
        """Set the dimensions."""
        self._set(self.variable.spec.replace(shape=tuple(int(size) for size in shape)))

    def set_lod_level(self, level: int) -> None:
        """Set the nesting depth of sequences."""
        self._set(self.variable.spec.replace(lod_level=level))

    def set_persistable(self, persistable: bool) -> None:
        """Say whether the value outlives a run."""
        self.variable.persistable = persistable

    def _set(self, spec: Spec) -> None:
        self.variable.set_spec(spec)
        self.variable.block.program._changed()


@dataclass(frozen=True)
class OperatorView:
    """The view behind ``operator.desc``.

    Args:
        operator: the viewed operator.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.unique_name.guard(), fluid.program_guard(main):
        ...     out = fluid.layers.scale(fluid.data("x", [None, 4]), scale=2.0)
        >>> desc = main.global_block().ops[0].desc
        >>> desc.type(), desc.input("X"), desc.attr("scale")
        ('scale', ['x'], 2.0)
    """

    operator: Operator

    def type(self) -> str:
        """Operator type."""
        return self.operator.type

    def set_type(self, type: str) -> None:
        """Set the operator type; a new operator has none yet."""
        self.operator.type = type
        self._changed()

    def copy_from(self, other: OperatorView) -> None:
        """Become like another operator, of any program."""
        like = other.operator
        self.operator.type, self.operator.callsite = like.type, like.callsite
        self.operator.inputs = {slot: list(names) for slot, names in like.inputs.items()}
        self.operator.outputs = {slot: list(names) for slot, names in like.outputs.items()}
        self.operator.attrs = dict(like.attrs)
        self._changed()

    def block(self) -> BlockView:
        """The block that the operator is in."""
        return self.operator.block.desc

    def input_names(self) -> list[str]:
        """Names of the input slots."""
        return self.operator.input_names

    def output_names(self) -> list[str]:
        """Names of the output slots."""
        return self.operator.output_names

    def input(self, name: str) -> list[str]:
        """Variables in an input slot."""
        return self.operator.input(name)

    def output(self, name: str) -> list[str]:
        """Variables in an output slot."""
        return self.operator.output(name)

    def set_input(self, name: str, variables: Sequence[str]) -> None:
        """Let an input slot be these variables, given by name."""
        self.operator.inputs[name] = list(variables)
        self._changed()

    def set_output(self, name: str, variables: Sequence[str]) -> None:
        """Let an output slot be these variables, given by name."""
        self.operator.outputs[name] = list(variables)
        self._changed()

    def _rename_input(self, old: str, new: str) -> None:
        self.operator._rename_input(old, new)

    def _rename_output(self, old: str, new: str) -> None:
        self.operator._rename_output(old, new)

    def input_arg_names(self) -> list[str]:
        """All variables read."""
        return self.operator.input_arg_names

    def output_arg_names(self) -> list[str]:
        """All variables written."""
        return self.operator.output_arg_names

    def attr_names(self) -> list[str]:
        """Names of the attributes."""
        return self.operator.attr_names

    def has_attr(self, name: str) -> bool:
        """Whether there is such an attribute."""
        return self.operator.has_attr(name)

    def attr(self, name: str) -> Any:
        """The value of an attribute."""
        return self.operator.attr(name)

    def attr_type(self, name: str) -> AttrType:
        """The type of an attribute."""
        return self.operator.attr_type(name)

    def _set_attr(self, name: str, value: Any) -> None:
        self.operator._set_attr(name, value)

    def set_block_attr(self, name: str, value: BlockView) -> None:
        """Let an attribute be a block of the program."""
        self.operator._set_attr(name, value.block)

    def set_blocks_attr(self, name: str, values: Sequence[BlockView]) -> None:
        """Let an attribute be blocks of the program."""
        self.operator._set_attr(name, [value.block for value in values])

    def _block_attr_id(self, name: str) -> int:
        return self.operator._block_attr_id(name)

    def _blocks_attr_ids(self, name: str) -> list[int]:
        return self.operator._blocks_attr_ids(name)

    def remove_attr(self, name: str) -> None:
        """Take an attribute away."""
        self.operator._remove_attr(name)

    def check_attrs(self) -> None:
        """Set missing attributes to their defaults.

        Raises:
            MissingKernelError: there is no operator of this type.
        """
        self.operator.attrs = {**self.operator.definition.attrs, **self.operator.attrs}
        self._changed()

    def infer_var_type(self, block: BlockView) -> None:
        """Derive types of the outputs; dpexec derives shapes at the same time.

        Args:
            block: the operator's block, as in fluid.
        """
        self.infer_shape(block)

    def infer_shape(self, block: BlockView) -> None:
        """Derive shapes and types of the outputs.

        Args:
            block: the operator's block, as in fluid.

        Raises:
            EnforceNotMet: the inputs break a rule of the operator.
        """
        self.operator.infer_shape()
        self._changed()

    def _changed(self) -> None:
        self.operator.block.program._changed()


@dataclass(frozen=True)
class BlockView:
    """The view behind ``block.desc``.

    Args:
        block: the viewed block.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.unique_name.guard(), fluid.program_guard(main):
        ...     out = fluid.layers.relu(fluid.data("x", [None, 4]))
        >>> block = main.global_block().desc
        >>> block.op_size(), block.op(0).type()
        (1, 'relu')
    """

    block: Block

    @property
    def id(self) -> int:
        """Number in the program."""
        return self.block.idx

    @property
    def parent(self) -> int:
        """Number of the enclosing block, -1 for the global one."""
        return self.block.parent_idx

    def get_forward_block_idx(self) -> int:
        """Number of the block whose gradients this one computes, -1 if there is none."""
        return self.block.forward_block_idx

    def _set_forward_block_idx(self, index: int) -> None:
        self.block.forward_block_idx = index

    def op_size(self) -> int:
        """How many operators there are."""
        return len(self.block.ops)

    def op(self, index: int) -> OperatorView:
        """An operator."""
        return self.block.ops[index].desc

    def append_op(self) -> OperatorView:
        """Add an operator at the end; it has no type, inputs and outputs until they are set."""
        return self._insert_op(self.op_size())

    def _prepend_op(self) -> OperatorView:
        return self._insert_op(0)

    def _insert_op(self, index: int) -> OperatorView:
        from dpexec.engine.ir.operator import Operator

        made = Operator(self.block, "", {}, {}, {}, fill_defaults=False)
        self.block.ops.insert(index, made)
        self.block.program._changed()
        return made.desc

    def _remove_op(self, start: int, end: int) -> None:
        del self.block.ops[start:end]
        self.block.program._changed()

    def all_vars(self) -> list[VariableView]:
        """All variables."""
        return [var.desc for var in self.block.vars.values()]

    def has_var(self, name: bytes) -> bool:
        """Whether the block has a variable; its name as bytes, as in the original."""
        return name.decode() in self.block.vars

    def find_var(self, name: bytes) -> VariableView | None:
        """The variable of this name, as bytes."""
        found = self.block.vars.get(name.decode())
        return None if found is None else found.desc

    def find_var_recursive(self, name: bytes) -> VariableView | None:
        """The variable of this name, as bytes, in this block or in those around it."""
        found = self.block._find_var_recursive(name.decode())
        return None if found is None else found.desc

    def var(self, name: bytes) -> VariableView:
        """The variable of this name, as bytes; made if there is none."""
        return self.find_var(name) or self.block.create_var(name=name.decode()).desc

    def _rename_var(self, name: bytes, new_name: bytes) -> None:
        self.block._rename_var(name.decode(), new_name.decode())

    def _remove_var(self, name: bytes) -> None:
        self.block._remove_var(name.decode())
