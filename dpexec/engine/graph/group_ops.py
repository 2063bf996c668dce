"""The operators inside a ``fusion_group``."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpexec.engine.core.cache import limit_of
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import OpDef
from dpexec.engine.ir.spec import Spec

__all__ = ["GroupOp", "group_ops", "written"]

Numbers = dict[str, list[int]]
"""Value numbers by slot: the group's inputs come first, then the results of its parts."""


@dataclass(frozen=True)
class GroupOp:
    """An operator of a group.

    Args:
        type: its type.
        inputs: numbers of the values that it reads.
        outputs: numbers of the values that it computes; -1 for an unused output.
        attrs: its attributes.
        dies: numbers of the values that are not used after it.
    """

    type: str
    inputs: Numbers
    outputs: Numbers
    attrs: dict[str, Any]
    dies: frozenset[int] = frozenset()

    @property
    def definition(self) -> OpDef:
        """What dpexec knows of this operator type."""
        return opdef.get(self.type)

    def arguments(self, values: Mapping[int, Any]) -> list[Any]:
        """The inputs of its kernel.

        Args:
            values: all values of the group, by number.
        """
        made: list[Any] = []
        for slot in self.definition.inputs:
            found = [values[number] for number in self.inputs.get(slot.name, [])]
            made.append(found if slot.many else found[0] if found else None)
        return made

    def run(self, xp: Any, values: dict[int, Any]) -> None:
        """Compute its outputs.

        Args:
            xp: ``numpy`` or ``cupy``.
            values: the group's values by number; results are added, dead values are dropped.
        """
        definition = self.definition
        kwargs = definition.kernel_attrs(self.attrs)
        targets = [self.outputs.get(slot.name, []) for slot in definition.outputs]
        if "needs" in definition.kernel_arguments:
            kwargs["needs"] = tuple(bool(t) and t[0] >= 0 for t in targets)
        results = definition.kernel(xp, *self.arguments(values), **kwargs)
        results = results if isinstance(results, tuple) else (results,)
        values.update(
            (target[0], result)
            for target, result in zip(targets, results, strict=True)
            if target and target[0] >= 0
        )
        for number in self.dies:
            values.pop(number, None)

    def infer(self, specs: dict[int, Spec]) -> None:
        """Derive the specs of its outputs.

        Args:
            specs: specs of the group's values by number; those of the outputs are added.
        """
        inputs = {slot: [specs[n] for n in numbers] for slot, numbers in self.inputs.items()}
        for slot, made in self.definition.infer_specs(inputs, self.attrs).items():
            for number, spec in zip(self.outputs.get(slot, []), made, strict=False):
                if number >= 0 and spec is not None:
                    specs[number] = spec


def written(parts: Iterable[GroupOp]) -> list[str]:
    """Serialize the parts as JSON, which an attribute of a program file can hold.

    Args:
        parts: in the order in which they run.
    """
    return [
        json.dumps({"type": p.type, "inputs": p.inputs, "outputs": p.outputs, "attrs": p.attrs})
        for p in parts
    ]


def group_ops(parts: Sequence[str], results: Sequence[int]) -> tuple[GroupOp, ...]:
    """The parts of a group, from its attributes.

    Args:
        parts: text that :func:`written` made.
        results: numbers of the group's output values.

    Returns:
        The parts; each knows which values die with it.
    """
    return _read(tuple(parts), frozenset(results))


@functools.lru_cache(limit_of("operators of groups"))
def _read(parts: tuple[str, ...], results: frozenset[int]) -> tuple[GroupOp, ...]:
    found = [GroupOp(**json.loads(text)) for text in parts]
    seen, made = set(results), []
    for part in reversed(found):
        numbers = {n for side in (part.inputs, part.outputs) for ns in side.values() for n in ns}
        made.append(
            GroupOp(part.type, part.inputs, part.outputs, part.attrs, frozenset(numbers - seen))
        )
        seen |= numbers
    return tuple(reversed(made))
