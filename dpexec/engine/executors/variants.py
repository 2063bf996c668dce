"""The form in which a run needs a program: a part of it, or with other sequences than declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpexec.engine.core.scope import Scope
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program

__all__ = ["AS_IT_IS", "Pruning", "Variant", "fed_levels", "needed_feeds"]

Levels = tuple[tuple[str, int], ...]
"""Names of variables, each with a number of levels of sequences."""


@dataclass(frozen=True)
class Pruning:
    """What a run wants of a program that it does not need as a whole.

    Args:
        fed: names that are fed; what computes them is not needed.
        fetch: names that are fetched.
        updates: operators of optimizers; none means all that the program has.
    """

    fed: tuple[str, ...]
    fetch: tuple[str, ...]
    updates: tuple[Operator, ...]

    @classmethod
    def to(cls, feed: Any, fetch: Sequence[str], updates: Sequence[Operator]) -> Pruning:
        """What a run with this feed wants: a dict, a list of dicts, or None."""
        feeds = feed if isinstance(feed, (list, tuple)) else [feed or {}]
        fed = dict.fromkeys(name for each in feeds for name in each)
        return cls(tuple(fed), tuple(fetch), tuple(updates))

    def of(self, program: Program) -> Program:
        """A copy of the program without what is not needed.

        Raises:
            ValueError: no operator computes what is fetched.
        """
        updates = self.updates or [op for op in program.global_block().ops if updating(op)]
        return program._prune_with_input(list(self.fed), [*self.fetch, *updates])


@dataclass(frozen=True)
class Variant:
    """The form in which a run needs a program.

    Args:
        pruning: what it wants of the program; None: all.
        levels: of sequences, for variables that are fed others than declared. The original takes
            them, too.
    """

    pruning: Pruning | None = None
    levels: Levels = ()

    def of(self, program: Program) -> Program:
        """The program in this form: itself if it has it, else a copy.

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


AS_IT_IS = Variant()
"""All of a program, with the sequences that it declares: what most runs need."""


def updating(op: Operator) -> bool:
    """Whether an operator is one of an optimizer, or runs some."""
    return any(inner.role & roles.OPTIMIZE for inner in op.with_inner())


def fed_levels(program: Program, feed: Any, scope: Scope) -> Levels:
    """The levels of sequences where the program declares others; usually none.

    Args:
        program: which is fed.
        feed: a dict, or a list of dicts; something else is refused where feeds are checked.
        scope: holds persistable variables; only those count that are declared with sequences.
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
    return tuple(sorted(levels.items()))


def _stored_levels(scope: Scope, name: str) -> int:
    """How many levels of sequences a variable of a scope has."""
    var = scope.find_var(name)
    return len(var.value._lod) if var is not None and isinstance(var.value, LoDTensor) else 0


def needed_feeds(program: Program, part: Program, feed: Any) -> Any:
    """What to feed a part of a program, of what is fed to the whole.

    Args:
        program: the whole.
        part: the part.
        feed: a dict, or a list of dicts. Names that the program does not have stay, so that they
            are refused where all feeds are checked.
    """
    if isinstance(feed, (list, tuple)):
        return [needed_feeds(program, part, each) for each in feed]
    if not isinstance(feed, Mapping):
        return feed
    gone = program.global_block().vars.keys() - part.global_block().vars.keys()
    return {name: value for name, value in feed.items() if name not in gone}
