"""An operator that is being written as ONNX: its inputs, attributes and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.core.dtypes import to_numpy
from dpexec.engine.core.lod import LOD_SUFFIX
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.spec import Spec
from dpexec.onnx.exporting.builder import Builder, Value
from dpexec.onnx.exporting.refusals import CannotExport, need
from dpexec.onnx.exporting.values import Values

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["Call"]

Write = Callable[[Block, Builder, Values], None]


class Call:
    """One operator of the program.

    Args:
        op: the operator.
        g: the graph to add its nodes to.
        values: the values of the variables.
        write: writes the operators of a block into a graph.
        needed: the variables that operators or users read.
        specs: what differs from the declarations, for its inputs and for its outputs.
    """

    def __init__(
        self, op: Operator, g: Builder, values: Values, write: Write, needed: frozenset[str],
        specs: tuple[Mapping[str, Spec], Mapping[str, Spec]] = ({}, {}),
    ) -> None:  # fmt: skip
        self.op, self.g, self.values, self.write_block = op, g, values, write
        self.needed, self.specs = needed, specs
        self._start = len(g.nodes)
        self._results: list[tuple[str, Value, tuple[Value, ...]]] = []

    def __getitem__(self, slot: str) -> Value:
        """The value of a required input."""
        found = self.get(slot)
        if found is None:
            raise CannotExport(f"its input {slot} has no value")
        return found

    def get(self, slot: str) -> Value | None:
        """The value of an input, None if it is left out."""
        names = [name for name in self.op.inputs.get(slot, []) if name]
        return self.value_of(names[0]) if names else None

    def all(self, slot: str) -> list[Value]:
        """The values of all variables of an input."""
        return [self.value_of(name) for name in self.op.inputs.get(slot, []) if name]

    def value_of(self, name: str) -> Value:
        """The value of a variable of the program."""
        found = self.values.find(name)
        if found is None:
            raise CannotExport(f"variable {name} has no value before it")
        return found

    def attr(self, name: str) -> Any:
        """An attribute, or its default."""
        if name in self.op.attrs:
            return self.op.attrs[name]
        return self.op.definition.attrs.get(name)

    def name(self, slot: str) -> str:
        """The first variable of an input or output."""
        names = self.op.inputs.get(slot) or self.op.outputs.get(slot) or [""]
        return names[0]

    def spec(self, slot: str, position: int = 0) -> Spec:
        """The declared shape, -1 where unknown, and type of an input or output."""
        given = self.op.inputs.get(slot)
        name = (given or self.op.outputs.get(slot) or [])[position]
        found = self.specs[0 if given else 1].get(name)
        return self.op.block._var_recursive(name).spec if found is None else found

    def shape(self, slot: str) -> tuple[int, ...]:
        """The declared shape of an input or output, -1 where unknown."""
        return self.spec(slot).shape

    def rank(self, slot: str) -> int:
        """The number of dimensions of an input or output."""
        return len(self.spec(slot).shape)

    def dtype(self, slot: str) -> np.dtype[Any]:
        """The element type of an input or output."""
        return to_numpy(self.spec(slot).dtype)

    def known(self, slot: str) -> np.ndarray[Any, Any] | None:
        """The numbers of an input, if they are constants of the model."""
        found = self.get(slot)
        return None if found is None else self.g.arrays.get(found)

    def constant(self, slot: str) -> np.ndarray[Any, Any]:
        """The numbers of an input that must be constants of the model."""
        found = self.known(slot)
        if found is None:
            raise CannotExport(f"its input {slot} is no constant, but ONNX needs one there")
        return found

    def constants(self, slot: str) -> list[np.ndarray[Any, Any]]:
        """The numbers of all variables of an input, which must be constants of the model."""
        found = [self.g.arrays.get(value) for value in self.all(slot)]
        need(
            all(array is not None for array in found),
            f"its input {slot} is no constant, but ONNX needs one there",
        )
        return [array for array in found if array is not None]

    def number(self, value: Any, slot: str = "X") -> Value:
        """A constant number, or array, in the element type of an input or output."""
        return self.g.constant(np.array(value, self.dtype(slot)))

    def wants(self, slot: str) -> bool:
        """Whether an output has a variable that another operator or the user reads."""
        return not self.needed.isdisjoint(self.op.outputs.get(slot, []))

    def set(
        self,
        slot: str,
        value: Value | Sequence[Value],
        lengths: Sequence[Value] | None = None,
    ) -> None:
        """Set the value of an output, or a list of values for several variables.

        Args:
            slot: the output.
            value: its value; ignored if the output has no variable.
            lengths: lengths of its sequences, coarse levels first; by default those of the first
                input that has sequences, if the operator keeps them.
        """
        found = [value] if isinstance(value, str) else list(value)
        for name, each in zip(self.op.outputs.get(slot, []), found, strict=False):
            if name:
                kept = self._kept(name) if lengths is None else tuple(lengths)
                self._results.append((name, each, kept))

    def set_each(
        self, slot: str, values: Sequence[Value], lengths: Sequence[Sequence[Value]]
    ) -> None:
        """Set the values of an output's variables, each with its own sequences."""
        for name, value, own in zip(self.op.outputs.get(slot, []), values, lengths, strict=False):
            self._results.append((name, value, tuple(own)))

    def finish(self) -> None:
        """Bind the outputs to their values; new values are renamed after their variables."""
        made = {output for node in self.g.nodes[self._start :] for output in node.output}
        renamed: dict[Value, Value] = {}
        for name, value, _ in self._results:
            if value in made and value not in renamed:
                renamed[value] = self.g.unique(name)
                self.g.rename(value, renamed[value], self._start)
        for name, value, lengths in self._results:
            kept = tuple(renamed.get(each, each) for each in lengths)
            self.values.bind(name, renamed.get(value, value), kept)

    def lengths(self, slot: str) -> tuple[Value, ...]:
        """The lengths of an input's sequences, coarse levels first; empty without sequences."""
        return self.values.lengths(self.name(slot))

    def sequences(self, slot: str) -> Value:
        """The lengths of an input's sequences at the finest level."""
        found = self.lengths(slot)
        need(found, f"its input {slot} has no sequences")
        return found[-1]

    def _kept(self, name: str) -> tuple[Value, ...]:
        """The lengths that an output shares with the inputs, by the operator's shape inference."""
        definition = self.op.definition
        given = {
            slot: [(n, self.values.lengths(n)) for n in names if n]
            for slot, names in self.op.inputs.items()
            if not slot.endswith(LOD_SUFFIX)
        }
        shared = next((found for pairs in given.values() for _, found in pairs if found), ())
        if not shared or definition.infer is None:
            return shared
        specs = {
            slot: [self._spec_of(n).replace(lod_level=len(found)) for n, found in pairs]
            for slot, pairs in given.items()
        }
        for slot, made in definition.infer_specs(specs, self.op.attrs).items():
            for output, spec in zip(self.op.outputs.get(slot, []), made, strict=False):
                if output == name and spec is not None:
                    return shared[: spec.lod_level]
        return shared

    def _spec_of(self, name: str) -> Spec:
        return self.op.block._var_recursive(name).spec

    def typed(self, value: Any, dtype: DTypeLike, wanted: DTypeLike) -> Value:
        """The value, cast to the element type ``wanted`` if ``dtype`` is another one."""
        if np.dtype(dtype) == np.dtype(wanted):
            found: Value = value
            return found
        return self.g.cast(value, wanted)
