"""Parts of programs: what the fetches of a run and some parameter updates need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpexec.ir import roles
from dpexec.ir.operator import Operator
from dpexec.ir.program import Program

__all__ = ["Part", "needed_feeds"]


@dataclass(frozen=True)
class Part:
    """What a run wants of a program.

    Args:
        fed: names that are fed; what computes them is not needed.
        fetch: names that are fetched.
        updates: operators of optimizers; none means all that the program has.
    """

    fed: tuple[str, ...]
    fetch: tuple[str, ...]
    updates: tuple[Operator, ...]

    @classmethod
    def wanted(cls, feed: Any, fetch: Sequence[str], updates: Sequence[Operator]) -> Part:
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


def updating(op: Operator) -> bool:
    """Whether an operator is one of an optimizer."""
    return bool(op.role & roles.OPTIMIZE)


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
