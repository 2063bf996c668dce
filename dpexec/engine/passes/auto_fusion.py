"""``enable_auto_fusion``: connected elementwise operators are fused into one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.graph.group_ops import GroupOp, written
from dpexec.engine.graph.operators import Operators, Uses
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator

__all__ = ["AutoFusion"]


@dataclass(eq=False)
class _Group:
    """Operators that may run where the last of them does."""

    kind: Hashable
    members: list[int] = field(default_factory=list)


class AutoFusion:
    """Fuse connected elementwise operators, and reductions of their results.

    A group is a DAG: its operators read each other's results, have one role, and may run at the
    position of the last one. It becomes one operator ``fusion_group`` that returns only results
    read outside the group. With machine code, expressions with the same loops become one kernel;
    else the operators run one after another. Either way the bits are those of the unfused
    operators.

    Paddle has this pass on GPUs only.
    """

    name = "enable_auto_fusion"

    def rewrite(self, operators: Operators) -> bool:
        """Rewrite ``operators``; tell whether anything changed."""
        uses = operators.uses()
        changes: dict[Operator, Operator | None] = {}
        for group in _Search(uses).groups():
            members = [uses.ops[position] for position in group.members]
            changes.update(dict.fromkeys(members))
            changes[members[-1]] = _fused(uses, group.members)
        return operators.replace(changes)


class _Search:
    """Walks over the operators and collects groups.

    Args:
        uses: the operators' reads and writes.
    """

    def __init__(self, uses: Uses) -> None:
        self.uses = uses
        self.group_of: dict[int, _Group] = {}
        self.open: set[_Group] = set()
        self.touching: dict[str, list[_Group]] = {}  # by the variables that they read

    def groups(self) -> list[_Group]:
        """The groups of at least two operators."""
        for position, op in enumerate(self.uses.ops):
            kind = _kind(self.uses, op)
            joined = None if kind is None else self._join(position, op, kind)
            self._close(op, joined)
        found = dict.fromkeys(self.group_of.values())
        return [group for group in found if len(group.members) > 1]

    def _join(self, position: int, op: Operator, kind: Hashable) -> _Group:
        """Merge an operator with the groups whose results it reads."""
        before = dict.fromkeys(
            group for name in op.input_arg_names if (group := self._maker(name)) in self.open
        )
        groups = [group for group in before if group is not None and group.kind == kind]
        target = groups[0] if groups else _Group(kind)
        for other in groups[1:]:
            target.members = sorted([*target.members, *other.members])
            self.open.discard(other)
            self.group_of.update(dict.fromkeys(other.members, target))
        target.members.append(position)
        self.group_of[position] = target
        self.open.add(target)
        for name in op.input_arg_names:
            if len(self.uses.writers[name]) > 1 or (self.uses.writers[name] or [-1])[0] > position:
                self.touching.setdefault(name, []).append(target)
        return target

    def _maker(self, name: str) -> _Group | None:
        writers = self.uses.writers[name]
        return self.group_of.get(writers[0]) if len(writers) == 1 else None

    def _close(self, op: Operator, joined: _Group | None) -> None:
        """Close the groups that must run before ``op``: it reads a result or changes an input."""
        for name in op.reads:
            maker = self._maker(name)
            if maker is not None and maker is not joined:
                self.open.discard(maker)
        for name in op.writes:
            for group in self.touching.pop(name, ()):
                self.open.discard(self.group_of[group.members[-1]])


def _kind(uses: Uses, op: Operator) -> Hashable:
    """The property that all operators of a group share; None for an operator that cannot fuse."""
    if not op.definition.fuses or not _has_one_type(op):
        return None
    if any(len(uses.writers[name]) != 1 for name in roles.present(op.output_arg_names)):
        return None
    return op.role, () if op.role & roles.BACKWARD else tuple(op.role_var)


def _has_one_type(op: Operator) -> bool:
    """Whether all variables are dense float32, and no parameter is written."""
    found = op._variables([*op.input_arg_names, *op.output_arg_names])
    plain = all(
        var.type == VarType.LOD_TENSOR and var.dtype == VarType.FP32 and not var.lod_level
        for var in found.values()
    )
    return plain and not any(found[n].persistable for n in op.output_arg_names if n in found)


def _fused(uses: Uses, members: Iterable[int]) -> Operator:
    """The operator that does the work of a group."""
    ops = [uses.ops[position] for position in members]
    own = set(members)
    made = dict.fromkeys(name for op in ops for name in roles.present(op.output_arg_names))
    outside = [name for name in made if not _stays_inside(uses, name, own)]
    read = [_inputs(op) for op in ops]
    names = dict.fromkeys(n for slots in read for ns in slots.values() for n in ns)
    inputs = [name for name in names if name not in made]
    numbers = {name: number for number, name in enumerate([*inputs, *made])}
    numbers[roles.EMPTY] = -1
    parts = [
        GroupOp(op.type, _numbered(slots, numbers), _numbered(op.outputs, numbers), _attrs(op))
        for op, slots in zip(ops, read, strict=True)
    ]
    first = ops[0]
    attrs = {
        **first.origin_attrs(),
        roles.ROLE_VAR: list(first.role_var),
        "parts": written(parts),
        "results": [numbers[name] for name in outside],
    }
    if first.role & roles.BACKWARD:
        attrs[roles.ROLE_VAR] = [name for op in ops for name in op.role_var]
    slots = {"Inputs": inputs}, {"Outs": outside}
    return Operator(first.block, "fusion_group", *slots, attrs, first.callsite)


def _stays_inside(uses: Uses, name: str, own: set[int]) -> bool:
    return uses.temporary(name) and bool(uses.readers[name]) and own.issuperset(uses.readers[name])


def _inputs(op: Operator) -> Mapping[str, list[str]]:
    """The inputs of an operator; an input read for its shape only may become another variable."""
    inputs = {slot: list(names) for slot, names in op.inputs.items() if names}
    form = sorted(op.definition.shape_inputs)
    if form:
        found = op._variables(op.input_arg_names)
        flow = next(names[0] for slot, names in inputs.items() if slot not in form)
        for slot in form:
            if found[op.inputs[slot][0]].shape == found[flow].shape:
                inputs[slot] = [flow]
    return inputs


def _numbered(slots: Mapping[str, list[str]], numbers: Mapping[str, int]) -> dict[str, list[int]]:
    return {slot: [numbers[name] for name in names] for slot, names in slots.items() if names}


def _attrs(op: Operator) -> dict[str, object]:
    attrs = op.plain_attrs()
    return {name: attrs[name] for name in op.definition.attrs if name in attrs}
