"""The data types for which Paddle 1.8.5 has kernels, by input slot: ``kernel_types.txt``.

``tests/fixtures/record_kernel_types.py`` recorded the file. A line names an operator type, slots
that must have the same data type, and the allowed types. Variables of a slot with a star may differ
from each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from dpexec.engine.core.dtypes import VarType, as_var_type, dtype_name
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.spec import InvalidOp, Spec

__all__ = ["SlotTypes", "require_kernel", "slot_types"]


@dataclass(frozen=True, slots=True)
class SlotTypes:
    """The data types that Paddle accepts in some slots of an operator.

    Args:
        slots: slots that must have the same data type.
        mixed: slots among them whose variables may have different types.
        types: the accepted data types.
    """

    slots: tuple[str, ...]
    mixed: frozenset[str]
    types: tuple[VarType, ...]


@cache
def _table() -> dict[str, list[SlotTypes]]:
    text = Path(__file__).with_name("kernel_types.txt").read_text("utf-8")
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
    """The data types that Paddle accepts in slots; slots that take all types are left out."""
    return _table().get(op_type, ())


def require_kernel(op_type: str, inputs: Mapping[str, Sequence[Spec]]) -> None:
    """Reject inputs with data types for which Paddle has no kernel.

    float16 counts as float32: Paddle has these kernels on GPUs, and dpexec on all devices.

    Args:
        op_type: type of the operator.
        inputs: specs by slot.

    Raises:
        InvalidOp: there is no kernel; the message names slots and types.
    """
    for rule in slot_types(op_type):
        found: dict[VarType, tuple[str, Spec]] = {}
        for slot in rule.slots:
            for spec in inputs.get(slot, ()):
                if spec.kind not in (VarType.LOD_TENSOR, VarType.SELECTED_ROWS):
                    continue
                dtype = VarType.FP32 if spec.dtype == VarType.FP16 else spec.dtype
                if dtype not in rule.types:
                    raise InvalidOp(
                        f"{slot} {spec} cannot be {dtype_name(spec.dtype)}: Paddle 1.8.5 has no "
                        f"kernel for that, but for {', '.join(map(dtype_name, rule.types))}"
                    )
                if slot not in rule.mixed:
                    found.setdefault(dtype, (slot, spec))
        if len(found) > 1:
            kinds = " and ".join(f"{slot} {spec}" for slot, spec in found.values())
            raise InvalidOp(
                f"{' and '.join(dict.fromkeys(rule.slots))} must have one data type, "
                f"but they are {kinds}"
            )
