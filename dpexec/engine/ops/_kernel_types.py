"""For which element types Paddle 1.8.5 has kernels, input by input: ``kernel_types.txt``.

``tests/fixtures/record_kernel_types.py`` recorded it. A line names a type of operator, slots that
must have one element type together, and the types that these may have. Variables of a slot with a
star may have different ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from dpexec.engine.core.dtypes import VarType, as_var_type, dtype_name
from dpexec.engine.ir.spec import Spec, require

__all__ = ["SlotTypes", "require_kernel", "slot_types"]


@dataclass(frozen=True, slots=True)
class SlotTypes:
    """What Paddle takes in some slots of an operator.

    Args:
        slots: they must all have one element type.
        mixed: those of them whose variables may differ.
        types: the element types.
    """

    slots: tuple[str, ...]
    mixed: frozenset[str]
    types: tuple[VarType, ...]


@cache
def _table() -> dict[str, list[SlotTypes]]:
    text = resources.files("dpexec.engine.ops").joinpath("kernel_types.txt").read_text("utf-8")
    found: dict[str, list[SlotTypes]] = {}
    for line in text.splitlines():
        head, _, types = line.partition(": ")
        op_type, _, slots = head.partition(" ")
        names = slots.split("=")
        mixed = frozenset(name[:-1] for name in names if name.endswith("*"))
        plain = tuple(name.removesuffix("*") for name in names)
        made = SlotTypes(plain, mixed, tuple(map(as_var_type, types.split())))
        found.setdefault(op_type, []).append(made)
    return found


def slot_types(op_type: str) -> Sequence[SlotTypes]:
    """What Paddle takes in the slots of an operator; nothing of those that take all types."""
    return _table().get(op_type, ())


def require_kernel(op_type: str, inputs: Mapping[str, Sequence[Spec]]) -> None:
    """Refuse inputs for whose element types Paddle has no kernel.

    float16 counts as float32: Paddle has these kernels on GPUs, and dpexec on all devices.

    Args:
        op_type: type of the operator.
        inputs: specs by slot.

    Raises:
        InvalidOp: it has none; names slots and types.
    """
    for rule in slot_types(op_type):
        found: dict[VarType, str] = {}
        for slot in rule.slots:
            for spec in inputs.get(slot, ()):
                if spec.kind not in (VarType.LOD_TENSOR, VarType.SELECTED_ROWS):
                    continue
                dtype = VarType.FP32 if spec.dtype == VarType.FP16 else spec.dtype
                require(
                    dtype in rule.types,
                    f"{slot} {spec} cannot be {dtype_name(spec.dtype)}: Paddle 1.8.5 has no kernel "
                    f"for that, but for {', '.join(map(dtype_name, rule.types))}",
                )
                if slot not in rule.mixed:
                    found.setdefault(dtype, f"{slot} {spec}")
        require(
            len(found) < 2,
            f"{' and '.join(dict.fromkeys(rule.slots))} must have one data type, "
            f"but they are {' and '.join(found.values())}",
        )
