"""What ``desc`` of variables, operators and blocks gives: their C++ side in the original.

There is no second copy of a program here. These views show what they are made of, and write to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpexec.core.dtypes import AttrType, VarType, as_var_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpexec.ir.block import Block
    from dpexec.ir.operator import Operator
    from dpexec.ir.spec import Spec
    from dpexec.ir.variable import Variable

__all__ = ["BlockView", "OperatorView", "VariableView"]


@dataclass(frozen=True, eq=False)  # == of variables is an operator
class VariableView:
    """What ``variable.desc`` gives.

    Args:
        variable: which one.
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
        """Say what the variable holds."""
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
    """What ``operator.desc`` gives.

    Args:
        operator: which one.
    """

    operator: Operator

    def type(self) -> str:
        """Operator type."""
        return self.operator.type

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

    def remove_attr(self, name: str) -> None:
        """Take an attribute away."""
        self.operator._remove_attr(name)

    def infer_shape(self, block: BlockView) -> None:
        """Derive shapes and types of the outputs.

        Args:
            block: of the operator, as in fluid.

        Raises:
            EnforceNotMet: the inputs break a rule of the operator.
        """
        self.operator.infer_shape()
        block.block.program._changed()


@dataclass(frozen=True)
class BlockView:
    """What ``block.desc`` gives.

    Args:
        block: which one.
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

    def op_size(self) -> int:
        """How many operators there are."""
        return len(self.block.ops)

    def op(self, index: int) -> OperatorView:
        """An operator."""
        return self.block.ops[index].desc

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
