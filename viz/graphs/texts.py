"""Texts about operators that passes change: the user's lines, and the resulting code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpexec.viz.graphs.history import REPLICATION, Member, Stage
from dpexec.viz.pages.units import tally

from dpexec.engine.compile.bindings.kernel_listings import kernels_for
from dpexec.engine.graph.listings import Listing, Listings, texts_of
from dpexec.engine.graph.parts import line_of
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.spec import Spec

__all__ = ["MemberTexts", "exchanged", "recorded_texts", "replaced", "texts_of_members"]

_KINDS = 12  # of exchanges by a pass, in text

_ROWS = 32
"""The size that an open dimension is given if nothing ran."""

Specs = Mapping[str, Spec]


@dataclass(frozen=True, slots=True)
class MemberTexts:
    """Texts, each stored once, and references to them by the operators' numbers.

    Args:
        lines: The user's statements, by file and line.
        listings: Texts of functions.
        declarations: Positions of the functions that declare operators, by type.
        line: The line of code that made an operator.
        kernels: Positions of the machine code of an operator compiled by itself.
    """

    lines: Mapping[str, str] = field(default_factory=dict)
    listings: Sequence[Listing] = ()
    declarations: Mapping[str, int] = field(default_factory=dict)
    line: Mapping[int, str] = field(default_factory=dict)
    kernels: Mapping[int, Sequence[int]] = field(default_factory=dict)


def texts_of_members(
    members: Sequence[Member], stages: Sequence[Stage], specs: Specs, native: bool
) -> MemberTexts:
    """Return the texts about operators; machine code only for those that a pass changed.

    Args:
        members: All operators.
        stages: The stages of the passes.
        specs: Specs of the variables in the latest batch; empty if nothing ran.
        native: Whether operators are compiled to machine code.
    """
    texts = texts_of((member.op for member in members), (member.name for member in members))
    listings = Listings(texts["listings"])
    lines = ((member.id, line_of(member.op)) for member in members)
    kernels: dict[int, Sequence[int]] = {}
    coder = _Coder(specs)
    for number in _changed(stages) if native else ():
        member = members[number]
        if member.op is None or member.device is None or member.op.type != member.name:
            continue
        found = coder.kernels(member.op)
        if found is not None:
            kernels[number] = [listings.number(listing) for listing in found]
    known = {number: line for number, line in lines if line is not None}
    return MemberTexts(texts["lines"], listings.all, texts["declarations"], known, kernels)


def _changed(stages: Sequence[Stage]) -> Iterable[int]:
    busy = [stage for stage in stages[1:] if stage.name != REPLICATION]
    return dict.fromkeys(
        number
        for stage in busy
        for ids in (stage.added, stage.removed, stage.changed)
        for number in ids
    )


class _Coder:
    """Compiles operators, equal ones only once."""

    def __init__(self, specs: Specs) -> None:
        self.specs = specs
        self.known: dict[Any, list[Listing] | None] = {}
        self.rows = next(
            (spec.shape[0] for name, spec in specs.items() if spec.rank and spec.shape[0] > 0),
            _ROWS,
        )

    def kernels(self, op: Operator) -> list[Listing] | None:
        """The machine code of an operator; None if it is not compiled."""
        names = (*op.input_arg_names, *op.output_arg_names)
        specs = {name: self._spec(op, name) for name in names}
        known = {name: spec for name, spec in specs.items() if spec is not None}
        numbers = {name: number for number, name in enumerate(specs)}
        slots = [
            (slot, [numbers[name] for name in found])
            for side in (op.inputs, op.outputs)
            for slot, found in side.items()
        ]
        attrs = sorted((k, repr(v)) for k, v in op.attrs.items() if not k.startswith("op_"))
        key = repr((op.type, slots, [*specs.values()], attrs))
        if key not in self.known:
            self.known[key] = kernels_for(op, known)
        return self.known[key]

    def _spec(self, op: Operator, name: str) -> Spec | None:
        if name in self.specs:
            return self.specs[name]
        declared = op.block._find_var_recursive(name) if name else None
        if declared is None or declared.spec is None:
            return None
        spec = declared.spec
        return spec.replace(shape=tuple(self.rows if dim < 0 else dim for dim in spec.shape))


def recorded_texts(data: Mapping[str, Any], members: Sequence[Member]) -> MemberTexts:
    """Return the texts of a graph file about operators that passes changed, found by label.

    Args:
        data: The content of the file.
        members: The operators.
    """
    nodes = {_label(data, node): node for node in data["nodes"]}
    places = {member.id: _placed(member.label) for member in members}
    found = {number: nodes[label] for number, label in places.items() if label in nodes}
    return MemberTexts(
        data.get("lines", {}),
        data.get("listings", ()),
        data.get("declarations", {}),
        {number: node["line"] for number, node in found.items() if node["line"]},
        {number: node["kernels"] for number, node in found.items() if "kernels" in node},
    )


def _placed(label: str) -> str:
    """The label of an operator, with the first device added if it has none (before replication)."""
    return label if " on " in label else f"{label} on device 0"


def _label(data: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    """The label that passes give an operator (dpexec/engine/passes/changes.py)."""
    outputs = [data["vars"][number] for number in node["outputs"]]
    names = dict.fromkeys(value["name"] for value in outputs if value["kind"] == "var")
    where = "all devices" if node["device"] is None else f"device {node['device']}"
    return f"{node['name']} -> {', '.join(names)} on {where}"


def replaced(members: Sequence[Member], stage: Stage, before: Stage | None) -> dict[int, list[int]]:
    """Return the removed operators that each new one of a stage replaces.

    A new operator replaces those that wrote its outputs, and those whose results were read only by
    replaced operators and are no longer written.

    Args:
        members: All operators.
        stage: The stage after a pass.
        before: The stage before it.
    """
    writers: dict[tuple[str, int | None], list[int]] = {}
    for number in stage.removed:
        for place in _writes(members[number]):
            writers.setdefault(place, []).append(number)
    gone = set(stage.removed)
    kept = {place for number in stage.nodes for place in _writes(members[number])}
    sources: dict[int, list[int]] = {}
    for source, target in before.links if before is not None else ():
        if source in gone and kept.isdisjoint(_writes(members[source])):
            sources.setdefault(target, []).append(source)
    found: dict[int, list[int]] = {}
    for number in stage.added:
        stack = [r for place in _writes(members[number]) for r in writers.get(place, ())]
        inside: dict[int, None] = {}
        while stack:
            one = stack.pop()
            if one not in inside:
                inside[one] = None
                stack += sources.get(one, ())
        if inside:
            found[number] = sorted(inside)
    return found


def exchanged(members: Sequence[Member], stage: Stage, before: Stage) -> list[str]:
    """Return what a pass put in place of what, by types of operators, the most frequent first.

    Args:
        members: All operators.
        stage: The stage after the pass.
        before: The stage before it.

    Example:
        ``["2 times: relu, softmax → fusion_group", "gone: cast"]``
    """
    if stage.name == REPLICATION:  # every operator becomes several
        return []
    found = replaced(members, stage, before) if before.links else {}  # files have no links
    pairs = [
        f"{', '.join(tally(members[old].name for old in gone))} → {members[new].name}"
        for new, gone in found.items()
    ]
    known = {old for gone in found.values() for old in gone}
    lost = tally(members[k].name for k in stage.removed if k not in known)
    new = tally(members[k].name for k in stage.added if k not in found)
    said = [f"{n} times: {text}" if n > 1 else text for text, n in Counter(pairs).most_common()]
    more = [f"and {len(said) - _KINDS} more kinds"] if len(said) > _KINDS else []
    rest = [
        f"{what}: {', '.join(names)}" for what, names in (("gone", lost), ("new", new)) if names
    ]
    return [*said[:_KINDS], *more, *rest]


def _writes(member: Member) -> list[tuple[str, int | None]]:
    """The variables that an operator writes, with their devices, from its label."""
    names = member.label.partition(" -> ")[2].partition(" on ")[0]
    return [(name, member.device) for name in names.split(", ") if name]
