"""Operators that a pass replaced: other operators of the other run make the same variables.

If a pass is off, or another optimizer is used, the operators of two runs of one network differ, and
yet do the same work. They are found by the variables that they make, and compared together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dpexec.viz.comparing.changes import Change, Key, Times

Unit = tuple[tuple[Hashable, ...], ...]
"""What was recorded as one operator: the signatures of the operators of the graph in it."""

_TYPES = 3  # of operators, which a name has

_RELATED = 0.1
"""Two runs belong to one network if they have at least this share of all operators in common."""

_MOSTLY = 0.6
"""Or if at least this share makes the same variables: passes put other operators there."""


@dataclass(frozen=True)
class Rewritten:
    """Operators of one run, and those of the other run that make the same variables.

    Args:
        before: Those of the first run.
        after: Those of the second run.
    """

    before: tuple[Unit, ...]
    after: tuple[Unit, ...]

    @property
    def types(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The types of operators of both runs, in order."""
        return tuple(sorted(map(_type, self.before))), tuple(sorted(map(_type, self.after)))

    @property
    def made(self) -> str:
        """A variable that they make."""
        return min(name for unit in self.after for name in names_of(unit))


class Regrouped(NamedTuple):
    """The times of two runs, with a row for all operators that replace each other.

    Args:
        before: Of the first run.
        after: Of the second run.
        members: The number of operators that were put together.
    """

    before: dict[Key, Times]
    after: dict[Key, Times]
    members: int


def find_rewritten(one: Iterable[Unit], other: Iterable[Unit]) -> list[Rewritten]:
    """Find what has other operators in the other run.

    Args:
        one: The operators of the first run.
        other: Those of the second run.
    """
    before, after = dict.fromkeys(one), dict.fromkeys(other)
    sides = [unit for unit in before if unit not in after], [u for u in after if u not in before]
    parents: dict[Hashable, Hashable] = {}

    def root(key: Hashable) -> Hashable:
        while parents.setdefault(key, key) != key:
            parents[key] = key = parents[parents[key]]
        return key

    for units in sides:
        for unit in units:
            for name in names_of(unit):
                parents[root(name)] = root(unit)
    groups: dict[Hashable, tuple[list[Unit], list[Unit]]] = {}
    for side, units in enumerate(sides):
        for unit in units:
            groups.setdefault(root(unit), ([], []))[side].append(unit)
    return [Rewritten(tuple(was), tuple(now)) for was, now in groups.values() if was and now]


def alike(found: Iterable[Rewritten]) -> Iterator[tuple[str, list[Rewritten]]]:
    """Put together what was rewritten in the same way; returns a name and the members of each."""
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Rewritten]] = {}
    for each in found:
        groups.setdefault(each.types, []).append(each)
    for members in groups.values():
        now, was = (
            _text(unit for member in members for unit in side(member))
            for side in (lambda m: m.after, lambda m: m.before)
        )
        yield f"{now}, before {was}", members


def name_of(each: Rewritten) -> str:
    """Return the name of what was rewritten once."""
    return f"{_text(each.after)} → {each.made}, before {_text(each.before)}"


def names_of(unit: Unit) -> Iterator[str]:
    """The variables that an operator makes."""
    for signature in unit:
        for pair in signature[2:]:
            if isinstance(pair, tuple):
                yield str(pair[0])


def _type(unit: Unit) -> str:
    return "+".join(str(signature[0]) for signature in unit)


def _text(units: Iterable[Unit]) -> str:
    """Operators in words, the most frequent ones first."""
    counts = Counter(map(_type, units)).most_common()
    texts = [name if count == 1 else f"{count} × {name}" for name, count in counts[:_TYPES]]
    more = sum(count for _, count in counts[_TYPES:])
    return " and ".join([*texts, *([f"{more} more"] if more else [])])


def is_unit(key: object) -> bool:
    """Whether a key is that of an operator of the graph, by its signatures."""
    if type(key) is not tuple or not key:
        return False
    return all(isinstance(each, tuple) and len(each) > 2 for each in key)


def regrouped(one: Mapping[Key, Times], other: Mapping[Key, Times]) -> Regrouped:
    """Put operators together that other operators of the other run replace.

    Args:
        one: The times of the first run, of `per_step`.
        other: Those of the second run.
    """
    made, count = (dict(one), dict(other)), 0
    for device in dict.fromkeys(key[0] for key in (*one, *other)):
        units = (
            (key[1:] for key in run if key[0] == device and is_unit(key[1:]))
            for run in (one, other)
        )
        for each in find_rewritten(*units):
            sides = (each.before, each.after)
            rows = [
                [run[device, *unit] for unit in side]
                for run, side in zip((one, other), sides, strict=True)
            ]
            if any(len({len(row.seconds) for row in side}) > 1 for side in rows):
                continue  # some of them run in other steps
            for run, side, row in zip(made, sides, rows, strict=True):
                run[device, "rewritten", *sides] = _together(name_of(each), row)
                for unit in side:
                    del run[device, *unit]
                count += len(side)
    return Regrouped(*made, count)


def _together(name: str, rows: Sequence[Times]) -> Times:
    """The times of several operators, which run in the same steps."""
    steps = zip(*(row.seconds for row in rows), strict=True)
    nodes = {node: None for row in rows for node in row.nodes}
    return Times(name, rows[0].device, [sum(seconds) for seconds in steps], nodes, True)


def are_related(changes: Iterable[Change], lone: int, members: int) -> bool:
    """Whether two runs belong to one network.

    Args:
        changes: The times of what both have.
        lone: The number of operators that only one of them has.
        members: The number of operators that replace each other.
    """
    alike = sum(not change.is_rewritten for change in changes)
    whole = alike + lone + members
    return alike >= _RELATED * whole or alike + members >= _MOSTLY * whole
