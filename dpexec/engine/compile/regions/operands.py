"""The values that a task's operators read and compute, while the operators become code."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from dpexec.engine.compile.regions.step import kept, overwrites, random_stream
from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import roles
from dpexec.engine.ir.opdef import Slot
from dpexec.engine.ir.operator import Operator, op_error
from dpexec.engine.ir.spec import Spec
from dpexec.engine.kernels.lowering import (
    Buffer,
    Code,
    Lowering,
    Offsets,
    Ragged,
    Sparse,
    Value,
    flat,
)

__all__ = ["AnyValue", "Brought", "Operands", "emitted", "is_array", "plain", "result_of"]

AnyValue = Value | Sparse | Ragged
Brought = ChainMap[str, AnyValue]
"""Values that come from outside of a piece of code, by name. The first map holds those that the
present operator is the first to read; they are forgotten if it does not become code."""


class Operands:
    """The values of a task by name.

    Args:
        specs: of the device's values.
        overwritten: names of persistable variables that are updated in place.
        limits: the most rows that sparse values have.

    Attributes:
        specs: as given.
        made: the values that code computes; a name stands for the value written last.
    """

    def __init__(
        self, specs: Mapping[str, Spec], overwritten: Collection[str], limits: Mapping[str, int]
    ) -> None:
        self.made: dict[str, AnyValue] = {}
        self.specs, self._overwritten, self._limits = specs, overwritten, limits

    def are_sparse(self, op: Operator) -> bool:
        """Whether an operator works on sparse rows."""
        return not self._limits.keys().isdisjoint((*op.input_arg_names, *op.output_arg_names))

    def inputs(
        self,
        op: Operator,
        brought: Brought,
        instead: Mapping[str, Value] = MappingProxyType({}),
        ragged: Collection[str] = (),
    ) -> list[Any] | None:
        """The values of an operator's input slots; None if code cannot work on one.

        Args:
            op: the operator.
            brought: values that come from outside; gets those that the operator reads.
            instead: by name, values that replace others.
            ragged: names of slots whose values may be :class:`Ragged`.
        """
        arguments: list[Any] = []
        for slot in op.definition.inputs:
            names = [n for n in op.inputs.get(slot.name, []) if n and n != roles.EMPTY]
            found = [instead.get(name) or self.value(name, brought) for name in names]
            if any(value is None or _is_empty(value, slot) for value in found):
                return None
            if slot.name not in ragged and any(isinstance(value, Ragged) for value in found):
                return None
            arguments.append(found if slot.many else found[0] if found else None)
        return arguments

    def of_python(
        self, op: Operator, brought: Brought
    ) -> tuple[dict[str, AnyValue], dict[str, Value]] | None:
        """The values that an operator without a lowering reads and computes, by name.

        Args:
            op: the operator.
            brought: as for :meth:`inputs`.

        Returns:
            None if its kernel cannot work on the memory of one: it has unknown size, nested
            sequences or no elements.
        """
        inputs = self.inputs(op, brought)
        results = None if inputs is None else self.outputs(op, brought)
        if inputs is None or results is None:
            return None
        return self._for_python(flat(inputs), flat(results))

    def of_names(
        self, reads: Iterable[str], writes: Iterable[str], brought: Brought
    ) -> tuple[dict[str, AnyValue], dict[str, Value]] | None:
        """Like :meth:`of_python`, for a branch.

        Args:
            reads: names of the values that its block reads, or keeps.
            writes: names of the values that its block may write.
            brought: as for :meth:`inputs`.
        """
        inputs = [self.value(name, brought) for name in reads]
        results = [self._new(name, own=True) for name in writes]
        return self._for_python(inputs, results)

    def _for_python(
        self, inputs: Iterable[AnyValue | None], results: Iterable[AnyValue | None]
    ) -> tuple[dict[str, AnyValue], dict[str, Value]] | None:
        found: dict[str, AnyValue] = {}
        for value in inputs:
            if value is None or isinstance(value, Ragged) or value.size == 0:
                return None
            if isinstance(value, Offsets) and self.specs[value.name].rank > 1:
                return None  # code knows the finest level only
            found[value.name] = value
        made: dict[str, Value] = {}
        for value in results:
            if not isinstance(value, Value) or value.size == 0:
                return None
            made[value.name] = value
        return found, made

    def value(self, name: str, brought: Brought) -> AnyValue | None:
        """The value of a name that is read, see :meth:`inputs`; None if code cannot work on it."""
        if name in self.made:
            return self.made[name]
        if name not in brought:
            value = self._new(name, own=False)
            if value is None:
                return None
            brought[name] = value
        return brought[name]

    def outputs(
        self,
        op: Operator,
        brought: Brought,
        ragged: Collection[str] = (),
        renewed: Collection[str] = (),
    ) -> list[Any] | None:
        """New values for an operator's output slots; None if code cannot work on one.

        Args:
            op: the operator.
            brought: values that come from outside, which it may update in place.
            ragged: names of slots whose values are :class:`Ragged` if their size is not known.
            renewed: names of slots that get new memory if nothing is updated in place.
        """
        in_place = overwrites(op)
        if len(in_place) < len(op.definition.inplace):
            return None
        made: list[Any] = []
        for slot in op.definition.outputs:
            values: list[AnyValue | None] = []
            for name in op.outputs.get(slot.name, []):
                if not name or name == roles.EMPTY or name not in self.specs:
                    values.append(None)  # not computed, such as MaxIndex of a pool that adds up
                    continue
                if slot.name in in_place and name in kept(op):
                    values.append(None)  # it stays what it is
                    continue
                updated = name in self._overwritten
                if slot.name in in_place and (updated or slot.name not in renewed):
                    found = brought.get(name) if updated else None
                else:
                    found = self._new(name, own=True)
                    if found is None and slot.name in ragged:
                        found = self._ragged(name)
                if found is None or _is_empty(found, slot):
                    return None
                values.append(found)
            made.append(values if slot.many else values[0] if values else None)
        return made

    def _new(self, name: str, own: bool) -> AnyValue | None:
        """A value for a variable, with a buffer if ``own``; None if code cannot work on it."""
        spec = self.specs.get(name)
        if spec is None or spec.size < 0:
            return None
        dtype = np.dtype(to_numpy(spec.dtype))
        if spec.kind == VarType.SELECTED_ROWS and name in self._limits:
            return Sparse.like(spec.shape, dtype, self._limits[name], name, own)
        if spec.kind == VarType.RAW and spec.rank and (spec.rank == 1 or not own):
            value: Value = Offsets(spec.shape[-1:], dtype, None, name)  # the finest level
        elif spec.kind == VarType.LOD_TENSOR:
            value = Value(spec.shape, dtype, None, name)
        else:
            return None
        if own:
            value.buffer = Buffer(value.nbytes)
        return value

    def _ragged(self, name: str) -> Ragged | None:
        spec = self.specs[name]
        if spec.kind != VarType.LOD_TENSOR or spec.size >= 0:
            return None
        return Ragged(np.dtype(to_numpy(spec.dtype)), name)


def _is_empty(value: AnyValue, slot: Slot) -> bool:
    """Whether an array has no elements; such operators are left to NumPy.

    ``XShape`` does not count: it only stands for a shape, and never has elements.
    """
    if slot.name == "XShape" or not isinstance(value, Value) or isinstance(value, Offsets):
        return False
    return any(dim == 0 for dim in value.shape)


def plain(found: Any) -> Any:
    """A value of a device as an array; for a :class:`Lod`, its finest level."""
    return found.offsets if isinstance(found, Lod) else found


def is_array(value: AnyValue) -> bool:
    """Whether the env gets the memory itself in which code computes a value."""
    return isinstance(value, Value) and not isinstance(value, Offsets)


def result_of(value: AnyValue, arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    """What the env gets for a value that code computed."""
    if isinstance(value, Offsets):
        return Lod([arrays[0].copy()])  # a Lod never changes, but code overwrites its memory
    if isinstance(value, Value):
        return arrays[0]
    if isinstance(value, Ragged):
        return value.outside(*arrays)
    rows, array, count = arrays
    return SelectedRows(rows[: count[0]], value.height, array[: count[0]])


def emitted(
    code: Code, lower: Lowering, op: Operator, inputs: list[Any], outputs: list[Any]
) -> bool:
    """Emit the calls of an operator; False if NumPy must run it.

    Args:
        code: takes the calls.
        lower: the lowering of its type.
        op: the operator.
        inputs: its values per slot.
        outputs: the values that it computes, per slot.

    Raises:
        EnforceNotMet: its attributes have wrong types or values, as in a damaged model.
    """
    try:
        return lower(code, inputs, outputs, _attributes_of(op, lower)) is not False
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"inputs or attributes do not fit: {error}"
        raise op_error(op, problem, op.input_specs()) from error


def _attributes_of(op: Operator, lower: Lowering) -> dict[str, Any]:
    attrs = {name: op.attrs.get(name, op.definition.attrs.get(name)) for name in lower.attrs}
    if "rng" in attrs:
        attrs["rng"] = random_stream(op)
    return attrs
