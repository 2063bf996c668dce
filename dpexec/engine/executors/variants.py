"""The form in which a run needs a program: a part of it, or with other sequences than declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.scope import Scope
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.graph.lod_readers import may_lack_sequences
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program

__all__ = ["AS_IT_IS", "Pruning", "Variant", "fed_levels", "needed_feeds"]

Levels = tuple[tuple[str, int], ...]
"""Names of variables, each with a number of levels of sequences."""


@dataclass(frozen=True)
class Pruning:
    """The part of a program that a run needs.

    Args:
        fed: names that are fed; operators that compute them are not needed.
        fetch: names that are fetched.
        updates: operators of optimizers; none means all of the program.
    """

    fed: tuple[str, ...]
    fetch: tuple[str, ...]
    updates: tuple[Operator, ...]

    @classmethod
    def to(cls, feed: Any, fetch: Sequence[str], updates: Sequence[Operator]) -> Pruning:
        """The same for a feed: a dict, a list of dicts, or None."""
        feeds = feed if isinstance(feed, (list, tuple)) else [feed or {}]
        fed = dict.fromkeys(name for each in feeds for name in each)
        return cls(tuple(fed), tuple(fetch), tuple(updates))

    def of(self, program: Program) -> Program:
        """A copy of the program without operators that are not needed.

        Raises:
            ValueError: no operator computes what is fetched.
        """
        updates = self.updates or [op for op in program.global_block().ops if updating(op)]
        return program._prune_with_input(list(self.fed), [*self.fetch, *updates])


@dataclass(frozen=True)
class Variant:
    """The form in which a run needs a program.

    Args:
        pruning: the part of the program that it needs; None: all.
        levels: levels of sequences of variables that are fed other ones than they declare, as fluid
            allows.
    """

    pruning: Pruning | None = None
    levels: Levels = ()

    def of(self, program: Program) -> Program:
        """The program in this form: itself if it has this form already, else a copy.

        Raises:
            ValueError: no operator computes what is fetched.
        """
        if self.pruning is not None:
            program = self.pruning.of(program)
        if self.levels:
            program = program.clone()
            known = program.global_block().vars
            for name, levels in self.levels:
                if name in known:
                    known[name].lod_level = levels
        return program

    @staticmethod
    def lacking(program: Program, feed: Any) -> list[str]:
        """The variables declared with sequences that get none, if the program can do without."""
        found = may_lack_sequences(program)
        return [
            name
            for each in (feed if isinstance(feed, (list, tuple)) else [feed])
            if found and isinstance(each, Mapping)
            for name, value in each.items()
            if name in found and not (isinstance(value, LoDTensor) and value._lod)
        ]


AS_IT_IS = Variant()
"""The form that most runs need: all of a program, with the sequences that it declares."""


def updating(op: Operator) -> bool:
    """Whether an operator is an optimizer's, or runs a block with some."""
    return any(inner.role & roles.OPTIMIZE for inner in op.with_inner())


def fed_levels(program: Program, feed: Any, scope: Scope) -> Levels:
    """Levels of sequences that differ from those that the program declares; usually none.

    Args:
        program: the program that is fed.
        feed: a dict, or a list of dicts; other types are refused where feeds are checked.
        scope: holds persistable variables; only variables declared with sequences count.
    """
    known = program.global_block().vars
    kept = (name for name, var in known.items() if var.lod_level and var.persistable)
    levels = {name: found for name in kept if (found := _stored_levels(scope, name))}
    levels = {name: found for name, found in levels.items() if found != known[name].lod_level}
    levels |= {
        name: len(value._lod)
        for each in (feed if isinstance(feed, (list, tuple)) else [feed])
        if isinstance(each, Mapping)
        for name, value in each.items()
        if isinstance(value, LoDTensor) and value._lod
        if name in known and known[name].lod_level != len(value._lod)
    }
    levels = dict.fromkeys(Variant.lacking(program, feed), 0) | levels
    return tuple(sorted(levels.items()))


def _stored_levels(scope: Scope, name: str) -> int:
    """The number of levels of sequences of a variable of a scope."""
    var = scope.find_var(name)
    return len(var.value._lod) if var is not None and isinstance(var.value, LoDTensor) else 0


def needed_feeds(program: Program, part: Program, feed: Any) -> Any:
    """The feed of a part of a program, taken from the feed of the whole.

    Args:
        program: the whole.
        part: the part.
        feed: a dict, or a list of dicts. Unknown names stay, so that they are refused where all
            feeds are checked.
    """
    if isinstance(feed, (list, tuple)):
        return [needed_feeds(program, part, each) for each in feed]
    if not isinstance(feed, Mapping):
        return feed
    gone = program.global_block().vars.keys() - part.global_block().vars.keys()
    return {name: value for name, value in feed.items() if name not in gone}
