"""Costs of a graph's operators: floating point operations, and bytes read and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import LOD_SUFFIX
from dpexec.engine.ir import roles
from dpexec.engine.ir.cost import Call, counted
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.spec import Spec

__all__ = ["bytes_of", "flops_of", "macs_of"]

SpecOf = Callable[[str], Spec | None]


def flops_of(op: Operator, spec_of: SpecOf) -> int | None:
    """Floating point operations of a call; None if its shapes or its cost are not known.

    Args:
        op: the operator.
        spec_of: gives shape and type of a variable by its name.
    """
    call = _call(op, spec_of)
    return None if call is None else op.definition.count_flops(call)


def macs_of(op: Operator, spec_of: SpecOf) -> int:
    """Multiply-adds of a call; None if its shapes are not known.

    Args:
        op: the operator.
        spec_of: gives shape and type of a variable by its name.
    """
    call = _call(op, spec_of)
    return 0 if call is None else op.definition.count_macs(call)


def bytes_of(op: Operator, spec_of: SpecOf) -> int | None:
    """Bytes that a call reads and writes; None if its shapes are not known.

    Args:
        op: the operator.
        spec_of: gives shape and type of a variable by its name.
    """
    definition = op.definition
    if definition.bytes is not None:
        call = _call(op, spec_of)
        return None if call is None else counted(definition.bytes, call)
    read = {s: names for s, names in op.inputs.items() if s not in definition.shape_inputs}
    moved = [*_names(read), *_names(op.outputs)]
    specs = [spec_of(name) for name in dict.fromkeys(moved)]
    sizes = [None if spec is None else spec.nbytes for spec in specs]
    return None if op.bodies or None in sizes else sum(size or 0 for size in sizes)


def _names(slots: Mapping[str, list[str]]) -> list[str]:
    """Names of the variables that count; offsets of sequences are too small to matter."""
    return [
        name
        for slot, names in slots.items()
        for name in roles.present(names)
        if not slot.endswith(LOD_SUFFIX)
    ]


def _call(op: Operator, spec_of: SpecOf) -> Call | None:
    """The call with its shapes; None if a value is sparse or a shape is unknown."""
    sides: list[dict[str, list[Spec]]] = []
    for slots in (op.inputs, op.outputs):
        given: dict[str, list[Spec]] = {}
        for slot in slots:
            found = [spec_of(name) for name in _names({slot: slots[slot]})]
            specs = [s for s in found if s and s.kind == VarType.LOD_TENSOR and s.size >= 0]
            if len(specs) < len(found):
                return None
            given[slot] = specs
        sides.append(given)
    inputs, outputs = sides
    return Call(inputs, outputs, {**op.definition.attrs, **op.attrs})
