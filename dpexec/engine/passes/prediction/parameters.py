"""The parameters of a loaded model, which passes read and replace."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from dpexec.engine.core.places import CPUPlace
from dpexec.engine.core.scope import Scope
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.graph.operators import Operators
from dpexec.engine.ir.operator import Operator

__all__ = ["Parameters"]

Array = np.ndarray[Any, Any]


class Parameters:
    """The persistable variables of a program that nobody else runs.

    Args:
        operators: of the program.
        scope: holds the values.
    """

    def __init__(self, operators: Operators, scope: Scope) -> None:
        self.operators, self._block, self._scope = operators, operators.block, scope

    def value(self, name: str, besides: Collection[Operator] = ()) -> Array | None:
        """The numbers of a parameter; None for what changes, and for what is no float32 tensor.

        Args:
            name: of the variable.
            besides: operators that may write it, as they do not change it.
        """
        uses, var = self.operators.uses(), self._block.vars.get(name)
        if var is None or not var.persistable:
            return None
        if any(uses.ops[writer] not in besides for writer in uses.writers[name]):
            return None
        holder = self._scope.find_var(name)
        value = None if holder is None else holder.value
        if not isinstance(value, LoDTensor) or not value._is_initialized() or value.lod():
            return None
        found = value.numpy()
        return found if found.dtype == np.float32 else None

    def replaced(self, name: str, value: Array, reader: Operator) -> str:
        """Store what an operator is to read in the place of a parameter.

        Args:
            name: of the parameter.
            value: float32; the shape may be another one.
            reader: the operator.

        Returns:
            The name of the new value: the same one if nobody else reads it.
        """
        readers = [self.operators.ops[at] for at in self.operators.uses().readers[name]]
        same = readers == [reader] and tuple(self._block.vars[name].shape) == value.shape
        return self.store(name, value) if same else self.added(name, value)

    def added(self, name: str, value: Array) -> str:
        """Store a new parameter.

        Args:
            name: what the new one is named after.
            value: float32.

        Returns:
            Its name.
        """
        number = 0
        while f"{name}@{number}" in self._block.vars:
            number += 1
        made = f"{name}@{number}"
        self._block.create_var(
            name=made, shape=list(value.shape), dtype="float32", persistable=True
        )
        return self.store(made, value)

    def store(self, name: str, value: Array) -> str:
        """Store the numbers of a parameter; returns its name."""
        made = np.ascontiguousarray(value, np.float32)
        self._scope.var(name).get_tensor().set(made, CPUPlace())
        return name

    def drop_unused(self) -> None:
        """Forget the variables that no operator reads or writes."""
        blocks = self._block.program.blocks
        inner = [op for block in blocks[1:] for op in block.ops]
        ops = [*self.operators.ops, *inner]
        used = {name for op in ops for name in (*op.reads, *op.writes)}
        used |= {name for op in ops for name in (*op.input_arg_names, *op.output_arg_names)}
        gone = [name for name in self._block.vars if name not in used]
        kept = [name for name in gone if self._block.vars[name].persistable]
        for name in gone:
            del self._block.vars[name]
        self._scope.erase(kept)
